import type { Combinator, Part } from '../core/effect.js';
import type { Entry, Wait } from '../core/message.js';
import { stepError } from '../core/thrown.js';
import { bytesOf, type Encoded } from '../core/text.js';
import { encode } from '../core/value.js';
import { type Duration, instant, milliseconds } from '../duration.js';
import { ResultError } from '../errors.js';
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
import { type AskedStep, asSteps } from './call.js';
import {
  boundedMs,
  checkBytes,
  checkIf,
  checkName,
  checkRetries,
  definitionOf,
  optionalMs,
  outside,
  refuseGenerator,
  refuseOthers,
} from './definition.js';
import { checkKey } from './once.js';
import { type RunScope, type Scope, within } from './scope.js';

/** Promise 16: a sleep has at most a year. */
const SLEEP_MS_MAX = 366 * 86_400_000;

/** Promise 16. */
const PAYLOAD_BYTES_MAX = 4 * 1024 * 1024;

/** What the server takes of a wait: all of it together fits into a save. */
const EVENTS_MAX = 16;
const PATHS_MAX = 10;
const PATH_BYTES_MAX = 256;
/** What leads nowhere would match nothing in a test, and fail the wait at the server. */
const PATH = /^payload(\.[^.\p{Cc}]+)*$/u;
/** A value of a match, as JSON. */
const VALUE_BYTES_MAX = 4 * 1024;

type Options = { was?: string } | undefined;

/** The steps of whichever run `locate` finds. */
export function stepsOf(locate: () => Scope | undefined): Step {
  const step =
    <Args extends unknown[]>(
      kind: string,
      make: (scope: RunScope, name: string, ...args: Args) => AskedStep,
    ) =>
    (name: string, ...args: Args): Promise<any> =>
      promised(() => {
        checkName(name, 'a step');
        const did = `step '${name}' was started`;
        const scope = scopeFor(locate(), `step.${kind}('${name}')`, did, 'start it beside');
        const { call, part } = scope;
        const asked = make(scope, fullName(part, name), ...args);
        const was = asked.was === undefined ? undefined : fullName(part, asked.was);
        return call.step({ ...asked, was, part });
      });
  return {
    run: step('run', runStep),
    sleep: step('sleep', sleepStep),
    sleepUntil: step('sleepUntil', sleepUntilStep),
    waitForEvent: step('waitForEvent', eventStep),
    invoke: step('invoke', invokeStep),
    claim: step('claim', claimStep),
    callback: step('callback', callbackStep),
    undo: step('undo', undoStep),
    restart: (payload: unknown) => promised(() => restart(locate(), payload)),
    all: (steps) => combined('all', steps),
    race: (steps) => combined('race', steps),
    any: (steps) => combined('any', steps),
  } as Step;
}

/** What is wrong with what the code asks for is the promise's error, as all that a step throws. */
function promised(ask: () => Promise<any>): Promise<any> {
  try {
    return ask();
  } catch (error) {
    const refused = Promise.reject(error);
    // Awaited later or never, it must not end the process (D6).
    refused.catch(() => {});
    return refused;
  }
}

/** The code outside steps that asks. In a step's function `did` is what it must not do, and `instead` what to do. */
function scopeFor(scope: Scope | undefined, what: string, did: string, instead: string): RunScope {
  if (scope === undefined) throw outside(what);
  if (scope.kind === 'run') return scope;
  throw new TypeError(`${did} in step '${scope.name}': steps can't hold steps, ${instead}`);
}

/** A step's name as the run has it: a handler's steps are told apart from the function's (protocol, section 5). */
function fullName(part: Part, name: string): string {
  if (part !== undefined) return checkName(`${part}: ${name}`, 'a step');
  if (!/^on(Failure|Cancel): /.test(name)) return name;
  throw new TypeError(
    `the step '${name}' has a name that steps of handlers have: give it one that begins otherwise`,
  );
}

