import type { Combinator } from '../core/effect.js';
import type { Entry, Wait } from '../core/message.js';
import { stepError } from '../core/thrown.js';
import { encode } from '../core/value.js';
import { type Duration, instant, milliseconds } from '../duration.js';
import type {
  Callback,
  ClaimOptions,
  InvokeOptions,
  Step,
  StepContext,
  StepOptions,
  WaitOptions,
} from '../step.js';
import type { Workflow } from '../workflow.js';
import { type AskedStep, asSteps, type Call } from './call.js';
import {
  checkIf,
  checkName,
  checkRetries,
  definitionOf,
  optionalMs,
  outside,
  refuseOthers,
} from './definition.js';
import { checkKey } from './once.js';
import type { Scope } from './scope.js';

/** Promise 16: a sleep has at most a year. */
const SLEEP_DAYS_MAX = 366;
const SLEEP_MS_MAX = SLEEP_DAYS_MAX * 86_400_000;

type Options = { was?: string } | undefined;

/** The steps of whichever run `locate` finds. */
export function stepsOf(locate: () => Scope | undefined): Step {
  /** Asks for a step of the run. What is wrong with it is the promise's error, as all that a step throws. */
  const step =
    <Args extends unknown[]>(kind: string, make: (call: Call, name: string, ...args: Args) => AskedStep) =>
    (name: string, ...args: Args): Promise<any> => {
      try {
        const call = callFor(locate(), kind, checkName(name, 'a step'));
        return call.step(make(call, name, ...args));
      } catch (error) {
        const refused = Promise.reject(error);
        // Awaited later or never, it must not end the process (D6).
        refused.catch(() => {});
        return refused;
      }
    };
  return {
    run: step('run', runStep),
    sleep: step('sleep', sleepStep),
    sleepUntil: step('sleepUntil', sleepUntilStep),
    waitForEvent: step('waitForEvent', eventStep),
    invoke: step('invoke', invokeStep),
    claim: step('claim', claimStep),
    callback: step('callback', callbackStep),
    all: (steps) => combined('all', steps),
    race: (steps) => combined('race', steps),
    any: (steps) => combined('any', steps),
  } as Step;
}

function callFor(scope: Scope | undefined, kind: string, name: string): Call {
  if (scope === undefined) throw outside(`step.${kind}('${name}')`);
  if (scope.kind === 'run') return scope.call;
  throw new TypeError(
    `step '${name}' was started in step '${scope.name}': steps can't hold steps, start it beside`,
  );
}

/** `step.run(name, fn)` or `step.run(name, options, fn)`. */
function runStep(call: Call, name: string, ...args: unknown[]): AskedStep {
  const what = `step '${name}'`;
  const fn = args.length > 1 ? args[1] : args[0];
  const options = ((args.length > 1 ? args[0] : undefined) ?? {}) as StepOptions<unknown>;
  if (typeof fn !== 'function') throw new TypeError(`${what} needs its function as the last argument`);
  refuseOthers(options, ['retries', 'timeout', 'check', 'atMostOnce', 'was'], what);
  const { check, atMostOnce: once = false, retries } = options;
  if (check !== undefined && typeof check !== 'function')
    throw new TypeError(`check of ${what} is no function`);
  if (once && retries !== undefined && retries !== 0)
    throw new TypeError(`${what} runs at most once, so that it has no retries: leave one of the two out`);
  return {
    name,
    was: checkWas(options, what),
    ask: {
      op: 'run',
      kind: 'run',
      retries: once ? 0 : (checkRetries(retries, `retries of ${what}`) ?? call.retries),
      check: check !== undefined,
      once,
    },
    body: {
      fn: fn as (context: StepContext) => unknown,
      check,
      timeoutMs: optionalMs(options.timeout, `timeout of ${what}`),
    },
  };
}

function sleepStep(_: Call, name: string, duration: Duration, options?: Options): AskedStep {
  const what = `the sleep '${name}'`;
  const delayMs = milliseconds(duration, what);
  if (delayMs > SLEEP_MS_MAX) throw tooLong(what);
  return waitStep(name, { kind: 'sleep', delayMs }, options, [], what);
}

function sleepUntilStep(call: Call, name: string, time: Date | string, options?: Options): AskedStep {
  const what = `the sleep '${name}'`;
  const until = instant(time, `the end of ${what}`);
  if (Date.parse(until) - call.clock.now() > SLEEP_MS_MAX) throw tooLong(what);
  return waitStep(name, { kind: 'sleep', until }, options, [], what);
}

function tooLong(what: string): RangeError {
  return new RangeError(
    `${what} takes more than a year (${SLEEP_DAYS_MAX} days): sleep several times, or start a run later with run(…, { at })`,
  );
}

