import type { Encoded } from '../core/text.js';
import { stringify } from '../core/text.js';
import { encode } from '../core/value.js';
import { NelkapError, NonRetriableError } from '../errors.js';
import { instant } from '../duration.js';
import type { Emitted, NewEvent } from '../event.js';
import type { RunOptions } from '../run.js';
import { checkName, type Definition, optionalMs, refuseOthers } from './definition.js';
import { type Address, askedPauseMs, exchange, isPassing, REQUEST_LIMIT_MS } from './http.js';
import { typeId } from './key.js';
import { optionalKey } from './once.js';
import { pause, pauseMs } from './pause.js';
import { shared } from './process.js';
import type { Scope, StepScope } from './scope.js';
import type { Settings } from './settings.js';

/** For so long a request that may succeed later is tried again. */
const TRIES_MS_MAX = 30_000;
const PAUSE_MS_MAX = 5_000;
/** The API's. */
const EVENT_ID_BYTES_MAX = 256;

/** A send as the API takes it; `send` is added in a step, an id outside. */
interface Sent {
  kind: 'run' | 'event';
  /** The workflow's or event's name. */
  name: string;
  /** Whether the user gave a key or an id. */
  isKeyed: boolean;
  body: { id?: string | undefined; payload: Encoded | undefined } & Record<string, unknown>;
}

export interface Started {
  id: string;
  workflow: string;
  created: boolean;
  payloadDiffers?: true;
}

/** What a send needs of its client. */
export interface Sender {
  readonly settings: Settings;
  readonly scope: Scope | undefined;
}

export async function sendRun(
  sender: Sender,
  definition: Definition,
  payload: unknown,
  options: RunOptions = {},
): Promise<Started> {
  const what = `the run of workflow '${definition.name}'`;
  refuseOthers(options, ['key', 'keyFor', 'at', 'delay'], what);
  sender.scope?.call.hooks?.names(definition);
  const { key, keyFor, at, delay } = options;
  if (at !== undefined && delay !== undefined)
    throw new TypeError(`${what} has both 'at' and 'delay': give one of them`);
  if (keyFor !== undefined && key === undefined)
    throw new TypeError(`${what} has 'keyFor' without 'key': give both`);
  const sent: Sent = {
    kind: 'run',
    name: definition.name,
    isKeyed: key !== undefined,
    body: {
      workflow: definition.name,
      app: definition.app(),
      payload: encode(payload, 'payload'),
      key: optionalKey(key, `the key of ${what}`),
      keyForMs: optionalMs(keyFor, `keyFor of ${what}`),
      at: at === undefined ? undefined : instant(at, `at of ${what}`),
      delayMs: optionalMs(delay, `delay of ${what}`),
    },
  };
  return (await send(sender, '/v1/runs', [sent], false)) as Started;
}

export async function sendEvents(
  sender: Sender,
  given: NewEvent | readonly NewEvent[],
): Promise<Emitted | Emitted[]> {
  const isList = Array.isArray(given);
  const list = (isList ? given : [given]) as readonly NewEvent<string>[];
  if (list.length === 0) return [];
  const sent = list.map((event, at): Sent => {
    refuseOthers(event, ['event', 'payload', 'id', 'at'], 'an event');
    const name = checkName(event?.event, 'an event');
    const body = {
      event: name,
      payload: encode(event.payload, isList ? `[${at}].payload` : 'payload'),
      id: optionalKey(event.id, `the id of event '${name}'`, EVENT_ID_BYTES_MAX),
      at: event.at === undefined ? undefined : instant(event.at, `at of event '${name}'`),
    };
    return { kind: 'event', name, isKeyed: event.id !== undefined, body };
  });
  return (await send(sender, '/v1/events', sent, isList)) as Emitted | Emitted[];
}

