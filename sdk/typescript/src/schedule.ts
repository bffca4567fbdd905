import type { ScheduleTrigger, Workflow } from './workflow.js';

/** A schedule as the API shows it. */
export interface Schedule {
  readonly id: string;
  readonly workflow: string;
  readonly app: string;
  readonly schedule: string;
  readonly timezone: string;
  readonly catchUp: 'none' | 'last' | 'all';
  /** Absent where it has none. */
  readonly payload?: unknown;
  /** It stands in its app's code, and changes with it. */
  readonly declared: boolean;
  readonly paused: boolean;
  /** Null while it is paused. */
  readonly nextAt: string | null;
  readonly createdAt: string;
}

/** What a workflow takes of a schedule: the payload beside the tick, where its input says so; else anything. */
export type SchedulePayload<Input> = [Beside<Input>] extends [never] ? unknown : Beside<Input>;
type Beside<Input> = Input extends { readonly schedule: string; readonly payload?: infer Payload }
  ? Payload
  : never;

/** `put`'s options: when the workflow's runs start. */
export interface ScheduleOptions<Input = any> extends ScheduleTrigger {
  workflow: Workflow<Input, any>;
  /** Comes in the payload of its runs, beside the schedule and the time. */
  payload?: SchedulePayload<NoInfer<Input>>;
  paused?: boolean;
}

export interface SchedulePage {
  readonly data: readonly Schedule[];
  /** Gives the next page; null on the last. */
  readonly nextCursor: string | null;
}

/** Schedules that are made at run time: a reminder of a user's own, a report of each customer. */
export interface Schedules {
  /** Makes a schedule, or changes the one of that id, which is any text of at most 256 bytes. A changed expression counts from now. */
  readonly put: <Input>(id: string, options: ScheduleOptions<Input>) => Promise<Schedule>;
  readonly get: (id: string) => Promise<Schedule>;
  /** Schedules by their ids, those of apps' code among them; `limit` is at most 100, and 20 without one. */
  readonly list: (options?: { cursor?: string; limit?: number }) => Promise<SchedulePage>;
  readonly pause: (id: string) => Promise<Schedule>;
  /** Lets a paused schedule go on, from now. */
  readonly resume: (id: string) => Promise<Schedule>;
  /** In a run one that is not there is no error: the code may have removed it when it was played before. */
  readonly delete: (id: string) => Promise<void>;
}
