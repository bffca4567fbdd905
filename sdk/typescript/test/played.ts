import type { Ask, Effect, Input } from '../src/core/effect.js';
import type { Entry } from '../src/core/message.js';
import { Playing } from '../src/core/playing.js';
import { Encoded } from '../src/core/text.js';
import { wholeCall } from './transcript.js';

export const instants = { startedAt: 'x', endedAt: 'x' };
export const one: Encoded = new Encoded('1');

/** A playing with short words for what happens to it. */
export class Played {
  readonly playing: Playing;
  private ids = 0;

  /** What the beginning brought. */
  readonly begun: Effect[];

  constructor(
    parts: { run?: object; call?: object; steps?: object; limits?: object; ending?: object } = {},
    retries = 4,
    once?: string,
    late = false,
  ) {
    const { run, call, steps, limits, ending } = parts;
    const message = wholeCall({ call: { id: 'c', token: 't', ...call }, run, steps, ending }, 'w');
    this.playing = new Playing({ ...message, limits }, { nonce: 'n', manifest: 'm', retries });
    this.begun = this.apply({ on: 'start', late, connected: true, once });
  }

  apply(input: Input): Effect[] {
    return this.playing.apply(input);
  }

  ask(...names: string[]): Effect[] {
    return names.flatMap((name) => this.askFor(name, { op: 'run', kind: 'run', retries: 4 }));
  }

  /** Asks for a step of any kind. */
  askFor(name: string, ask: Ask, was?: string): Effect[] {
    return this.apply({ on: 'asked', id: this.ids++, name, was, ask });
  }

  rest(): Effect[] {
    return this.apply({ on: 'rested' });
  }

  returned(id: number, attempt = 1): Effect[] {
    return this.apply({ on: 'returned', id, attempt, output: one, ...instants });
  }

  /** Sends what there is to save, and answers it. */
  save(items: object[], more: object = {}): Effect[] {
    this.playing.nextSave();
    return this.saved(items, more);
  }

  /** Answers the save that was sent. */
  saved(items: object[], more: object = {}): Effect[] {
    return this.apply({
      on: 'saved',
      outcome: { status: 'accepted', items: items as never, entries: [], ending: null, ...more },
    });
  }
}

export function done(effects: Effect[]): string[] {
  return effects.map((effect) => effect.do);
}

export function answerOf(effects: Effect[]): any {
  const found = effects.find((effect) => effect.do === 'answer' || effect.do === 'end');
  return found === undefined ? undefined : JSON.parse(JSON.stringify(found.message));
}

/** Asks of each kind. */
export const asks = {
  sleep: { op: 'wait', kind: 'sleep', delayMs: 60_000 },
  event: { op: 'wait', kind: 'event', events: ['e'] },
  invoke: { op: 'wait', kind: 'invoke', workflow: 'child' },
  claim: { op: 'claim', kind: 'claim', key: 'k' },
  check: { op: 'run', kind: 'run', retries: 4, check: true },
  once: { op: 'run', kind: 'run', retries: 0, once: true },
} satisfies Record<string, Ask>;

export function entryOf(entry: number, kind: string, name: string, more: object = {}): Entry {
  return { entry, kind, name, number: 1, status: 'completed', ...more };
}
