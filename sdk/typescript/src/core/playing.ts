import type {
  CallMessage,
  EndMessage,
  Ending,
  Entry,
  Fence,
  Item,
  ItemOutcome,
  Save,
  SaveOutcome,
} from './message.js';
import type { Effect, Input, Settled } from './effect.js';
import { entryOf, failedItem, itemOf, sizeOf, tooLarge } from './item.js';
import { otherKind, type Problem, sameName, tooManySteps } from './problem.js';
import { Named, Queue, type Step } from './step.js';
import { bytesOf, Encoded, stringify } from './text.js';

/** An item over this size travels in a request of its own (protocol, *Saves*). */
export const BESIDE_BYTES_MIN: number = 256 * 1024;
/** What one playing puts into one save, in UTF-16 units: at most 6 MiB in UTF-8, so that it fits into a request. */
const SAVE_UNITS_MAX = 2 * 1024 * 1024;
/** From this cut on, bodies run one at a time (C13). */
const SERIAL_CUTS_MIN = 5;
/** How long the losers of a race may take to stop (H6). */
const ALLOWANCE_MS = 10_000;
const ANSWER_BYTES_MAX = 16 * 1024 * 1024;
const STEPS_MAX = 10_000;
const RESULT_BYTES_MAX = 4 * 1024 * 1024;

/** What a playing is given beside the call's message. */
export interface Settings {
  /** Names this playing (C4): random, never used twice. */
  nonce: string;
  /** The manifest's hash. */
  manifest: string;
  /** How often the code outside steps is tried again. */
  retries: number;
}

type Phase = 'new' | 'binding' | 'paging' | 'playing' | 'answered' | 'over';

/**
 * One playing of a call: decides what happens, and does nothing itself. It has no clock, timers, network or randomness:
 * `apply` takes what happened and gives back what is to be done, in order. Rules are cited by their numbers.
 *
 * Its caller (the shell, or a test that plays a transcript) must carry out the effects of one input before the next.
 */
export class Playing {
  readonly fence: Fence;
  /** After so long without contact the answer carries what is unsaved (C11). */
  readonly outageMs: number;
  private readonly message: CallMessage;
  private readonly settings: Settings;
  private phase: Phase = 'new';
  private connected = true;
  private readonly effects: Effect[] = [];

  /** Whether the code runs now: in its first turn or a released entry's, or after something that is no step (S1). */
  private turn: 'orderly' | 'stray' | 'none' = 'none';
  private readonly steps = new Map<number, Step>();
  private readonly open = new Named<Step>();
  private readonly counts = new Map<string, number>();
  private readonly entries = new Named<Entry>();
  private readonly retrying = new Named<{ attempt: number; due: boolean }>();
  private readonly ready = new Queue();
  private startable: Step[] = [];
  private asked = 0;
  private running = 0;
  private starting = 0;
  private waiting = 0;

  private seen = 0;
  private outbox: Item[] = [];
  /** The save that is under way, and whether it must be sent again unchanged. */
  private save: { message: Save; again: boolean } | undefined;

  private recordStarts: boolean;
  private progress = false;
  private unreachable = false;
  private hurry: 'stopping' | 'time' | undefined;
  private ending: Ending | undefined;
  private fate: EndMessage | undefined;
  private aborted = false;

  constructor(message: CallMessage, settings: Settings) {
    this.message = message;
    this.settings = settings;
    this.fence = { call: message.call.id, token: message.call.token, nonce: settings.nonce };
    this.outageMs = Math.max(message.call.leaseMs / 5, 2 * message.call.heartbeatMs);
    this.recordStarts = message.call.cuts > 0;
  }

  /** Whether nothing that happens can matter any more. */
  get isOver(): boolean {
    return this.phase === 'over';
  }

  apply(input: Input): Effect[] {
    if (this.phase !== 'over') this.take(input);
    this.advance();
    return this.effects.splice(0);
  }

