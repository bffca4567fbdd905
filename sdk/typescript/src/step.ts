import type { Savable, Stored } from './json.js';
import type { Log } from './log.js';
import type { Nelkap } from './nelkap.js';
import type { Defaults } from './workflow.js';

export interface StepContext {
  /** The same for every attempt of this step in this run. */
  readonly idempotencyKey: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** Aborted when the step's `timeout` runs out, the run is cancelled or times out, or its call is superseded. */
  readonly signal: AbortSignal;
  readonly log: Log;
  /** The client, bound to this step: for runtimes without AsyncLocalStorage. */
  readonly nelkap: Nelkap;
}

export type Awaitable<T> = T | PromiseLike<T>;

/** The type of `step.run`'s function; wrappers of `step.run` take this. */
export type StepFunction<T> = ((context: StepContext) => Awaitable<T>) & Savable<T>;

/**
 * `retries` is how often the step is tried again after it threw (default: the workflow's, else 4). `timeout` limits one
 * attempt; JavaScript can't stop a function, so the next attempt may overlap one that ignores its `signal`.
 */
export interface StepOptions extends Defaults {}

export interface Step {
  /**
   * Runs `fn` once and saves its result. When the run's code is played again, the saved result comes back at once.
   *
   * The result is what comes back after JSON, also the first time; `-0` becomes 0, and `undefined` in an array null. A
   * result that JSON can't hold fails the step without another attempt. An `fn` that throws is tried again; its last
   * error is thrown here as a `StepError`. A name has up to 256 bytes of UTF-8; used again, it is counted.
   */
  readonly run: {
    <T>(name: string, fn: StepFunction<T>): Promise<Stored<T>>;
    <T>(name: string, options: StepOptions, fn: StepFunction<T>): Promise<Stored<T>>;
  };
}
