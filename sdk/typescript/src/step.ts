import type { Duration } from './duration.js';
import type { EventName, StoredEvent } from './event.js';
import type { Savable, Stored } from './json.js';
import type { Log } from './log.js';
import type { Nelkap } from './nelkap.js';
import type { Args } from './run.js';
import type { Defaults, Workflow } from './workflow.js';

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

/** `was`: the step's name before it was renamed. What is saved under it is found; unsaved, the step has its new name. */
export interface Renamed {
  was?: string;
}

/**
 * `retries` is how often the step is tried again after it threw (default: the workflow's, else 4). `timeout` limits one
 * attempt, and its check for itself; JavaScript can't stop a function, so the next attempt may overlap one that ignores its
 * `signal`.
 */
export interface StepOptions<Found = never> extends Defaults, Renamed {
  /**
   * Looks for what an earlier attempt left. Runs before every attempt but the step's first start: after a cut, a throw, a
   * timeout, and first in a replay. What it gives, unless it is `undefined`, is saved as the result, and the function does
   * not run; where it throws, the attempt has failed. It leaves no mark itself: `run` and `emit` are refused in it.
   */
  check?: ((context: StepContext) => Awaitable<Found | undefined>) & Savable<Found>;
  /** The step runs at most once, without retries: cut off, it throws `StepInterruptedError` instead of running again. */
  atMostOnce?: boolean;
}

export interface WaitOptions<Name extends EventName> extends Renamed {
  event: Name | readonly Name[];
  /** Paths and the values they must have: `{ 'payload.id': order.id }`. */
  match?: Record<string, string | number | boolean | null>;
  /** A CEL condition on the event (`payload`, `event`) and its run (`run.id`, `run.key`, `run.payload`). Never build it from data, which could change what it says: that is for `match`. */
  if?: string;
  /** How long to wait; without it as long as the run may take. */
  timeout?: Duration;
  /** Events count from the run's creation on (`run`, the default), or from when the wait was registered (`wait`). */
  since?: 'run' | 'wait';
}

/** `timeout`: how long the child may take; then it is cancelled, and `invoke` throws a `TimeoutError`. */
export interface InvokeOptions extends Renamed {
  timeout?: Duration;
}

/** `until`: how long the key is held. For ever (the default), until its run has failed, or so long after its run's end. */
export interface ClaimOptions extends Renamed {
  until?: 'forever' | 'failed' | Duration;
}

/** `timeout`: how long the callback may be called, from now on. */
export interface CallbackOptions extends Renamed {
  timeout?: Duration;
}

/** A URL that ends a wait, for whoever is given it. */
export interface Callback<Payload> {
  readonly url: string;
  readonly token: string;
  /** The payload that was posted to the URL, or null where the time ran out. Called again it is the same promise. */
  wait(): Promise<Payload | null>;
}

/**
 * What a workflow is written in. Each step has a name of up to 256 bytes of UTF-8, under which its result is saved; a name
 * used again is counted. When the run's code is played again, saved steps give their results at once, in the order in which
 * they came, so that every race among steps has the same winner for ever. While a run does nothing but wait, no call is
 * open: code must wait for nothing else beside its steps.
 *
 * What is wrong with a step's arguments is its promise's error. Steps can't be started in the function of another step.
 */
export interface Step {
  /**
   * Runs `fn` once and saves its result.
   *
   * The result is what comes back after JSON, also the first time; `-0` becomes 0, and `undefined` in an array null. A
   * result that JSON can't hold fails the step without another attempt. An `fn` that throws is tried again; its last
   * error is thrown here as a `StepError`.
   */
  readonly run: {
    <T>(name: string, fn: StepFunction<T>): Promise<Stored<T>>;
    <T, Found = never>(
      name: string,
      options: StepOptions<Found>,
      fn: StepFunction<T>,
    ): Promise<Stored<T> | Stored<Exclude<Found, undefined>>>;
  };
  /** Sleeps at least so long, at most a year, by the server's clock. */
  readonly sleep: (name: string, duration: Duration, options?: Renamed) => Promise<void>;
  /** Sleeps until then, at most a year. A text has an offset from UTC, such as `Z`; a date alone is its midnight in UTC. */
  readonly sleepUntil: (name: string, time: Date | string, options?: Renamed) => Promise<void>;
  /**
   * The earliest event that fits and that no other wait of the run has had, or null when `timeout` ran out; `timeout: 0` gives
   * what is there already. The event that started the run does not count. A wait that lost a race stays open and may still
   * have an event, which a later wait then has not: give it a `timeout`.
   */
  readonly waitForEvent: <Name extends EventName>(
    name: string,
    options: WaitOptions<Name>,
  ) => Promise<StoredEvent<Name> | null>;
  /**
   * Starts a child run, once, and waits for its output. Throws what the child failed with as a `StepError`; a
   * `RunCancelledError`, `RunSkippedError` or `TimeoutError` where it ended so.
   */
  readonly invoke: <Input, Output>(
    name: string,
    workflow: Workflow<Input, Output>,
    ...args: Args<Input, InvokeOptions>
  ) => Promise<Output>;
  /**
   * Claims a key of up to 512 bytes for this run, in the scope of the workflow and the claim's name. False where another
   * run owns it: the code decides.
   */
  readonly claim: (name: string, key: string, options?: ClaimOptions) => Promise<boolean>;
  /** Makes a URL that someone outside may post a payload to, once, whether the code waits for it already or not. */
  readonly callback: <Payload = unknown>(
    name: string,
    options?: CallbackOptions,
  ) => Promise<Callback<Payload>>;
  /**
   * Says what undoes that which comes next in the code. When the run fails, times out or is cancelled, what it said is run, the last
   * first, one at a time; each as a step of its own, with its own idempotency key, tried again as the workflow's steps are. The
   * code is played for it once more, against its saved steps alone, so `fn` may use what they gave.
   *
   * One that fails does not keep the others from running. Say it before the step that it undoes, and let it bear that the step did
   * nothing; or after it, where nothing can come between.
   */
  readonly undo: (name: string, fn: (context: StepContext) => unknown) => Promise<void>;
  /**
   * Ends this playing of the run's code, and begins the run again with a new payload and no saved steps: a run that goes on for ever
   * keeps a short history. Its id and its key stay, its steps have new idempotency keys. The promise never settles. Refused in a step's
   * function and in `onFailure` and `onCancel`; a payload has at most 4 MiB.
   */
  readonly restart: (payload: unknown) => Promise<never>;
  /**
   * As `Promise.all`, and the server knows that the run waits for all of them: it is called once for a thousand. What
   * is given to it must not be waited for beside it. Members that are no steps make it `Promise.all` and no more.
   */
  readonly all: <const T extends readonly unknown[]>(
    steps: T,
  ) => Promise<{ -readonly [I in keyof T]: Awaited<T[I]> }>;
  /** As `Promise.race`; see `all`. */
  readonly race: <const T extends readonly unknown[]>(steps: T) => Promise<Awaited<T[number]>>;
  /** As `Promise.any`; see `all`. */
  readonly any: <const T extends readonly unknown[]>(steps: T) => Promise<Awaited<T[number]>>;
}
