import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Ask, Combinator, Effect, Input } from '../src/core/effect.js';
import type { EndMessage, Entry, Item, OpenWait, Save, StepName } from '../src/core/message.js';
import { Playing } from '../src/core/playing.js';
import { stringify } from '../src/core/text.js';
import { encodeError, stepError } from '../src/core/thrown.js';
import { encode } from '../src/core/value.js';
import { asks, instants } from './played.js';
import { wholeCall } from './transcript.js';

/**
 * H1 as a property: a drawn workflow of steps of every kind, combined and in sequence, is played against a drawn world, in
 * which bodies end, waits come to their end, answers of saves are lost or overtaken by news, and calls are given up. Whatever
 * happened, what the code was shown is the same in each of its calls, and when it is played again from any prefix of its history.
 */

/** A drawn workflow. A leaf gives its name; `sequence` gives the list, the others what the promises of that name give. */
type Program =
  | { kind: 'step' | 'sleep' | 'event' | 'invoke' | 'claim' | 'check' }
  | { kind: 'sequence' | Combinator | 'settled' | 'own all' | 'own race' | 'own any'; of: Program[] };

const leaf = fc
  .constantFrom('step', 'step', 'sleep', 'event', 'invoke', 'claim', 'check')
  .map((kind) => ({ kind }));
const { program } = fc.letrec<{ program: Program }>((tie) => ({
  program: fc.oneof(
    { maxDepth: 3, depthIdentifier: 'program' },
    leaf as fc.Arbitrary<Program>,
    fc.record({
      kind: fc.constantFrom('sequence', 'all', 'race', 'any', 'settled', 'own all', 'own race', 'own any'),
      of: fc.array(tie('program'), { minLength: 1, maxLength: 3 }),
    }) as fc.Arbitrary<Program>,
  ),
}));

/** What a playing was asked, told and shown. */
class Playback {
  readonly playing: Playing;
  /** The numbers of the entries that the code was shown, in order. */
  readonly shown: number[] = [];
  readonly running: (Effect & { do: 'body' | 'check' })[] = [];
  readonly due: StepName[] = [];
  answer: EndMessage | undefined;
  private readonly code = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  private readonly ids = new Map<unknown, number>();
  private asked = 0;

  constructor(
    private readonly program: Program,
    entries: readonly Entry[],
    waiting: readonly OpenWait[],
    nonce: string,
  ) {
    const message = wholeCall({ call: { id: 'c', token: 't' }, steps: { entries, waiting } }, 'w');
    this.playing = new Playing(message, { nonce, manifest: '', retries: 0 });
    this.apply({ on: 'start', late: false, connected: true });
  }

  apply(input: Input): void {
    for (const effect of this.playing.apply(input)) this.carryOut(effect);
  }

  private carryOut(effect: Effect): void {
    switch (effect.do) {
      case 'play':
        this.play(this.program, 's').then(
          (output) => this.apply({ on: 'completed', output: encode(output, 'output') }),
          (error) => this.apply({ on: 'failed', error: encodeError(error), retriable: false }),
        );
        return;
      case 'rest':
        setImmediate(() => this.apply({ on: 'rested' }));
        return;
      case 'body':
      case 'check':
        this.running.push(effect);
        return;
      case 'pause':
        this.due.push(effect);
        return;
      case 'release':
        return this.release(effect);
      case 'answer':
        this.answer = JSON.parse(stringify(effect.message));
        return;
      default:
    }
  }

  private release({ id, entry }: Effect & { do: 'release' }): void {
    this.shown.push(entry.entry);
    if (entry.status === 'completed') this.code.get(id)?.resolve(entry.output);
    else this.code.get(id)?.reject(stepError(entry.error, entry.name, 1, entry.kind));
  }

  private async play(of: Program, name: string): Promise<unknown> {
    return this.promise(of, name);
  }

  private promise(program: Program, name: string): Promise<unknown> {
    if (!('of' in program)) return this.step(name, program.kind === 'step' ? step : asks[program.kind]);
    if (program.kind === 'sequence') return this.sequence(program.of, name);
    const promises = program.of.map((each, at) => this.promise(each, `${name}.${at}`));
    if (program.kind === 'settled') return Promise.allSettled(promises).then((all) => all.map(outcome));
    const how = program.kind.replace('own ', '') as Combinator;
    const result = native[how](promises);
    result.catch(() => {});
    const of = promises.map((promise) => this.ids.get(promise));
    if (program.kind !== how && of.every((id) => id !== undefined)) {
      this.ids.set(result, this.asked);
      this.apply({ on: 'combined', id: this.asked++, how, of });
    }
    return result;
  }

