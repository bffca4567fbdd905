import type { Duration } from './duration.js';

/** Marks errors across copies of this module: a bundler may load the SDK twice, where `instanceof` fails. */
const kind: symbol = Symbol.for('nelkap.error.v1');

function marked(error: unknown, mark: string): boolean {
  try {
    return typeof error === 'object' && error !== null && (error as Record<symbol, unknown>)[kind] === mark;
  } catch {
    return false;
  }
}

/** Thrown in a step or workflow: no further attempt. */
export class NonRetriableError extends Error {
  override name = 'NonRetriableError';
}

/** Thrown in a step or workflow: the next attempt comes after that time. */
export class RetryAfterError extends Error {
  override name = 'RetryAfterError';
  readonly retryAfter: Duration | Date;
  constructor(message: string, retryAfter: Duration | Date, options?: ErrorOptions) {
    super(message, options);
    this.retryAfter = retryAfter;
  }
}

/**
 * What a step's last failure is when it reaches the workflow: has the thrown error's name, message, stack, cause and
 * own fields. Uncaught, it ends the run: its attempts are used up already.
 */
export class StepError extends Error {
  /** The step's name. */
  readonly step: string = '';
  /** How many attempts were made. */
  readonly attempts: number = 0;
}

/** A step that was cut off too often while it ran (by a crash, a deploy or a host's time limit). */
export class StepCutOffError extends StepError {
  override name = 'StepCutOffError';
}

/** A step that runs at most once and was cut off while it ran: whether it took effect is not known. */
export class StepInterruptedError extends StepError {
  override name = 'StepInterruptedError';
}

/** An attempt that took longer than the step's `timeout`. Its function can't be stopped; its `signal` is aborted. Also a child that took longer than the `timeout` of its `invoke`. */
export class TimeoutError extends Error {
  override name = 'TimeoutError';
}

/** The payload does not fit the workflow's schema; `issues` has each message, with the path of what is wrong. */
export class PayloadError extends NonRetriableError {
  override name = 'PayloadError';
  readonly issues: readonly { readonly message: string; readonly path: string }[];
  constructor(message: string, issues: readonly { readonly message: string; readonly path: string }[]) {
    super(message);
    this.issues = issues;
  }
}

/** A result, or another value for the server, that JSON can't hold; the message names the path. No further attempt. */
export class ResultError extends NonRetriableError {
  override name = 'ResultError';
}

/** What `result` throws when the run failed: has the run's error as its `cause`. */
export class RunFailedError extends Error {
  override name = 'RunFailedError';
  /** The run's id. */
  readonly run: string;
  constructor(run: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.run = run;
  }
}

/** What `result` and `step.invoke` throw when the run was cancelled. */
export class RunCancelledError extends Error {
  override name = 'RunCancelledError';
  /** The run's id. */
  readonly run: string;
  constructor(run: string) {
    super(`run ${run} was cancelled`);
    this.run = run;
  }
}

/** What `result` and `step.invoke` throw when the run was skipped because another run owns its key. */
export class RunSkippedError extends Error {
  override name = 'RunSkippedError';
  /** The id of the run that owns the key, where the server says it. */
  readonly owner: string;
  constructor(run: string, owner: string) {
    super(`run ${run} was skipped${owner === '' ? '' : `: run ${owner} owns its key`}`);
    this.owner = owner;
  }
}

/** What the API answered instead of success, or that it did not answer. */
export class NelkapError extends Error {
  override name = 'NelkapError';
  /** A stable word, such as `run_unknown` or `unreachable`. */
  readonly code: string;
  /** The HTTP status; 0 where no answer came. */
  readonly status: number;
  /** What went wrong and what to do. */
  readonly detail: string;
  constructor(code: string, status: number, detail: string, options?: ErrorOptions) {
    super(detail, options);
    this.code = code;
    this.status = status;
    this.detail = detail;
  }
}

for (const [type, mark] of [
  [NonRetriableError, 'final'],
  [RetryAfterError, 'after'],
  [StepError, 'step'],
] as const) {
  Object.defineProperty(type.prototype, kind, { value: mark });
}

/** True for an error after which no further attempt makes sense. */
export function isFinal(error: unknown): boolean {
  return marked(error, 'final');
}

/** Says of an error that a step has thrown it for good: no further attempt of the code makes sense (S2). */
export function markStepError(error: Error): void {
  Object.defineProperty(error, kind, { value: 'step' });
}

export function isStepError(error: unknown): boolean {
  return marked(error, 'step');
}

export function isRetryAfter(error: unknown): error is RetryAfterError {
  return marked(error, 'after');
}
