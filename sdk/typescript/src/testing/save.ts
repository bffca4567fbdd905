import type { Entry, Item, ItemOutcome, Save, SaveOutcome, StepName } from '../core/message.js';
import { randomHex } from '../shell/process.js';
import type { Claims } from './claim.js';
import type { Process } from './process.js';
import { copyOf, failure, type WaitJson } from './state.js';
import type { World } from './world.js';

const FIRST_RETRY_MS = 1_000;
const RETRY_MS_MAX = 300_000;

type RunStep = Item & { op: 'start' | 'completed' | 'failed' };

/** Takes in what calls save: each item becomes an entry of the run's history, or is answered why not. */
export class Saves {
  private readonly world: World;
  private readonly claims: Claims;
  private readonly onCallback: (step: string) => void;

  constructor(world: World, claims: Claims, onCallback: (step: string) => void) {
    this.world = world;
    this.claims = claims;
    this.onCallback = onCallback;
  }

  save(process: Process, save: Save): SaveOutcome {
    const { run } = process;
    const { call } = save;
    if (run.hasEnded) return { call, status: 'ended' };
    if (run.process !== process) return { call, status: 'superseded' };
    const items: ItemOutcome[] = [];
    for (const item of save.items) {
      const outcome = this.item(process, item);
      if (outcome === undefined) return { call, status: 'ended' };
      items.push(outcome);
    }
    const own = new Set(items.map(({ entry }) => entry));
    const entries = run.after(save.seen).filter(({ entry }) => !own.has(entry));
    return { call, status: 'accepted', items, entries: copyOf(entries), ending: run.ending ?? null };
  }

  /** Undefined where the run ends by it. */
  private item(process: Process, item: Item): ItemOutcome | undefined {
    const { run } = process;
    const there = run.entryOf(item);
    if (there !== undefined)
      return there.by === process ? { status: 'saved', entry: there.entry } : { status: 'stands' };
    switch (item.op) {
      case 'start':
        return this.started(process, item);
      case 'completed': {
        const output = item.output === undefined ? {} : { output: item.output };
        return this.saved(process, item, { status: 'completed', ...output, attempts: item.attempt });
      }
      case 'failed':
        return this.threw(process, item);
      case 'wait':
        this.world.register(run, item as unknown as WaitJson);
        return { status: 'waiting' };
      case 'claim': {
        const owner = this.claims.take(run, item, this.world.now, (id) => this.world.run(id));
        if (item.once === true && owner !== run.id) {
          this.world.skip(run, owner);
          return undefined;
        }
        const output = owner === run.id;
        return { ...this.saved(process, item, { status: 'completed', output }), output };
      }
      case 'callback':
        return this.callback(process, item);
      case 'undo':
        return this.saved(process, item, { status: 'completed' });
    }
  }

  private saved(
    process: Process,
    { kind, name, number }: Item,
    entry: Omit<Entry, 'entry' | keyof StepName | 'kind'>,
  ): ItemOutcome {
    const saved = process.run.append({ kind, name, number, ...entry, by: process });
    return { status: 'saved', entry: saved.entry };
  }

  private started(process: Process, item: RunStep): ItemOutcome {
    const { run } = process;
    if (run.ending !== undefined)
      return { status: 'refused', error: { name: 'Error', message: 'the run is ending' } };
    const before = run.starts.get(item);
    if (item.once === true && before !== undefined && before !== process) {
      const message = `The step '${item.name}' was cut off while it ran: whether it took effect is not known.`;
      run.append({
        kind: 'run',
        name: item.name,
        number: item.number,
        attempts: 1,
        ...failure('StepInterruptedError', message),
        by: undefined,
      });
      return { status: 'stands' };
    }
    run.starts.set(item, process);
    return { status: 'started', again: before !== undefined };
  }

  private threw(process: Process, item: RunStep): ItemOutcome {
    const { attempt, retries = 0, retriable, error, retryAfterMs } = item;
    if (retriable !== true || attempt > retries)
      return this.saved(process, item, { status: 'failed', error, attempts: attempt });
    const retryInMs = retryAfterMs ?? pauseMs(attempt);
    process.run.retry(item, attempt, this.world.now + retryInMs);
    return { status: 'retrying', attempt, retryInMs };
  }

  private callback(process: Process, item: Item & { op: 'callback' }): ItemOutcome {
    const { name, number, timeoutMs } = item;
    const token = randomHex(16);
    const output = { url: `http://127.0.0.1:6355/callbacks/${token}`, token };
    const dueAt = timeoutMs === undefined ? undefined : this.world.now + timeoutMs;
    process.run.callbacks.push({ name, number, ...output, dueAt });
    const saved = this.saved(process, item, { status: 'completed', output });
    this.onCallback(name);
    return { ...saved, output };
  }
}

/** The server's pauses, without their jitter. */
export function pauseMs(attempt: number): number {
  return Math.min(RETRY_MS_MAX, FIRST_RETRY_MS * 2 ** Math.min(attempt - 1, 20));
}
