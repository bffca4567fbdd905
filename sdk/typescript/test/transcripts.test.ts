import { expect, test } from 'vitest';
import type { Effect, Input, Part } from '../src/core/effect.js';
import type { CallMessage, Level, StepName } from '../src/core/message.js';
import { Playing } from '../src/core/playing.js';
import { Encoded, stringify } from '../src/core/text.js';
import { encodeError, stepError } from '../src/core/thrown.js';
import { encode } from '../src/core/value.js';
import { isStepError } from '../src/errors.js';
import { fixtures, handlers, type Language, type Write } from './fixture.js';
import { bare, type Line, type Transcript, transcripts, wholeCall } from './transcript.js';

const instants = { startedAt: '2026-01-01T00:00:00.000Z', endedAt: '2026-01-01T00:00:00.000Z' };

/** Carries out a playing's effects as a transcript has it: the world does only what the lines say. */
class Stage {
  /** What came out and was not asked for by a line yet. */
  readonly out: unknown[] = [];
  private readonly playing: Playing;
  private readonly bodies = new Map<string, { id: number; attempt: number }>();
  private readonly code = new Map<
    number,
    { resolve: (value: unknown) => void; reject: (error: Error) => void; body?: (log: Write) => void }
  >();
  private steps = 0;
  private saving: unknown;

  constructor(
    private readonly transcript: Transcript,
    private readonly message: CallMessage,
    nonce: string,
    isVerifying = false,
  ) {
    const part = message.ending?.reason === 'cancelled' ? 'onCancel' : 'onFailure';
    const handler = Object.keys(handlers[transcript.workflow] ?? {}).includes(part) ? part : undefined;
    this.playing = new Playing(message, { nonce, manifest: '', retries: 4, handler, isVerifying });
    this.apply({ on: 'start', late: false, connected: true });
  }

  apply(input: Input): void {
    for (const effect of this.playing.apply(input)) this.carryOut(effect);
  }

  private carryOut(effect: Effect): void {
    switch (effect.do) {
      case 'play':
        return this.play(effect.part);
      case 'rest':
        setImmediate(() => this.apply({ on: 'rested' }));
        return;
      case 'fetch':
        this.out.push({ sdk: 'fetch', after: effect.after });
        return;
      case 'body':
      case 'check':
        this.bodies.set(`${effect.name} ${effect.number}`, effect);
        this.out.push({ sdk: effect.do, name: effect.name, number: effect.number, attempt: effect.attempt });
        this.code.get(effect.id)?.body?.((...line) => this.log(effect, undefined, ...line));
        return;
      case 'save':
        return effect.pause ? undefined : this.send();
      case 'release':
        return this.release(effect);
      // The code of a transcript does nothing beside its steps.
      case 'allow':
        return this.message.ending && this.apply({ on: 'allowance over' });
      case 'answer':
        this.out.push({ sdk: 'answer', message: wire(effect.message) });
        return;
      case 'verified': {
        const { error, ...message } = wire(effect.message) as { error?: { name: string } };
        const named = error === undefined ? message : { ...message, error: { name: error.name } };
        this.out.push({ sdk: 'verified', message: named });
        return;
      }
      case 'end':
        this.out.push({ sdk: 'end', message: { ...this.playing.fence, end: bareEnd(effect.message) } });
        return;
      default:
    }
  }

  /** What a server's saver does: one save under way. */
  send(): void {
    const save = this.playing.nextSave();
    if (save === null) return;
    this.saving = save;
    this.out.push({ sdk: 'save', message: wire(save) });
  }

  private log(
    step: (StepName & { attempt: number }) | undefined,
    part: Part,
    level: Level,
    message: string,
    given?: object,
  ): void {
    const fields = given === undefined ? {} : { fields: new Encoded(JSON.stringify(given)) };
    this.playing.log(() => ({ at: '2026-01-01T00:00:00.000Z', level, message, ...fields }), step, part);
  }