  /**
   * The next save to send, or null: one is under way, or there is nothing. The caller answers each with `saved` or
   * `unsent`; asked for it after `unsent` or `later`, the same save comes again, unchanged.
   */
  nextSave(): Save | null {
    if (this.phase === 'answered' || this.phase === 'over') return null;
    if (this.save?.again) {
      this.save.again = false;
      return this.save.message;
    }
    if (this.save !== undefined || (this.outbox.length === 0 && this.phase !== 'binding')) return null;
    const message = { ...this.fence, seen: this.seen, items: this.gather() };
    this.save = { message, again: false };
    return message;
  }

  private gather(): Item[] {
    let units = 0;
    let besides = false;
    const fitting = this.outbox.findIndex((item, at) => {
      const big = sizeOf(item) > BESIDE_BYTES_MIN;
      units += sizeOf(item);
      const stops = at > 0 && (big || besides || units > SAVE_UNITS_MAX);
      besides = big;
      return stops;
    });
    return this.outbox.splice(0, fitting === -1 ? this.outbox.length : fitting);
  }

  private take(input: Input): void {
    switch (input.on) {
      case 'start':
        return this.start(input.late, input.connected);
      case 'page':
        return this.page(input.entries, input.next);
      case 'unread':
        return this.unread(input.status);
      case 'asked':
        return this.ask(input);
      case 'rested':
        this.turn = 'none';
        return;
      case 'returned':
      case 'threw':
        return this.settled(input);
      case 'completed':
        return this.finished({ type: 'completed', output: input.output });
      case 'failed':
        return this.failed(input);
      case 'due':
        return this.due(input);
      case 'saved':
        return this.saved(input.outcome);
      case 'unsent':
      case 'silent':
        return this.failing(input);
      case 'news':
        return this.news(input.status, input.ending ?? null);
      case 'disconnected':
        this.connected = false;
        return;
      case 'undelivered':
        if (this.fate !== undefined) this.effects.push({ do: 'end', message: this.fate });
        return;
      case 'delivered':
        return this.over();
      case 'hurry':
        this.hurry = this.hurry === 'stopping' ? 'stopping' : input.why;
        return;
      case 'allowance over':
        return this.abandon();
    }
  }

  // The beginning: bind (C4), read the history (H5), play.

  private start(late: boolean, connected: boolean): void {
    this.connected = connected;
    this.addEntries(this.message.steps.entries);
    for (const { name, number, attempt, retryInMs } of this.message.steps.retrying) {
      this.retrying.set({ name, number }, { attempt, due: retryInMs <= 0 });
      if (retryInMs > 0) this.effects.push({ do: 'pause', name, number, ms: retryInMs });
    }
    if (!late && connected) return this.read(this.message.steps.next);
    this.phase = 'binding';
    this.effects.push({ do: 'save', pause: false });
  }

  private read(next: number | null): void {
    if (next === null) return this.play();
    this.phase = 'paging';
    this.effects.push({ do: 'fetch', after: next });
  }

  private page(entries: readonly Entry[], next: number | null): void {
    if (this.phase !== 'paging') return;
    this.addEntries(entries);
    this.read(next);
  }

  /** A failed fetch is a cut (H5). */
  private unread(status: 'superseded' | 'ended' | 'failed'): void {
    if (this.phase !== 'paging') return;
    if (status === 'failed') {
      this.phase = 'over';
      this.effects.push({ do: 'cut' }, { do: 'over' });
    } else this.superseded();
  }

  private play(): void {
    this.phase = 'playing';
    this.turn = 'orderly';
    this.effects.push({ do: 'play' }, { do: 'rest' });
  }

  // Steps: asked by the code, run by the shell.

  private ask({ id, name, retries }: { id: number; name: string; retries: number }): void {
    if (this.phase !== 'playing') return;
    if (this.turn === 'none') {
      this.turn = 'stray';
      this.effects.push({ do: 'rest' });
    }
    const number = (this.counts.get(name) ?? 0) + 1;
    this.counts.set(name, number);
    const step: Step = {
      id,
      name,
      number,
      retries,
      orderly: this.turn === 'orderly',
      state: 'asked',
      attempt: 1,
    };
    const problem = this.problem(step);
    if (problem !== undefined) return this.fatal(problem.name, problem.message);
    this.steps.set(id, step);
    this.open.set(step, step);
    const entry = this.entries.get(step);
    if (entry !== undefined) return this.know(step, entry);
    const retry = this.retrying.get(step);
    if (retry !== undefined) step.attempt = retry.attempt + 1;
    if (retry === undefined || retry.due) this.startable.push(step);
    else this.wait(step);
  }