function eventStep(_: Call, name: string, options: WaitOptions<string>): AskedStep {
  const what = `the wait '${name}'`;
  const { event, match, if: filter, since, timeout } = options ?? {};
  const names: readonly unknown[] = Array.isArray(event) ? event : [event];
  if (names.length === 0) throw new TypeError(`${what} needs the name of an event: give at least one`);
  if (since !== undefined && since !== 'run' && since !== 'wait')
    throw new TypeError(`since of ${what} is neither 'run' nor 'wait'`);
  const wait: Wait = {
    kind: 'event',
    events: names.map((each) => checkName(each, `an event of ${what}`)),
    match: match === undefined ? undefined : checkMatch(match, what),
    if: checkIf(filter, what),
    since,
    timeoutMs: optionalMs(timeout, `timeout of ${what}`),
  };
  return waitStep(name, wait, options, ['event', 'match', 'if', 'since', 'timeout'], what);
}

type Match = Record<string, string | number | boolean | null>;

function checkMatch(match: Match, what: string): Match {
  const leaves = new Set(['string', 'number', 'boolean']);
  for (const [path, value] of Object.entries(match)) {
    const isLeaf =
      value === null ||
      (leaves.has(typeof value) && !Number.isNaN(value) && Math.abs(Number(value)) !== Infinity);
    if (path !== '' && isLeaf) continue;
    throw new TypeError(
      `match of ${what} has no plain value at '${path}': give a path such as 'payload.id' a text, a number, true, false or null`,
    );
  }
  return { ...match };
}

function invokeStep(
  call: Call,
  name: string,
  workflow: Workflow,
  payload?: unknown,
  options?: InvokeOptions,
): AskedStep {
  const what = `the invoke '${name}'`;
  const definition = definitionOf(workflow);
  call.hooks?.names(definition);
  const app = definition.app();
  const wait: Wait = {
    kind: 'invoke',
    workflow: definition.name,
    app: app === call.message.run.app ? undefined : app,
    payload: encode(payload, 'payload'),
    timeoutMs: optionalMs(options?.timeout, `timeout of ${what}`),
  };
  return waitStep(name, wait, options, ['timeout'], what);
}

function claimStep(_: Call, name: string, key: string, options: ClaimOptions = {}): AskedStep {
  const what = `the claim '${name}'`;
  refuseOthers(options, ['until', 'was'], what);
  const { until = 'forever' } = options;
  const isWord = until === 'forever' || until === 'failed';
  return {
    name,
    was: checkWas(options, what),
    ask: {
      op: 'claim',
      kind: 'claim',
      key: checkKey(key, `the key of ${what}`),
      until: until === 'failed' ? until : undefined,
      forMs: isWord ? undefined : milliseconds(until, `until of ${what}`),
    },
  };
}

function callbackStep(
  call: Call,
  name: string,
  options: { timeout?: Duration; was?: string } = {},
): AskedStep {
  const what = `the callback '${name}'`;
  refuseOthers(options, ['timeout', 'was'], what);
  return {
    name,
    was: checkWas(options, what),
    ask: { op: 'callback', kind: 'callback', timeoutMs: optionalMs(options.timeout, `timeout of ${what}`) },
    receive: (entry) => callbackOf(call, entry),
  };
}

/** The wait is a step of its own, under the name that its callback has in the history. */
function callbackOf(call: Call, { name, number, output }: Entry): Callback<unknown> {
  const { url, token } = (output ?? {}) as Partial<Callback<unknown>>;
  if (url === undefined || token === undefined) throw otherCallback(name);
  let waiting: Promise<unknown> | undefined;
  const wait = (): Promise<unknown> =>
    (waiting ??= call.step({
      ...waitStep(name, { kind: 'callback', of: number }, undefined, [], ''),
      receive: payloadOf,
    }));
  return { url, token, wait };
}

function payloadOf({ name, output }: Entry): unknown {
  const { payload = null, url } = (output ?? {}) as { payload?: unknown; url?: unknown };
  if (url !== undefined) throw otherCallback(name);
  return payload;
}

/** Both steps of a callback are of one kind: a change of the code may make one take the other's number (S7). */
function otherCallback(name: string): Error {
  const message = `The callbacks of the name '${name}' come in another order than the run has them: give the new ones a name of their own.`;
  return stepError({ name: 'StepKindError', message }, name, 1);
}

function waitStep(name: string, wait: Wait, options: Options, known: string[], what: string): AskedStep {
  refuseOthers(options, [...known, 'was'], what);
  return { name, was: checkWas(options, what), ask: { op: 'wait', ...wait } };
}

function checkWas(options: Options, what: string): string | undefined {
  return options?.was === undefined ? undefined : checkName(options.was, `the former name of ${what}`);
}

type Combine = (of: readonly unknown[]) => Promise<unknown>;

/** The native combination and, where all that is combined are steps of one run, its tree for the server (H4). */
function combined(how: Combinator, given: readonly unknown[]): Promise<any> {
  const promises = Array.from(given);
  const result = (Promise[how] as Combine).call(Promise, promises);
  result.catch(() => {});
  const steps = promises.flatMap((promise) => asSteps.get(promise as object) ?? []);
  const call = steps[0]?.call;
  if (call === undefined || steps.length < promises.length || steps.some((step) => step.call !== call))
    return result;
  asSteps.set(result, {
    call,
    id: call.combine(
      how,
      steps.map((step) => step.id),
    ),
  });
  return result;
}