  private async sequence(of: Program[], name: string): Promise<unknown> {
    const results: unknown[] = [];
    for (const [at, each] of of.entries()) {
      results.push(await this.promise(each, `${name}.${at}`).catch((error: Error) => error.message));
    }
    return results;
  }

  private step(name: string, ask: Ask): Promise<unknown> {
    const id = this.asked++;
    const promise = new Promise((resolve, reject) => this.code.set(id, { resolve, reject }));
    promise.catch(() => {});
    this.ids.set(promise, id);
    this.apply({ on: 'asked', id, name, ask });
    return promise;
  }
}

const step: Ask = { op: 'run', kind: 'run', retries: 0 };
const native = {
  all: (of: Promise<unknown>[]): Promise<unknown> => Promise.all(of),
  race: (of: Promise<unknown>[]): Promise<unknown> => Promise.race(of),
  any: (of: Promise<unknown>[]): Promise<unknown> => Promise.any(of),
};

function outcome(settled: PromiseSettledResult<unknown>): unknown {
  return settled.status === 'fulfilled' ? settled.value : (settled.reason as Error).message;
}

/** A server's part: a history, open waits, and what lies between it and the playing. */
class World {
  readonly history: Entry[] = [];
  open: OpenWait[] = [];
  private sent: { save: Save; outcome?: Extract<Input, { on: 'saved' }>['outcome'] } | undefined;

  constructor(private readonly draw: (below: number) => number) {}

  /** One thing that may happen; false where nothing can. */
  happen(playback: Playback): boolean {
    const save = this.sent === undefined ? playback.playing.nextSave() : null;
    if (save !== null) this.sent = { save };
    const can = [
      ...playback.running.map((_, at) => () => this.bodyEnds(playback, at)),
      ...playback.due.map(() => () => playback.apply({ on: 'due', ...(playback.due.shift() as StepName) })),
      ...this.open.map((_, at) => () => this.waitEnds(at)),
      ...(this.sent === undefined ? [] : [() => this.commit(), () => this.answerSave(playback)]),
      ...(this.sent?.outcome === undefined ? [] : [() => this.loseAnswer(playback)]),
      ...(this.hasNews(playback) ? [() => this.tell(playback)] : []),
    ];
    if (can.length === 0) return false;
    can[this.draw(can.length)]?.();
    return true;
  }

  private bodyEnds(playback: Playback, at: number): void {
    const [{ do: part, id, name, attempt }] = playback.running.splice(at, 1) as [
      Effect & { do: 'body' | 'check' },
    ];
    const how = this.draw(4);
    const body = { id, attempt, ...instants };
    if (how === 0) {
      const error = encodeError(new Error(`${name} threw`));
      return playback.apply({ on: 'threw', error, retriable: false, ...body });
    }
    if (part === 'check') {
      const output = how === 1 ? encode(name, 'find') : undefined;
      return playback.apply({ on: 'found', output, ...body });
    }
    playback.apply({ on: 'returned', output: encode(name, 'result'), ...body });
  }

  /** A wait's end, whoever listens. */
  waitEnds(at: number): void {
    const [{ kind, name, number }] = this.open.splice(at, 1) as [OpenWait];
    const fails = kind === 'invoke' && this.draw(3) === 0;
    const failed = { status: 'failed', error: { name: 'Error', message: `${name} threw` } } as const;
    const completed = { status: 'completed', output: name } as const;
    this.append({ kind, name, number, ...(fails ? failed : completed) });
  }

  private append(entry: Omit<Entry, 'entry'>): number {
    return this.history.push({ entry: this.history.length + 1, ...entry });
  }

  /** The save takes effect; its answer is still on its way. */
  private commit(): void {
    if (this.sent === undefined || this.sent.outcome !== undefined) return;
    const { seen, items } = this.sent.save;
    const outcomes = items.map((item) => this.item(item));
    const own = new Set(outcomes.map(({ entry }) => entry));
    const entries = this.history.filter(({ entry }) => entry > seen && !own.has(entry));
    this.sent.outcome = { status: 'accepted', items: outcomes, entries, ending: null };
  }