function send(sender: Sender, path: string, list: readonly Sent[], isList: boolean): Promise<unknown> {
  const { scope, settings } = sender;
  if (scope !== undefined && isLost(scope)) return lost(settings, list);
  if (isFrozen(scope)) {
    const handles = list.map(pretended);
    return Promise.resolve(isList ? handles : handles[0]);
  }
  if (scope?.kind === 'step' && scope.abandoned) return Promise.reject(abandoned(scope));
  if (scope?.kind === 'step' && scope.isCheck && !scope.closed) return Promise.reject(checkSends(scope));
  if (scope?.kind === 'step' && !scope.closed) return sendInStep(scope, settings, path, list, isList);
  warnOfPlace(sender, list);
  for (const { kind, body } of list) body.id ??= typeId(kind === 'run' ? 'run' : 'evt', shared().clock.now());
  return deliver(addressFor(sender), path, bodyOf(list, isList));
}

/** Whether the code was under way when its call was superseded, or its step when its call was over: it must leave no mark (H7). */
function isLost({ kind, call, closed }: Scope): boolean {
  return !closed && (kind === 'step' ? call.isOver : call.isSuperseded);
}

/** What outlives its call must not lose its sends without a word. */
function lost(settings: Settings, list: readonly Sent[]): Promise<never> {
  const what = `${callOf(list)} came with the context of a call that is over, and is not sent`;
  warnOnce(
    settings,
    `${what}: make what outlives a call, such as an interval or a pool, outside workflows and steps`,
  );
  return forEver();
}

/** Whether the code must leave no mark: it is played against saved steps alone. */
export function isFrozen(scope: Scope | undefined): boolean {
  return scope?.kind === 'run' && scope.isFrozen;
}

/** What code that must leave no mark is given for a send: nothing is sent. */
function pretended({ kind, name, body }: Sent): Started | Emitted {
  const now = shared().clock.now();
  return kind === 'run'
    ? { id: typeId('run', now), workflow: name, created: true }
    : { id: body.id ?? typeId('evt', now), event: name, created: true };
}

function bodyOf(list: readonly Sent[], isList: boolean): string {
  return isList ? stringify(list.map((sent) => sent.body)) : stringify(list[0]?.body);
}

/** Inside a run, requests go where the run's saves go (C9). */
export function addressFor({ scope, settings }: Sender): Address {
  return scope === undefined ? settings.address : scope.call.destination.requests;
}

/** In a step each send names its call and its place, from which the server makes its key (K1). */
async function sendInStep(
  scope: StepScope,
  settings: Settings,
  path: string,
  list: readonly Sent[],
  isList: boolean,
): Promise<unknown> {
  const { name, number } = scope;
  const unkeyed = list.filter((sent) => !sent.isKeyed).map((sent) => `${sent.kind} ${sent.name}`);
  const twice = unkeyed.find((place) => scope.sending.has(place));
  if (twice !== undefined) throw poison(scope, twice);
  for (const sent of list) {
    const key = `${sent.kind} ${sent.name}`;
    const place = (scope.places.get(key) ?? 0) + 1;
    scope.places.set(key, place);
    sent.body['send'] = { ...scope.call.fence, step: { name, number }, place };
  }
  for (const place of unkeyed) scope.sending.add(place);
  try {
    return await deliver(addressFor({ scope, settings }), path, bodyOf(list, isList), scope.signal);
  } catch (error) {
    return refused(scope, unkeyed[0] ?? path, error);
  } finally {
    for (const place of unkeyed) scope.sending.delete(place);
  }
}

function refused(scope: StepScope, what: string, error: unknown): Promise<never> {
  const code = error instanceof NelkapError && error.status === 409 ? error.code : '';
  if (code === 'superseded' || code === 'ended') {
    const { call, nonce } = scope.call.fence;
    scope.call.news({ call, nonce, status: code });
    return forEver();
  }
  throw code === 'ambiguous_send' ? poison(scope, what) : error;
}

/** User code never sees its call end (H7). Nothing refers to this promise but the code that waits for it. */
function forEver(): Promise<never> {
  return new Promise(() => {});
}