  private play(part: Part): void {
    const ids = new Map<Promise<unknown>, number>();
    const prefix = part === undefined ? '' : `${part}: `;
    const ask: Language['ask'] = (name, ask, body, was) => {
      const id = this.steps++;
      const promise = new Promise((resolve, reject) =>
        this.code.set(id, { resolve, reject, ...(body !== undefined && { body }) }),
      );
      ids.set(promise, id);
      this.apply({ on: 'asked', id, name: prefix + name, was, ask, part });
      return promise;
    };
    const combine: Language['combine'] = (how, promises) => {
      const of = promises.map((promise) => ids.get(promise) as number);
      this.apply({ on: 'combined', id: this.steps++, how, of, part });
      return (Promise[how] as (of: unknown[]) => Promise<unknown>).call(Promise, promises);
    };
    const language: Language = {
      ask,
      combine,
      restart: (payload) => {
        this.apply({ on: 'restarted', payload: encode(payload, 'payload') });
        return new Promise(() => {});
      },
      log: (...line) => this.log(undefined, part, ...line),
      payload: this.message.run.payload,
      retries: this.transcript.retries ?? 4,
    };
    const { workflow } = this.transcript;
    const fn = part === undefined ? fixtures[workflow] : handlers[workflow]?.['onFailure'];
    Promise.resolve(fn?.(language)).then(
      (output: unknown) => this.apply({ on: 'completed', output: encode(output, 'output'), part }),
      (error: unknown) =>
        this.apply({ on: 'failed', error: encodeError(error), retriable: !isStepError(error), part }),
    );
  }

  private release({ id, entry }: Effect & { do: 'release' }): void {
    if (entry.status === 'completed') this.code.get(id)?.resolve(entry.output);
    else this.code.get(id)?.reject(stepError(entry.error, entry.name, entry.attempts ?? 0, entry.kind));
  }

  given(line: Line): void {
    if (line['app'] !== undefined) return this.bodyEnded(line);
    switch (line['server'] ?? line['world']) {
      case 'saved':
        this.saving = undefined;
        return this.apply({ on: 'saved', outcome: line.message });
      case 'page':
        return this.apply({ on: 'page', ...line.message });
      case 'ended':
        return this.apply({ on: 'delivered' });
      case 'news':
        return this.apply({ ...line.message, on: 'news' });
      case 'connection closed':
        return this.apply({ on: 'disconnected' });
      case 'api unreachable':
        this.apply({ on: 'unsent' });
        return this.apply({ on: 'silent' });
      case 'time':
        return this.later();
      default:
    }
  }

  private later(): void {
    if (this.saving !== undefined) this.apply({ on: 'unsent' });
    this.send();
  }

  private bodyEnded(line: Line): void {
    const body = this.bodies.get(`${line['name']} ${line['number']}`);
    if (body === undefined) throw new Error(`no body ${line['name']} runs`);
    const { id, attempt } = body;
    const on = line['app'] as 'returned' | 'threw' | 'found';
    if (on !== 'threw') {
      const output = 'output' in line ? encode(line['output'], 'result') : undefined;
      return this.apply({ on, id, attempt, output, ...instants });
    }
    const error = new Encoded(JSON.stringify(line['error']));
    const retriable = line['retriable'] !== false;
    this.apply({
      on: 'threw',
      id,
      attempt,
      error,
      retriable,
      retryAfterMs: line['retryAfterMs'] as number,
      ...instants,
    });
  }
}

function wire(message: unknown): unknown {
  return bare(JSON.parse(stringify(message)));
}

function bareEnd(message: object): unknown {
  const { nonce: _, ...end } = wire(message) as { nonce?: string };
  return end;
}

/** What an SDK does not see. */
const skipped: ReadonlySet<unknown> = new Set(['run', 'event', 'cancel', 'restart']);

/** Long enough for the code to come to rest after everything that it waits for. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
}

async function play(transcript: Transcript): Promise<void> {
  let stage: Stage | undefined;
  let calls = 0;
  for (const [at, line] of transcript.lines.entries()) {
    await settle();
    if (line['sdk'] !== undefined) {
      const { lost: _, ...expected } = line;
      expect(stage?.out.shift(), `line ${at + 1}`).toEqual(bare(expected));
      continue;
    }
    if (skipped.has(line['server'] ?? line['world'])) continue;
    expect(stage?.out ?? [], `nothing more before line ${at + 1}`).toEqual([]);
    if (line['server'] === 'call') {
      stage = new Stage(transcript, wholeCall(line.message, transcript.workflow), `$nonce${++calls}`);
    } else if (line['server'] === 'verify') {
      stage = new Stage(transcript, wholeCall(line.message, transcript.workflow), '', true);
    } else if (line['world'] === 'process killed') stage = undefined;
    else stage?.given(line);
  }
  await settle();
  expect(stage?.out ?? [], 'nothing more after the last line').toEqual([]);
}

test.each(transcripts)('$file: $title', play);

test('every transcript is played', () => {
  expect(transcripts.length).toBeGreaterThanOrEqual(54);
});
