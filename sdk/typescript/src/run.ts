import type { Duration } from './duration.js';

export type RunStatus = 'queued' | 'running' | 'waiting' | 'completed' | 'failed' | 'cancelled' | 'skipped';

export interface RunError {
  readonly name: string;
  readonly message: string;
  readonly stack?: string;
  readonly cause?: unknown;
}

/** A run as the API shows it. */
export interface Run {
  readonly id: string;
  readonly workflow: string;
  readonly app: string;
  readonly status: RunStatus;
  readonly payload: unknown;
  readonly output: unknown;
  readonly error: RunError | null;
  /** The event that started the run: its name and its id. */
  readonly event: string | null;
  readonly eventId: string | null;
  readonly key: string | null;
  readonly replayOf: string | null;
  readonly attempt: number;
  readonly createdAt: string;
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  readonly cancelRequestedAt: string | null;
  /** Why the run does not go on, and when it is looked at next. */
  readonly waitingFor: { readonly reason: string; readonly nextAt: string | null } | null;
}

export interface RunOptions {
  /** Only one run of the workflow has this key: a second start answers the first one's run. */
  key?: string;
  /** How long the key is held; for ever without it. */
  keyFor?: Duration;
  /** The run starts at this time, or at once where it has passed. A text has an offset from UTC, such as `Z`. */
  at?: Date | string;
  /** The run starts so long from now. */
  delay?: Duration;
}

export interface ReplayOptions {
  /** A step's name: what was saved before the first of that name is kept. Without it every step runs again. */
  from?: string;
  /** In the place of the original's payload. */
  payload?: unknown;
  /** Whether steps have the original's idempotency keys. Without it they do in a replay from a step, and not in a whole one. */
  keepKeys?: boolean;
  /** Whether waits find the events of the original again, which is the default, or only those after the replay began. */
  events?: 'original' | 'new';
}

/** A handle after it was saved. */
export interface SavedHandle {
  readonly id: string;
  readonly workflow: string;
  readonly created: boolean;
  readonly payloadDiffers?: true;
}

/** What `run` gives back; saved as a step's result it comes back as a SavedHandle. */
export interface RunHandle<Output = unknown> {
  readonly id: string;
  readonly workflow: string;
  /** False when the key had a run already, which this is then. */
  readonly created: boolean;
  /** There where that run has another payload than the one given now. */
  readonly payloadDiffers?: true;
  /**
   * Waits for the run's end. Throws `RunFailedError`, `RunCancelledError` or `RunSkippedError` where it ended so, and
   * `TimeoutError` when `timeout` ran out (the run goes on).
   */
  result(options?: ResultOptions): Promise<Output>;
  toJSON(): SavedHandle;
}

export interface ResultOptions {
  timeout?: Duration;
  signal?: AbortSignal;
}

/** The payload argument: optional where the workflow takes none. */
export type Args<Input, Options> = unknown extends Input
  ? [payload?: Input, options?: Options]
  : undefined extends Input
    ? [payload?: Input, options?: Options]
    : [payload: Input, options?: Options];