  /** Why a step can't be told apart from another, or is one too many: the run stops, for its names would lie (S1, S7). */
  private problem(step: Step): Problem | undefined {
    this.asked += 1;
    const limit = this.message.limits?.steps ?? STEPS_MAX;
    if (this.asked > limit) return tooManySteps(limit);
    const entry = this.entries.get(step);
    if (entry !== undefined && entry.kind !== 'run') return otherKind(step.name, entry.kind);
    for (const other of this.open.of(step.name)) {
      if (!step.orderly || !other.orderly) return sameName(step.name);
    }
    return undefined;
  }

  private wait(step: Step): void {
    step.state = 'waiting';
    this.waiting += 1;
  }

  private due(of: { name: string; number: number }): void {
    const retry = this.retrying.get(of);
    if (retry !== undefined) retry.due = true;
    const step = this.open.get(of);
    if (step?.state !== 'waiting') return;
    this.waiting -= 1;
    step.state = 'asked';
    this.startable.push(step);
  }

  private startBodies(): void {
    const serial = this.message.call.cuts >= SERIAL_CUTS_MIN;
    const left: Step[] = [];
    for (const step of this.startable) {
      if (step.state !== 'asked') continue;
      if (serial && !this.isQuiet) left.push(step);
      else if (this.recordStarts) this.recordStart(step);
      else this.run(step);
    }
    this.startable = left;
  }

  /** In the call after a cut, a start is recorded before its body (C13). */
  private recordStart(step: Step): void {
    step.state = 'starting';
    this.starting += 1;
    const { name, number, attempt } = step;
    this.put({ op: 'start', kind: 'run', name, number, attempt });
  }

  private run(step: Step): void {
    step.state = 'running';
    this.running += 1;
    const { id, name, number, attempt } = step;
    this.effects.push({ do: 'body', id, name, number, attempt });
  }

  private settled(input: Settled): void {
    const step = this.steps.get(input.id);
    if (step?.state !== 'running' || step.attempt !== input.attempt || this.phase !== 'playing') return;
    this.running -= 1;
    // What an aborted body throws is no failure (H7).
    if (input.on === 'threw' && this.aborted) {
      step.state = 'dropped';
      return;
    }
    step.state = 'saving';
    this.put(input.on === 'returned' ? this.completedItem(step, input) : failedItem(step, input));
  }

  private completedItem(step: Step, input: Settled & { on: 'returned' }): Item {
    const limit = this.message.limits?.resultBytes ?? RESULT_BYTES_MAX;
    const text = input.output?.text ?? '';
    // Every UTF-16 unit takes one to three bytes, so short texts need no measuring.
    const bytes = text.length * 3 > limit ? bytesOf(text) : 0;
    if (bytes > limit) {
      return failedItem(step, { ...input, error: tooLarge(step.name, bytes, limit), retriable: false });
    }
    const { startedAt, endedAt } = input;
    return { ...itemOf(step), op: 'completed', output: input.output, startedAt, endedAt };
  }

  private put(item: Item): void {
    this.outbox.push(item);
    this.effects.push({ do: 'save', pause: false });
  }

  // Saves and their outcomes.

  private saved(outcome: SaveOutcome): void {
    const save = this.save;
    if (save === undefined) return;
    this.unreachable = false;
    switch (outcome.status) {
      case 'later':
        save.again = true;
        this.effects.push({ do: 'save', pause: true });
        return;
      case 'accepted':
        this.save = undefined;
        return this.accepted(save.message, outcome);
      case 'invalid':
        this.save = undefined;
        return this.invalid(outcome.detail ?? 'the server refused a save');
      default:
        return this.superseded();
    }
  }

  private accepted(save: Save, outcome: SaveOutcome): void {
    if (outcome.ending) this.endRun(outcome.ending);
    this.addEntries(outcome.entries ?? []);
    save.items.forEach((item, at) => this.itemAnswered(item, outcome.items?.[at] ?? { status: 'stands' }));
    if (this.outbox.length > 0) this.effects.push({ do: 'save', pause: false });
    if (this.phase === 'binding') this.read(this.message.steps.next);
  }