function abandoned({ name }: StepScope): NelkapError {
  const detail = `step '${name}' took too long, and its next attempt may be under way: what it still sends is refused`;
  return new NelkapError('abandoned', 0, detail);
}

/** A repeat runs the check first: what both send could not be told apart by its place (K1). */
function checkSends({ name }: StepScope): TypeError {
  return new TypeError(`the check of step '${name}' only looks: send from the step's function`);
}

/** Fails the step even where its function catches the error: a repeat could send twice. */
function poison(scope: StepScope, what: string): Error {
  scope.poison ??= new NonRetriableError(
    `Step '${scope.name}' sends '${what}' twice at the same time, so a repeat could not tell them apart: ` +
      'give each an id or a key, or await the first before the second.',
  );
  return scope.poison;
}

async function deliver(address: Address, path: string, body: string, signal?: AbortSignal): Promise<unknown> {
  return persist(signal, () =>
    exchange(address, shared().clock, { method: 'POST', path, body, limitMs: REQUEST_LIMIT_MS, signal }),
  );
}

/** Tries again while a try may succeed: the same request, so that the server finds what a lost answer left (K6). */
export async function persist<T>(
  signal: AbortSignal | undefined,
  request: () => Promise<T>,
  isHeld?: boolean,
): Promise<T> {
  const { clock } = shared();
  let startedAt = clock.now();
  for (let fails = 0; ; fails++) {
    try {
      return await request();
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      // What the server held a request for was no failure.
      if (isHeld && fails === 0) startedAt = clock.now();
      if (!isPassing(error) || clock.now() - startedAt > TRIES_MS_MAX) throw error;
      const askedMs = Math.min(askedPauseMs(error), PAUSE_MS_MAX);
      await pause(clock, Math.max(askedMs, pauseMs(fails, PAUSE_MS_MAX)), signal);
    }
  }
}

const warned: WeakMap<object, Set<string>> = new WeakMap();

/** Outside steps a send acts every time the code runs (promise 9): says so once for each place. */
function warnOfPlace({ scope, settings }: Sender, list: readonly Sent[]): void {
  const sends = callOf(list);
  if (scope === undefined) {
    if (!settings.isDev || shared().bodies === 0) return;
    return warnOnce(
      settings,
      `${sends} was called while a step runs, but not by a step: if a step did it, use the nelkap of its context`,
    );
  }
  const { workflow } = scope.call.message.run;
  if (scope.kind === 'run') {
    const place = `workflow '${workflow}'${callSite()}`;
    return warnOnce(
      settings,
      `${sends} outside a step in ${place} acts every time the code runs: place it in nelkap.step.run`,
    );
  }
  warnOnce(
    settings,
    `${sends} came after its step '${scope.name}' in workflow '${workflow}' had ended, and acts every time: await it in the step`,
  );
}

function callOf(list: readonly Sent[]): string {
  const what = list.map((sent) => `'${sent.name}'`).join(', ');
  return `${list[0]?.kind === 'run' ? 'nelkap.run' : 'nelkap.emit'}(${what})`;
}

function warnOnce(settings: Settings, message: string): void {
  const said = warned.get(settings) ?? new Set();
  warned.set(settings, said);
  // Bounded: names may come from data.
  if (said.has(message) || said.size >= 1_000) return;
  said.add(message);
  settings.log.warn(message);
}

/** ` at file:line:column` of the code that called, where the runtime tells. */
function callSite(): string {
  try {
    // The path is in both forms of a frame, with and without file://. Bundled, there may be no URL.
    const ours = new URL('..', import.meta.url).pathname;
    const frames = new Error().stack?.split('\n').slice(1) ?? [];
    const frame = frames.find((line) => !line.includes(ours) && !line.includes('node:internal'));
    const place = /\(?([^\s()]+:\d+:\d+)\)?$/.exec(frame ?? '')?.[1];
    return place === undefined ? '' : ` at ${place}`;
  } catch {
    return '';
  }
}
