import type { Ask, Combinator } from '../src/core/effect.js';
import type { Level } from '../src/core/message.js';
import { Encoded } from '../src/core/text.js';

/** What the workflows of transcripts are written in: asks for a step, and combines what was asked for. */
export interface Language {
  ask: (name: string, ask: Ask, body?: (log: Write) => void, was?: string) => Promise<any>;
  combine: (how: Combinator, promises: Promise<unknown>[]) => Promise<unknown>;
  /** Never settles. */
  restart: (payload: unknown) => Promise<never>;
  log: Write;
  payload: unknown;
  /** How often a step is tried again. */
  retries: number;
}

export type Write = (level: Level, message: string, fields?: object) => void;

const hour = 3_600_000;

function step(
  { ask, retries }: Language,
  name: string,
  { was, ...more }: { check?: boolean; once?: boolean; was?: string } = {},
  body?: (log: Write) => void,
): Promise<any> {
  return ask(name, { op: 'run', kind: 'run', retries, ...more }, body, was);
}

function undo({ ask }: Language, name: string, was?: string): Promise<unknown> {
  return ask(name, { op: 'undo', kind: 'undo' }, undefined, was);
}

function sleep({ ask }: Language, name: string, delayMs: number): Promise<unknown> {
  return ask(name, { op: 'wait', kind: 'sleep', delayMs });
}

function invoke({ ask }: Language): Promise<unknown> {
  return ask('child', { op: 'wait', kind: 'invoke', workflow: 'one step', payload: new Encoded('7') });
}

export const fixtures = {
  'one step': (l: Language) => step(l, 'a'),
  'two steps': async (l: Language) => [await step(l, 'a'), await step(l, 'b')],
  'same name': async (l: Language) => [await step(l, 'a'), await step(l, 'a'), await step(l, 'a')],
  renamed: async (l: Language) => [await step(l, 'b', { was: 'a' }), await step(l, 'a')],
  'undo renamed': async (l: Language) => {
    await undo(l, 'b', 'a');
    return step(l, 'a');
  },
  caught: (l: Language) => step(l, 'a').catch((error: Error) => error.message),
  throws: async (l: Language) => {
    await step(l, 'a');
    throw new Error('no');
  },
  nothing: async (_: Language) => {},
  'side by side': (l: Language) => Promise.all([step(l, 'a'), step(l, 'b')]),
  race: (l: Language) => Promise.race([step(l, 'a'), step(l, 'b')]),
  sleep: async (l: Language) => {
    const x = await step(l, 'a');
    await sleep(l, 'nap', hour);
    return [x, await step(l, 'b')];
  },
  'wait for event': async ({ ask }: Language) => {
    const events = ['order.approved'];
    const match = { 'payload.id': 'o_1' };
    const event = await ask('approved', { op: 'wait', kind: 'event', events, match, timeoutMs: hour });
    return event === null ? null : event.payload;
  },
  invoke: (l: Language) => invoke(l),
  'invoke caught': (l: Language) => invoke(l).catch((error: Error) => error.message),
  claim: ({ ask }: Language) => ask('one', { op: 'claim', kind: 'claim', key: 'k1' }),
  callback: async ({ ask }: Language) => {
    const { token } = await ask('approval', { op: 'callback', kind: 'callback', timeoutMs: hour });
    const { payload } = await ask('approval', { op: 'wait', kind: 'callback', of: 1 });
    return [token, payload];
  },
  check: (l: Language) => step(l, 'a', { check: true }),
  'at most once': (l: Language) =>
    step({ ...l, retries: 0 }, 'a', { once: true }).catch((error: Error) => error.name),
  'sleep beside': (l: Language) => Promise.all([step(l, 'a'), sleep(l, 'nap', 60_000).then(() => 'slept')]),
  'sleep race': (l: Language) => Promise.race([step(l, 'a'), sleep(l, 'nap', 60_000).then(() => 'slept')]),
  undo: async (l: Language) => {
    await step(l, 'a');
    await undo(l, 'give back');
    return step(l, 'b');
  },
  'undo both': async (l: Language) => {
    await undo(l, 'one');
    await undo(l, 'two');
    return step(l, 'b');
  },
  'on failure': (l: Language) => step(l, 'a'),
  restart: async (l: Language) => {
    await step(l, 'a');
    return l.payload === 0 ? l.restart(1) : l.payload;
  },
  log: async (l: Language) => {
    l.log('info', 'before', { n: 1 });
    await step(l, 'a', {}, (log) => log('warn', 'inside'));
    l.log('info', 'after');
  },
  'all sleeps': (l: Language) =>
    l.combine('all', [sleep(l, 'x', 60_000), sleep(l, 'y', 120_000)]).then(() => 'both'),
};

/** Handlers of those that have some. */
export const handlers: Record<string, { onFailure?: (l: Language) => unknown }> = {
  'on failure': { onFailure: (l) => step(l, 'tell') },
};
