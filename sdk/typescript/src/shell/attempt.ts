import type { Settled } from '../core/effect.js';
import type { StepName } from '../core/message.js';
import { encodeError } from '../core/thrown.js';
import { encode } from '../core/value.js';
import { isFinal, ResultError, TimeoutError } from '../errors.js';
import type { Nelkap } from '../nelkap.js';
import type { StepContext } from '../step.js';
import type { Call } from './call.js';
import { shared } from './process.js';
import { retryAfterMs } from './retry-after.js';
import { close, type Scope, type StepScope, stepScope } from './scope.js';

type Outcome = Settled extends infer Each
  ? Each extends unknown
    ? Omit<Each, 'id' | 'attempt'>
    : never
  : never;

export interface AttemptOptions {
  call: Call;
  step: StepName;
  tries: number;
  /** The step's function or, where `isCheck`, its check. */
  fn: (context: StepContext) => unknown;
  isCheck: boolean;
  timeoutMs: number | undefined;
  /** The step's idempotency key (S8). */
  key: Promise<string>;
  bind: (scope: Scope) => Nelkap;
  within: <T>(scope: Scope, fn: () => T) => T;
  /** Called once, with how the attempt went. */
  settle: (outcome: Outcome) => void;
}

/** A running attempt of a step. */
export interface Attempt {
  abort(reason: Error): void;
  /** The call is over: nobody waits for the attempt any more. */
  forget(): void;
}

/** Runs a step's function, or its check, once. A timeout settles the attempt at once; the function can't be stopped (S6). */
export function attempt(options: AttemptOptions): Attempt {
  const { call, step, isCheck, timeoutMs } = options;
  const process = shared();
  const controller = new AbortController();
  const scope = stepScope({ call, ...step, signal: controller.signal, isCheck });
  const instant = (): string => new Date(call.clock.now()).toISOString();
  const startedAt = instant();
  let isSettled = false;
  const settle = (how: () => Omit<Outcome, 'startedAt' | 'endedAt'>): void => {
    if (isSettled) return;
    isSettled = true;
    close(scope);
    forget();
    options.settle({ ...how(), startedAt, endedAt: instant() } as Outcome);
  };
  let isCounted = true;
  const forget = (): void => {
    cancel();
    if (isCounted) process.bodies -= 1;
    isCounted = false;
  };
  const timeOut = (): void => {
    scope.abandoned = true;
    const error = new TimeoutError(`${whatOf(scope)} took longer than its timeout of ${timeoutMs} ms`);
    settle(() => threw(error, scope));
    controller.abort(error);
  };
  const cancel = timeoutMs === undefined ? () => {} : call.clock.after(timeoutMs, timeOut);
  process.bodies += 1;
  body(options, scope).then(
    (value) => settle(() => returned(value, scope)),
    (error) => settle(() => threw(error, scope)),
  );
  return { abort: (reason) => controller.abort(reason), forget };
}

async function body(options: AttemptOptions, scope: StepScope): Promise<unknown> {
  const { call, tries, fn, key, bind, within } = options;
  const context: StepContext = {
    idempotencyKey: await key,
    attempt: tries,
    signal: scope.signal,
    log: call.logFor(scope, tries),
    nelkap: bind(scope),
  };
  // Aborted while the key was made: no body starts any more (H7). What an aborted body throws is no failure.
  if (scope.signal.aborted) throw scope.signal.reason;
  return within(scope, () => fn(context));
}

/** A result that JSON can't hold fails the step, without another attempt: its function ran (S3). */
function returned(value: unknown, scope: StepScope): Omit<Outcome, 'startedAt' | 'endedAt'> {
  if (scope.poison !== undefined) return threw(scope.poison, scope);
  const { isCheck, name } = scope;
  try {
    return {
      on: isCheck ? 'found' : 'returned',
      output: encode(value, isCheck ? 'find' : 'result'),
    } as Outcome;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    const message = isCheck
      ? `What the check of step '${name}' found can't be saved: ${why}`
      : `The step '${name}' ran, but its result can't be saved: ${why}`;
    return threw(new ResultError(message, { cause: error }), scope);
  }
}

function threw(thrown: unknown, scope: StepScope): Omit<Outcome, 'startedAt' | 'endedAt'> {
  const error = scope.poison ?? thrown;
  const retriable = !isFinal(error);
  return { on: 'threw', error: encodeError(error), retriable, retryAfterMs: retryAfterMs(error) } as Outcome;
}

function whatOf({ isCheck, name }: StepScope): string {
  return `${isCheck ? 'the check of ' : ''}step '${name}'`;
}