  private itemAnswered(item: Item, outcome: ItemOutcome): void {
    const step = this.open.get(item);
    if (item.op === 'start') this.starting -= 1;
    if (outcome.entry !== undefined) this.hasSaved(outcome.entry);
    if (step === undefined || step.state === 'known' || step.state === 'dropped') return;
    switch (outcome.status) {
      case 'started':
        return this.started(step);
      case 'saved':
        return item.op === 'start' ? this.missing(step) : this.know(step, entryOf(item, outcome.entry ?? 0));
      case 'retrying':
        return this.retry(step, outcome);
      case 'refused':
        return this.refused(step, item, outcome);
      case 'stands':
        return this.missing(step);
    }
  }

  private hasSaved(entry: number): void {
    this.seen = Math.max(this.seen, entry);
    this.progress = true;
    this.recordStarts = false;
  }

  private started(step: Step): void {
    if (this.ending !== undefined || this.fate !== undefined) step.state = 'dropped';
    else this.run(step);
  }

  private retry(step: Step, outcome: ItemOutcome): void {
    step.attempt = (outcome.attempt ?? step.attempt) + 1;
    this.wait(step);
    const { name, number } = step;
    this.effects.push({ do: 'pause', name, number, ms: outcome.retryInMs ?? 0 });
  }

  /** A result that can't be saved fails its step at once (S3). A start is refused when the run is ending (Z1). */
  private refused(step: Step, item: Item, outcome: ItemOutcome): void {
    if (this.ending !== undefined) {
      step.state = 'dropped';
      return;
    }
    const error = new Encoded(
      JSON.stringify(outcome.error ?? { name: 'Error', message: 'the server refused the save' }),
    );
    if (item.op === 'failed') {
      this.fate ??= { type: 'failed', error, retriable: false, retries: this.settings.retries };
      step.state = 'dropped';
      return;
    }
    const { startedAt, endedAt } = item;
    step.state = 'saving';
    this.put({
      ...itemOf(step),
      op: 'failed',
      error,
      retriable: false,
      retries: step.retries,
      ...(startedAt !== undefined && { startedAt }),
      ...(endedAt !== undefined && { endedAt }),
    });
  }

  /** The server says that a result stands, and did not send it: nothing that this playing does would be right. */
  private missing(step: Step): void {
    step.state = 'dropped';
    this.invalid(`the saved result of step '${step.name}' was not sent along (W1)`);
  }

  private invalid(detail: string): void {
    if (this.phase === 'binding') this.phase = 'playing';
    this.outbox = [];
    this.fatal(
      'ProtocolError',
      `The server and the SDK disagree: ${detail}. Use versions of both that fit each other.`,
    );
  }

  private failing({ on, ms }: Input & { on: 'unsent' | 'silent' }): void {
    if (on === 'unsent' && this.save !== undefined) this.save.again = true;
    this.unreachable = ms >= this.outageMs;
  }

  // The history.

  private addEntries(entries: readonly Entry[]): void {
    for (const entry of entries) {
      if (this.entries.get(entry) !== undefined) continue;
      this.entries.set(entry, entry);
      const step = this.open.get(entry);
      if (step !== undefined) this.know(step, entry);
    }
  }

  private know(step: Step, entry: Entry): void {
    if (step.state === 'waiting') this.waiting -= 1;
    if (step.state === 'running') this.running -= 1;
    step.state = 'known';
    this.entries.set(entry, entry);
    this.ready.add(step, entry);
  }

  /** Shows the code one entry, then lets it come to rest (H1). */
  private release(): boolean {
    const next = this.ready.next();
    if (next === undefined) return false;
    const { step, entry } = next;
    this.steps.delete(step.id);
    this.open.delete(step);
    this.seen = Math.max(this.seen, entry.entry);
    this.turn = 'orderly';
    this.effects.push({ do: 'release', id: step.id, entry }, { do: 'rest' });
    return true;
  }

  // The end.

  private failed(input: { error: Encoded; retriable: boolean; retryAfterMs?: number | undefined }): void {
    const { error, retriable, retryAfterMs } = input;
    this.finished({ type: 'failed', error, retriable, retries: this.settings.retries, retryAfterMs });
  }

