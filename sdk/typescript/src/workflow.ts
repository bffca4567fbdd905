import type { Duration } from './duration.js';
import type { EventName, PayloadOf, StoredEvent, Tick, WebhookRequest } from './event.js';
import type { Savable, Stored } from './json.js';
import type { Log } from './log.js';
import type { Nelkap } from './nelkap.js';
import type { Run, RunError } from './run.js';
import type { StandardSchemaV1 } from './schema.js';
import type { Step } from './step.js';

/** Starts a run for each event of that name. `if` is a CEL condition on `payload` and `event`, which has `id`, `event`, `createdAt` and `payload`. */
export interface EventTrigger<Name extends string = EventName> {
  event: Name;
  if?: string;
}

/**
 * Starts a run at each time of a cron expression, or of `@hourly`, `@daily` and the like; `timezone` is UTC without a name
 * such as `Europe/Berlin`. `catchUp` says which ticks that were missed are made up for: none, the last, or all.
 */
export interface ScheduleTrigger {
  schedule: string;
  timezone?: string;
  catchUp?: 'none' | 'last' | 'all';
}

/** Starts a run for each request to the webhook of that name: a POST to the server's `/hooks/{name}`. */
export interface WebhookTrigger {
  webhook: string;
  if?: string;
}

export type Trigger = EventTrigger | ScheduleTrigger | WebhookTrigger;

/** What a trigger hands to the workflow. */
type FromTrigger<On> = [On] extends [never]
  ? unknown
  : On extends readonly (infer Each)[]
    ? FromTrigger<Each>
    : On extends { event: infer Name extends string }
      ? PayloadOf<Name>
      : On extends { schedule: string }
        ? Tick
        : On extends { webhook: string }
          ? WebhookRequest
          : unknown;

declare const types: unique symbol;

/** A workflow; `Input` is what `run` and `invoke` take, `Output` what comes back. */
export interface Workflow<Input = any, Output = any> {
  readonly name: string;
  /** Types only. */
  readonly [types]?: { input: (input: Input) => void; output: Output };
}
export type InputOf<W extends Workflow> = W extends Workflow<infer Input, any> ? Input : never;
export type OutputOf<W extends Workflow> = W extends Workflow<any, infer Output> ? Output : never;

/** The workflow's second argument. */
export interface WorkflowContext {
  readonly run: Pick<Run, 'id' | 'workflow' | 'app' | 'key' | 'replayOf' | 'createdAt'> & {
    readonly attempt: number;
  };
  /** The event that started the run, or null. */
  readonly event: StoredEvent | null;
  /** Aborted when the run is cancelled, times out, or its call is superseded. */
  readonly signal: AbortSignal;
  readonly log: Log;
  /** The client, bound to this run: for runtimes without AsyncLocalStorage. There a step's function uses that of its own context. */
  readonly nelkap: Nelkap;
  readonly step: Step;
}

export interface Defaults {
  /** How often what threw is tried again; 0 to 1,000. */
  retries?: number;
  timeout?: Duration;
}

/** A step that the run had saved when it ended. */
export interface SavedStep {
  readonly name: string;
  /** Which of the steps of that name, counted from 1. */
  readonly number: number;
  readonly kind: 'run' | 'sleep' | 'event' | 'invoke' | 'claim' | 'callback' | 'undo';
  readonly status: 'completed' | 'failed';
  readonly output: unknown;
  readonly error: RunError | null;
}

/** What a workflow's `onFailure` is given. */
export interface Failure<Payload> {
  /** As the function gets it; as it came, where it does not fit the workflow's schema. */
  readonly payload: Payload;
  /** What the run failed with: an error of the saved name, message, stack and cause. A run that took too long has a `TimeoutError`. */
  readonly error: Error;
  /**
   * The run, as far as its call tells of it: its status is the one that it closes with, `failed` or `cancelled`; its output, its end and
   * its times but `createdAt` are null. `nelkap.get(run.id)` has them.
   */
  readonly run: Run;
  /** What the run had saved when it began to close, in the order of its history. */
  readonly steps: readonly SavedStep[];
}