  private item(item: Item): {
    status: any;
    entry?: number;
    output?: unknown;
    again?: boolean;
    checkInMs?: number;
  } {
    const { kind, name, number } = item;
    const there = this.history.find((entry) => entry.name === name);
    switch (item.op) {
      case 'start':
        return { status: 'started', again: this.draw(2) === 0, checkInMs: this.draw(2) };
      case 'wait':
        if (there !== undefined) return { status: 'stands' };
        this.register(item);
        return { status: 'waiting' };
      case 'claim':
      case 'callback': {
        const output = this.draw(2) === 0;
        const entry = there?.entry ?? this.append({ kind, name, number, status: 'completed', output });
        return { status: 'saved', entry, output: this.history[entry - 1]?.output };
      }
      default: {
        const { output, error } = JSON.parse(stringify(item));
        const saved = { kind, name, number, status: item.op, output, error } as Omit<Entry, 'entry'>;
        return { status: 'saved', entry: there?.entry ?? this.append(saved) };
      }
    }
  }

  register({ kind, name, number }: OpenWait): void {
    const isKnown = [...this.open, ...this.history].some((each) => each.name === name);
    if (!isKnown) this.open.push({ kind, name, number });
  }

  private answerSave(playback: Playback): void {
    this.commit();
    const outcome = this.sent?.outcome;
    this.sent = undefined;
    if (outcome !== undefined) playback.apply({ on: 'saved', outcome });
  }

  /** The save took effect, and is sent again. */
  private loseAnswer(playback: Playback): void {
    this.sent = undefined;
    playback.apply({ on: 'unsent' });
  }

  private hasNews({ playing }: Playback): boolean {
    return playing.known !== undefined && playing.known < this.history.length;
  }

  /** News, of which some polls leave out what the process saved itself. */
  private tell(playback: Playback): void {
    const known = playback.playing.known ?? 0;
    const own = new Set(this.sent?.outcome?.items?.map(({ entry }) => entry));
    const entries = this.history.filter(({ entry }) => entry > known && !own.has(entry));
    playback.apply({ on: 'news', status: 'entries', entries });
  }

  /** The call is over, and with it what was on its way. */
  cutOff(): void {
    this.sent = undefined;
  }
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 4; turn++) await new Promise(setImmediate);
}

/** Rests until nothing more comes of itself: every entry that can be shown is. */
async function rest(playback: Playback): Promise<void> {
  for (let shown = -1; shown !== playback.shown.length; await settle()) shown = playback.shown.length;
}

/** Numbers below what is asked for, the same for one seed (mulberry32). */
function luck(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** Plays a run to its end, over as many calls as it takes. */
async function play(
  program: Program,
  draw: (below: number) => number,
): Promise<{ world: World; last: Playback }> {
  const world = new World(draw);
  let before: Playback | undefined;
  for (let calls = 1; calls < 200; calls++) {
    const playback = new Playback(program, [...world.history], [...world.open], `n${calls}`);
    const callEnds = calls < 20 && draw(4) === 0 ? draw(20) : Number.POSITIVE_INFINITY;
    for (let turn = 0; playback.answer === undefined && turn < callEnds; turn++) {
      if (turn > 1_000) throw new Error('the call does not end');
      await rest(playback);
      if (playback.answer === undefined && !world.happen(playback))
        throw new Error('nothing can happen any more');
    }
    world.cutOff();
    const isPrefix = before?.shown.every((entry, at) => entry === playback.shown[at]) ?? true;
    if (playback.shown.length >= (before?.shown.length ?? 0))
      expect(isPrefix, 'as in the call before').toBe(true);
    if (playback.shown.length >= (before?.shown.length ?? 0)) before = playback;
    const { type, register = [], waits = [] } = playback.answer ?? {};
    if (type === 'completed' || type === 'failed') return { world, last: playback };
    for (const item of register) world.register(item);
    if (type === 'suspended') {
      expect(waits.length).toBeGreaterThan(0);
      if (world.open.length > 0) world.waitEnds(draw(world.open.length));
    }
  }
  throw new Error('the run did not end');
}

test('whatever happens, the code is shown the same in each call and from each prefix of its history', async () => {
  await fc.assert(
    fc.asyncProperty(program, fc.integer(), async (drawn, seed) => {
      const { world, last } = await play(drawn, luck(seed));
      for (let length = 0; length <= world.history.length; length++) {
        const again = new Playback(drawn, world.history.slice(0, length), [], 'again');
        await rest(again);
        const end = last.shown.findIndex((entry) => entry > length);
        expect(again.shown, `from entry ${length}`).toEqual(
          end === -1 ? last.shown : last.shown.slice(0, end),
        );
        if (length === world.history.length) expect(again.answer?.output).toEqual(last.answer?.output);
      }
    }),
    { numRuns: 500 },
  );
}, 120_000);