  private fatal(name: string, message: string): void {
    this.failed({ error: new Encoded(JSON.stringify({ name, message })), retriable: false });
  }

  /** The function's end. Bodies that still run are stopped, unless the code is tried again and needs them (H6). */
  private finished(end: EndMessage): void {
    if (this.phase !== 'playing' || this.fate !== undefined) return;
    this.fate = end;
    const again = end.retriable === true && this.message.run.attempt <= this.settings.retries;
    if (this.running === 0 || again) return;
    this.abort('over');
    this.effects.push({ do: 'allow', ms: ALLOWANCE_MS });
  }

  private abandon(): void {
    if (this.fate === undefined) return;
    for (const step of this.steps.values()) if (step.state === 'running') step.state = 'dropped';
    this.running = 0;
  }

  private abort(why: 'over' | Ending['reason'] | 'superseded'): void {
    this.aborted = true;
    this.effects.push({ do: 'abort', why });
  }

  private endRun(ending: Ending): void {
    if (this.ending !== undefined || this.phase === 'answered') return;
    this.ending = ending;
    this.abort(ending.reason);
  }

  private news(status: string, ending: Ending | null): void {
    if (status === 'superseded' || status === 'ended') this.superseded();
    else if (status === 'ending') this.endRun(ending ?? { reason: 'cancelled' });
  }

  private superseded(): void {
    this.abort('superseded');
    if (this.phase !== 'answered' && this.connected) {
      this.effects.push({ do: 'answer', message: this.end({ type: 'over' }), keep: false });
    }
    this.over();
  }

  private over(): void {
    this.phase = 'over';
    this.effects.push({ do: 'over' });
  }

  private get isQuiet(): boolean {
    return this.running === 0 && this.starting === 0 && this.save === undefined && this.outbox.length === 0;
  }

  /** What follows from where things stand, once the code rests. */
  private advance(): void {
    if (this.phase !== 'playing' || this.turn !== 'none') return;
    if (this.unreachable && this.connected && this.running === 0) return this.answer(this.conclusion());
    if (this.ending !== undefined || this.fate !== undefined) {
      if (this.isQuiet) this.answer(this.conclusion());
      return;
    }
    if (this.release()) return;
    if (this.unreachable && this.connected) return;
    if (this.hurry === 'stopping' || (this.hurry === 'time' && this.progress)) {
      if (this.isQuiet) this.answer(this.yielded());
      return;
    }
    this.startBodies();
    if (this.isQuiet && this.waiting > 0) this.answer(this.suspended());
  }

  /** A run that is ending takes no other end (Z1). */
  private conclusion(): EndMessage {
    return this.ending === undefined && this.fate !== undefined ? this.fate : this.yielded();
  }

  private yielded(): EndMessage {
    const end: EndMessage = { type: 'yielded', seen: this.seen };
    return this.hurry === 'stopping' || this.unreachable ? { ...end, excused: true } : end;
  }

  private suspended(): EndMessage {
    const waits = [];
    for (const { state, name, number } of this.steps.values()) {
      if (state === 'waiting') waits.push({ retry: { name, number } });
    }
    return { type: 'suspended', seen: this.seen, waits };
  }

  private answer(end: EndMessage): void {
    const message = this.end(end);
    const unsaved = this.unsaved(ANSWER_BYTES_MAX - stringify(message).length * 3);
    if (unsaved.length > 0) message.unsaved = unsaved;
    this.phase = 'answered';
    this.fate = message;
    this.effects.push(
      this.connected ? { do: 'answer', message, keep: unsaved.length > 0 } : { do: 'end', message },
    );
  }

  private end(end: EndMessage): EndMessage {
    return { ...end, nonce: this.fence.nonce, manifest: this.settings.manifest };
  }

  /** Results that could not be saved, in order, as many as fit (C11). */
  private unsaved(bytes: number): Item[] {
    const items = [...(this.save?.message.items ?? []), ...this.outbox].filter((item) => item.op !== 'start');
    let left = bytes;
    const over = items.findIndex((item) => (left -= bytesOf(stringify(item)) + 1) < 0);
    return over === -1 ? items : items.slice(0, over);
  }
}