/** `retries` counts for the workflow's code outside steps and is the default of its steps; `timeout` is the whole run's. */
export interface WorkflowOptions<Payload> extends Defaults {
  name: string;
  /** How long a silent call keeps its run (default 5 minutes, at least 5 seconds). */
  lease?: Duration;
  /** Events that cancel the workflow's runs; `if` says which, and sees `run` too: `payload.id == run.payload.id`. */
  cancelOn?: EventTrigger | readonly EventTrigger[];
  /**
   * One run per key: the first run that claims the key goes on, the others end as skipped. A function of the payload alone,
   * which gives a text of at most 512 bytes; where it throws or gives none the run fails.
   */
  once?: (payload: Payload) => string;
  /**
   * Called when a run has failed or timed out, after its undos. It is code outside steps like the function, with steps of its own,
   * whose names begin with `onFailure: ` in the run; what it throws is tried again as the function's code is. `step.undo` and
   * `step.restart` are refused in it.
   */
  onFailure?: (failure: Failure<Payload>, context: WorkflowContext) => unknown;
  /** As `onFailure`, when a run was cancelled; its steps' names begin with `onCancel: `. */
  onCancel?: (cancelled: Omit<Failure<Payload>, 'error'>, context: WorkflowContext) => unknown;
}

/** What the function is given: the schema's output, else what the triggers hand over. */
type Given<Schema, On> = [Schema] extends [never]
  ? FromTrigger<On>
  : Schema extends StandardSchemaV1
    ? StandardSchemaV1.InferOutput<Schema>
    : never;

/** Refuses unknown keys in a trigger, which inference would let pass. */
type Strict<On> = On extends readonly unknown[]
  ? { readonly [I in keyof On]: Strict<On[I]> }
  : On extends { event: unknown }
    ? Only<On, keyof EventTrigger>
    : On extends { schedule: unknown }
      ? Only<On, keyof ScheduleTrigger>
      : Only<On, keyof WebhookTrigger>;
type Only<T, Keys> = { [K in Exclude<keyof T, Keys>]: never };

declare const wrongPayload: unique symbol;
/** Shown by the compiler: the function's argument is annotated as something that does not arrive. */
export interface WrongPayload<Problem, Arrives> {
  readonly [wrongPayload]: [Problem, Arrives];
}

/** `unknown` when a function of Payload can take what arrives. */
type Accepts<Arrives, Payload, Schema> = [Schema] extends [never]
  ? unknown extends Payload
    ? unknown
    : unknown extends Arrives
      ? [Payload] extends [Stored<Payload>]
        ? unknown
        : WrongPayload<'a payload arrives as JSON, that is as', Stored<Payload>>
      : [Arrives] extends [Payload]
        ? unknown
        : WrongPayload<'the trigger gives', Arrives>
  : Schema extends StandardSchemaV1<infer Input, unknown>
    ? [Input] extends [Stored<Input>]
      ? [Arrives] extends [Payload]
        ? unknown
        : WrongPayload<'the schema gives', Arrives>
      : WrongPayload<'a payload arrives as JSON; the schema must take', Stored<Input>>
    : never;

/** See `Nelkap.workflow`. */
export type DefineWorkflow = <
  Schema extends StandardSchemaV1 = never,
  const On extends Trigger | readonly Trigger[] = never,
  Payload = Given<Schema, On>,
  Output = unknown,
>(
  options: string | (WorkflowOptions<Payload> & { on?: On & Strict<On>; payload?: Schema }),
  fn: ((payload: Payload, context: WorkflowContext) => Output) &
    Accepts<Given<Schema, On>, NoInfer<Payload>, Schema> &
    Savable<Awaited<Output>>,
) => Workflow<
  [Schema] extends [never] ? Payload : StandardSchemaV1.InferInput<Schema>,
  Stored<Awaited<Output>>
>;