/** `step.run(name, fn)` or `step.run(name, options, fn)`. */
function runStep({ call }: RunScope, name: string, ...args: unknown[]): AskedStep {
  const what = `step '${name}'`;
  const fn = args.length > 1 ? args[1] : args[0];
  const options = ((args.length > 1 ? args[0] : undefined) ?? {}) as StepOptions<unknown>;
  if (typeof fn !== 'function') throw new TypeError(`${what} needs its function as the last argument`);
  refuseGenerator(fn, `the function of ${what}`);
  refuseOthers(options, ['retries', 'timeout', 'check', 'atMostOnce', 'was'], what);
  const { check, atMostOnce: once = false, retries } = options;
  if (check !== undefined && typeof check !== 'function')
    throw new TypeError(`check of ${what} is no function`);
  if (check !== undefined) refuseGenerator(check, `check of ${what}`);
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

function sleepStep(_: RunScope, name: string, duration: Duration, options?: Options): AskedStep {
  const what = `the sleep '${name}'`;
  const delayMs = milliseconds(duration, what);
  if (delayMs > SLEEP_MS_MAX) throw tooLong(what);
  return waitStep(name, { kind: 'sleep', delayMs }, options, [], what);
}

function sleepUntilStep({ call }: RunScope, name: string, time: Date | string, options?: Options): AskedStep {
  const what = `the sleep '${name}'`;
  const until = instant(time, `the end of ${what}`);
  if (Date.parse(until) - call.clock.now() > SLEEP_MS_MAX) throw tooLong(what);
  return waitStep(name, { kind: 'sleep', until }, options, [], what);
}

function tooLong(what: string): RangeError {
  return new RangeError(
    `${what} takes more than a year: sleep several times, or start a run later with run(…, { at })`,
  );
}

function eventStep(_: RunScope, name: string, options: WaitOptions<string>): AskedStep {
  const what = `the wait '${name}'`;
  const { event, match, if: filter, since, timeout } = options ?? {};
  const names: readonly unknown[] = Array.isArray(event) ? event : [event];
  if (names.length === 0) throw new TypeError(`${what} needs the name of an event: give at least one`);
  if (names.length > EVENTS_MAX)
    throw new TypeError(`${what} names ${names.length} events: give at most ${EVENTS_MAX}`);
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
  const entries = Object.entries(match);
  if (entries.length > PATHS_MAX)
    throw new TypeError(`match of ${what} has ${entries.length} paths: give at most ${PATHS_MAX}`);
  for (const [path, value] of entries) {
    checkBytes(path, `a path in match of ${what}`, PATH_BYTES_MAX);
    const isLeaf =
      value === null ||
      (leaves.has(typeof value) && !Number.isNaN(value) && Math.abs(Number(value)) !== Infinity);
    if (!PATH.test(path) || !isLeaf)
      throw new TypeError(
        `match of ${what} has no plain value at '${path}': give a path such as 'payload.id' a text, number, boolean or null`,
      );
    checkBytes(JSON.stringify(value), `the value at '${path}' in match of ${what}`, VALUE_BYTES_MAX);
  }
  return { ...match };
}

function invokeStep(
  { call }: RunScope,
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
    payload: encodePayload(payload),
    timeoutMs: optionalMs(options?.timeout, `timeout of ${what}`),
  };
  return waitStep(name, wait, options, ['timeout'], what);
}

function claimStep(_: RunScope, name: string, key: string, options: ClaimOptions = {}): AskedStep {
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
      // 0 would be for ever.
      forMs: isWord ? undefined : Math.max(1, boundedMs(until, `until of ${what}`) as number),
    },
  };
}

function callbackStep(
  scope: RunScope,
  name: string,
  options: { timeout?: Duration; was?: string } = {},
): AskedStep {
  const what = `the callback '${name}'`;
  refuseOthers(options, ['timeout', 'was'], what);
  return {
    name,
    was: checkWas(options, what),
    ask: { op: 'callback', kind: 'callback', timeoutMs: optionalMs(options.timeout, `timeout of ${what}`) },
    receive: (entry) => callbackOf(scope, entry),
  };
}

/** The wait is a step of its own, under the name that its callback has in the history. */
function callbackOf(scope: RunScope, { name, number, output }: Entry): Callback<unknown> {
  const { url, token } = (output ?? {}) as Partial<Callback<unknown>>;
  if (url === undefined || token === undefined) throw otherCallback(name);
  let waiting: Promise<unknown> | undefined;
  const ask = (): Promise<unknown> => {
    const what = `wait() of the callback '${name}'`;
    const { call, part } = scopeFor(within(scope), what, `${what} was called`, 'call it beside');
    const wait = waitStep(name, { kind: 'callback', of: number }, undefined, [], '');
    return (waiting ??= call.step({ ...wait, part, receive: payloadOf }));
  };
  return { url, token, wait: () => promised(ask) };
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

function undoStep({ part }: RunScope, name: string, fn: unknown): AskedStep {
  const what = `the undo '${name}'`;
  if (part !== undefined)
    throw new TypeError(inHandler(part, what, 'there is nothing left that would undo it'));
  if (typeof fn !== 'function') throw new TypeError(`${what} needs its function as the last argument`);
  refuseGenerator(fn, `the function of ${what}`);
  const body = { fn: fn as (context: StepContext) => unknown, timeoutMs: undefined };
  return { name, ask: { op: 'undo', kind: 'undo' }, body };
}

function restart(from: Scope | undefined, payload: unknown): Promise<never> {
  const what = 'step.restart';
  const { call, part } = scopeFor(from, what, `${what} was called`, 'call it when the step has ended');
  if (part !== undefined)
    throw new TypeError(inHandler(part, what, 'start a run of it with nelkap.run in a step'));
  return call.restart(encodePayload(payload));
}

function encodePayload(payload: unknown): Encoded | undefined {
  const encoded = encode(payload, 'payload');
  const bytes = bytesOf(encoded?.text ?? '');
  if (bytes <= PAYLOAD_BYTES_MAX) return encoded;
  throw new ResultError(
    `payload has ${bytes} bytes, more than ${PAYLOAD_BYTES_MAX}: store it elsewhere, and give where it is`,
  );
}

function inHandler(part: Part, what: string, instead: string): string {
  return `${what} was asked for in ${part}, where the run has ended: ${instead}`;
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
  const [first] = steps;
  if (first === undefined) return result;
  const { call, part } = first;
  if (steps.length < promises.length || steps.some((step) => step.call !== call)) return result;
  const ids = steps.map((step) => step.id);
  asSteps.set(result, { call, part, id: call.combine(how, ids, part) });
  return result;
}
