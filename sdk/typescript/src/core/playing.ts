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
  StepName,
  WaitItem,
} from './message.js';
import type { Effect, Input, Settled } from './effect.js';
import { History } from './history.js';
import { Identity } from './identity.js';
import { askItem, completedItem, entryOf, failedItem, isTooMuch, startItem } from './item.js';
import { Outbox } from './outbox.js';
import { type Step, Steps } from './step.js';
import { Encoded, stringify } from './text.js';
import { Trees } from './tree.js';

/** From this cut on, bodies run one at a time (C13). */
const SERIAL_CUTS_MIN = 5;
/** How long the losers of a race may take to stop (H6). */
const ALLOWANCE_MS = 10_000;
const ANSWER_BYTES_MAX = 16 * 1024 * 1024;
/** What a suspended answer registers, in UTF-16 units: beside its list of waits it fits into a request to the API (C10). */
const REGISTER_UNITS_MAX = 1024 * 1024;
const RESULT_BYTES_MAX = 4 * 1024 * 1024;
/** The step that a workflow's `once` is saved as (K4). No step of the code has this name. */
const ONCE: StepName = { name: '', number: 1 };

/** What a playing is given beside the call's message. */
export interface Settings {
  /** Names this playing (C4): random, never used twice. */
  nonce: string;
  /** The manifest's hash. */
  manifest: string;
  /** How often the code outside steps is tried again. */
  retries: number;
}

type Phase = 'new' | 'binding' | 'paging' | 'claiming' | 'playing' | 'answered' | 'over';

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
  private readonly resultBytesMax: number;
  private readonly message: CallMessage;
  private readonly settings: Settings;
  private phase: Phase = 'new';
  private connected = true;
  private readonly effects: Effect[] = [];

  /** Whether the code runs now: in its first turn or a released entry's, or after something that is no step (S1). */
  private turn: 'orderly' | 'stray' | 'none' = 'none';
  private readonly steps = new Steps();
  private readonly trees = new Trees();
  private readonly history = new History();
  private readonly outbox = new Outbox();
  private readonly identity: Identity;
  /** Steps whose turn has come, in the order in which the code asked. */
  private startable: Step[] = [];
  /** Waits that the code asks for and nobody knows of yet, in the same order. */
  private unregistered: Step[] = [];
  /** The key that the run must own before its code plays (K4). */
  private once: string | undefined;

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
    this.resultBytesMax = message.limits?.resultBytes ?? RESULT_BYTES_MAX;
    this.outageMs = Math.max(message.call.leaseMs / 5, 2 * message.call.heartbeatMs);
    this.recordStarts = message.call.cuts > 0;
    this.identity = new Identity(message, this.history, this.steps);
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

  /** The number up to which entries have come: what a poll asks for news after (H2). Undefined until the history is read. */
  get known(): number | undefined {
    return this.phase === 'playing' ? this.history.known : undefined;
  }

  /**
   * The next save to send, or null: one is under way, or there is nothing. The caller answers each with `saved` or
   * `unsent`; asked for it after `unsent` or `later`, the same save comes again, unchanged.
   */
  nextSave(): Save | null {
    if (this.phase === 'answered' || this.phase === 'over') return null;
    return this.outbox.next(this.fence, this.history.seen, this.phase === 'binding');
  }

  private take(input: Input): void {
    switch (input.on) {
      case 'start':
        return this.start(input);
      case 'page':
        return this.page(input.entries, input.next);
      case 'unread':
        return this.unread(input.status);
      case 'asked':
        return this.ask(input);
      case 'combined':
        return this.trees.add(input.id, input);
      case 'rested':
        this.turn = 'none';
        return;
      case 'returned':
      case 'threw':
      case 'found':
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
        return this.news(input);
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

  // The beginning: bind (C4), read the history (H5), claim the workflow's key (K4), play.

  private start({ late, connected, once }: Input & { on: 'start' }): void {
    this.connected = connected;
    this.once = once;
    const { entries, next, retrying } = this.message.steps;
    this.addEntries(entries);
    for (const { name, number, retryInMs: ms } of retrying) {
      if (ms > 0) this.effects.push({ do: 'pause', name, number, ms });
    }
    if (!late && connected) return this.read(next);
    this.phase = 'binding';
    this.effects.push({ do: 'save', pause: false });
  }

  private read(next: number | null): void {
    if (next === null) return this.claim();
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

  private claim(): void {
    const saved = this.history.get(ONCE);
    if (this.once === undefined || saved !== undefined) return this.play();
    this.phase = 'claiming';
    this.put({ op: 'claim', kind: 'claim', ...ONCE, key: this.once, once: true });
  }

  /** Where another run owns the key the save is answered `ended`. */
  private claimed({ status, error }: ItemOutcome): void {
    const failed = status === 'stands' ? this.history.get(ONCE)?.error : error;
    if (failed === undefined) return this.play();
    this.phase = 'playing';
    this.failed({ error: new Encoded(JSON.stringify(failed)), retriable: false });
  }

  private play(): void {
    this.phase = 'playing';
    this.turn = 'orderly';
    this.effects.push({ do: 'play' }, { do: 'rest' });
  }

  // Steps: asked by the code, run by the shell.

  private ask({ id, name, was, ask }: Input & { on: 'asked' }): void {
    if (this.phase !== 'playing') return;
    if (this.turn === 'none') {
      this.turn = 'stray';
      this.effects.push({ do: 'rest' });
    }
    const isOrderly = this.turn === 'orderly';
    const step: Step = {
      id,
      ...this.identity.next(name, was),
      ask,
      isOrderly,
      state: 'asked',
      attempt: 1,
      next: 'start',
    };
    const problem = this.identity.problem(step, [name, was ?? name]);
    if (problem !== undefined) return this.fatal(problem.name, problem.message);
    this.steps.add(step);
    const entry = this.history.get(step);
    if (entry !== undefined) return this.know(step, entry);
    if (ask.op === 'wait') {
      if (this.identity.isOpen(step)) this.steps.move(step, 'open');
      else this.unregistered.push(step);
      return;
    }
    const retry = this.identity.retryOf(step);
    if (retry !== undefined) step.attempt = retry.attempt + 1;
    if (retry === undefined || retry.due) this.startable.push(step);
    else this.steps.move(step, 'pausing');
  }

  private due(of: StepName): void {
    this.identity.due(of);
    const step = this.steps.get(of);
    if (step?.state === 'pausing' || step?.state === 'delayed') this.startAgain(step);
  }

  /** The step goes on when the code rests, before those that the code asked for later. */
  private startAgain(step: Step): void {
    this.steps.move(step, 'asked');
    let at = this.startable.length;
    while (at > 0 && (this.startable[at - 1] as Step).id > step.id) at--;
    this.startable.splice(at, 0, step);
  }

  private startSteps(): void {
    const serial = this.message.call.cuts >= SERIAL_CUTS_MIN;
    const left: Step[] = [];
    for (const step of this.startable) {
      if (step.state !== 'asked') continue;
      if (step.ask.op !== 'run') this.send(step, 'saving', askItem(step));
      else if (serial && !this.isQuiet) left.push(step);
      else if (step.next === 'start' && this.isRecorded(step)) this.send(step, 'starting', startItem(step));
      else this.run(step);
    }
    this.startable = left;
  }

  /** In the call after a cut, a start is recorded before its body (C13); of some steps always (S4, S5). */
  private isRecorded({ ask }: Step): boolean {
    return this.recordStarts || (ask.op === 'run' && (ask.check === true || ask.once === true));
  }

  private run(step: Step): void {
    this.steps.move(step, 'running');
    const { id, name, number, attempt } = step;
    this.effects.push({ do: step.next === 'check' ? 'check' : 'body', id, name, number, attempt });
  }

  private settled(input: Settled): void {
    const step = this.steps.at(input.id);
    if (step?.state !== 'running' || step.attempt !== input.attempt || this.phase !== 'playing') return;
    // What an aborted body throws is no failure (H7).
    if (input.on === 'threw' && this.aborted) return this.steps.move(step, 'dropped');
    if (input.on === 'found' && input.output === undefined) {
      step.next = 'body';
      return this.startAgain(step);
    }
    this.send(
      step,
      'saving',
      input.on === 'threw' ? failedItem(step, input) : completedItem(step, input, this.resultBytesMax),
    );
  }

  private send(step: Step, state: Step['state'], item: Item): void {
    this.steps.move(step, state);
    this.put(item);
  }

  private put(item: Item): void {
    this.outbox.put(item);
    this.effects.push({ do: 'save', pause: false });
  }

  /**
   * Waits are registered by a save while a body runs, or is about to (H3). When the playing is about to suspend, its answer
   * has them, unless it would be too large.
   */
  private registerWaits(): void {
    this.unregistered = this.unregistered.filter((step) => step.state === 'asked');
    const isActive = this.steps.count('running', 'starting', 'delayed') > 0;
    if (!isActive && !(this.isQuiet && isTooMuch(this.registrations(), REGISTER_UNITS_MAX))) return;
    for (const step of this.unregistered) this.send(step, 'registering', askItem(step));
    this.unregistered = [];
  }

  private registrations(): WaitItem[] {
    return this.unregistered.map((step) => askItem(step) as WaitItem);
  }

  // Saves and their outcomes.

  private saved(outcome: SaveOutcome): void {
    if (!this.outbox.isSending) return;
    this.unreachable = false;
    if (outcome.status === 'later') {
      this.outbox.again();
      this.effects.push({ do: 'save', pause: true });
      return;
    }
    const save = this.outbox.answered();
    if (outcome.status === 'accepted') return this.accepted(save?.items ?? [], outcome);
    if (outcome.status === 'invalid') return this.invalid(outcome.detail ?? 'the server refused a save');
    this.superseded();
  }

  private accepted(items: readonly Item[], outcome: SaveOutcome): void {
    if (outcome.ending) this.endRun(outcome.ending);
    this.addEntries(outcome.entries ?? []);
    items.forEach((item, at) => this.itemAnswered(item, outcome.items?.[at] ?? { status: 'stands' }));
    this.addEntries(this.history.takeHeld());
    if (!this.outbox.isEmpty) this.effects.push({ do: 'save', pause: false });
    if (this.phase === 'binding') this.read(this.message.steps.next);
  }

  private itemAnswered(item: Item, outcome: ItemOutcome): void {
    if (outcome.entry !== undefined) this.hasSaved(outcome.entry);
    if (this.phase === 'claiming') return this.claimed(outcome);
    const step = this.steps.get(item);
    if (step === undefined || step.state === 'known' || step.state === 'dropped') return;
    switch (outcome.status) {
      case 'started':
        return this.started(step, outcome);
      case 'waiting':
        return this.steps.move(step, 'open');
      case 'retrying':
        return this.retry(step, outcome);
      case 'refused':
        return this.refused(step, item, outcome);
      case 'saved':
      case 'stands': {
        const entry = outcome.status === 'saved' ? entryOf(item, outcome) : undefined;
        return entry === undefined ? this.missing(step) : this.know(step, entry);
      }
    }
  }

  private hasSaved(entry: number): void {
    this.history.saved(entry);
    this.progress = true;
    this.recordStarts = false;
  }

  /** The start is recorded. Before a repeat, and first in a replay, the step's check looks (S4). */
  private started(step: Step, { again, checkInMs = 0 }: ItemOutcome): void {
    const repeats = again === true || step.attempt > 1 || this.message.run.replayOf !== null;
    step.next = step.ask.op === 'run' && step.ask.check && repeats ? 'check' : 'body';
    if (step.next === 'check' && checkInMs > 0) return this.pause(step, 'delayed', checkInMs);
    this.startAgain(step);
  }

  private retry(step: Step, outcome: ItemOutcome): void {
    step.attempt = (outcome.attempt ?? step.attempt) + 1;
    step.next = 'start';
    this.pause(step, 'pausing', outcome.retryInMs ?? 0);
  }

  private pause(step: Step, state: 'delayed' | 'pausing', ms: number): void {
    this.steps.move(step, state);
    const { name, number } = step;
    this.effects.push({ do: 'pause', name, number, ms });
  }

  /** A result that can't be saved fails its step at once (S3). A start is refused when the run is ending (Z1). */
  private refused(step: Step, item: Item, outcome: ItemOutcome): void {
    if (this.ending !== undefined) return this.steps.move(step, 'dropped');
    const error = new Encoded(
      JSON.stringify(outcome.error ?? { name: 'Error', message: 'the server refused the save' }),
    );
    if (item.kind === 'run' && item.op !== 'failed')
      return this.send(step, 'saving', failedItem(step, { ...item, error, retriable: false }));
    this.fate ??= { type: 'failed', error, retriable: false, retries: this.settings.retries };
    this.steps.move(step, 'dropped');
  }

  /** The server says that a result stands, and did not send it: nothing that this playing does would be right. */
  private missing(step: Step): void {
    this.steps.move(step, 'dropped');
    this.invalid(`the saved result of step '${step.name}' was not sent along (W1)`);
  }

  private invalid(detail: string): void {
    if (this.phase === 'binding' || this.phase === 'claiming') this.phase = 'playing';
    this.outbox.clear();
    this.fatal(
      'ProtocolError',
      `The server and the SDK disagree: ${detail}. Use versions of both that fit each other.`,
    );
  }

  private failing({ on, ms }: Input & { on: 'unsent' | 'silent' }): void {
    if (on === 'unsent') this.outbox.again();
    this.unreachable = ms >= this.outageMs;
  }

  // The history.

  private addEntries(entries: readonly Entry[]): void {
    for (const entry of entries) {
      if (!this.history.add(entry)) continue;
      const step = this.steps.get(entry);
      if (step !== undefined) this.know(step, entry);
    }
  }

  private know(step: Step, entry: Entry): void {
    this.steps.move(step, 'known');
    this.history.show(step, entry);
  }

  /** Shows the code one entry, then lets it come to rest (H1). */
  private release(): boolean {
    const next = this.history.next();
    if (next === undefined) return false;
    const { step, entry } = next;
    this.steps.forget(step);
    this.trees.settle(step.id, entry.status);
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
    if (this.steps.count('running') === 0 || again) return;
    this.abort('over');
    this.effects.push({ do: 'allow', ms: ALLOWANCE_MS });
  }

  private abandon(): void {
    if (this.fate === undefined) return;
    for (const step of this.steps.in('running')) this.steps.move(step, 'dropped');
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

  private news({ status, ending, entries = [] }: Input & { on: 'news' }): void {
    if (status === 'superseded' || status === 'ended') this.superseded();
    else if (status === 'ending') this.endRun(ending ?? { reason: 'cancelled' });
    else if (this.outbox.isSending) this.history.hold(entries);
    else this.addEntries(entries);
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
    return this.steps.count('running') === 0 && !this.outbox.isSending && this.outbox.isEmpty;
  }

  /** What follows from where things stand, once the code rests. */
  private advance(): void {
    const isCutOff = this.unreachable && this.connected;
    if (this.phase === 'claiming' && (isCutOff || this.hurry === 'stopping'))
      return this.answer(this.yielded());
    if (this.phase !== 'playing' || this.turn !== 'none') return;
    if (isCutOff && this.steps.count('running') === 0) return this.answer(this.conclusion());
    if (this.ending !== undefined || this.fate !== undefined) {
      if (this.isQuiet) this.answer(this.conclusion());
      return;
    }
    if (this.release() || isCutOff) return;
    if (this.hurry === 'stopping' || (this.hurry === 'time' && this.progress)) {
      if (this.isQuiet) this.answer(this.yielded());
      return;
    }
    this.startSteps();
    this.registerWaits();
    if (this.isQuiet && this.isBlocked) this.answer(this.suspended());
  }

  /** The code waits for steps that only the server can bring on. */
  private get isBlocked(): boolean {
    return this.steps.count('delayed') === 0 && this.steps.count('pausing', 'open', 'asked') > 0;
  }

  /** A run that is ending takes no other end (Z1). */
  private conclusion(): EndMessage {
    return this.ending === undefined && this.fate !== undefined ? this.fate : this.yielded();
  }

  private yielded(): EndMessage {
    const end: EndMessage = { type: 'yielded', seen: this.history.seen };
    return this.hurry === 'stopping' || this.unreachable ? { ...end, excused: true } : end;
  }

  private suspended(): EndMessage {
    const leaves = this.steps.in('pausing', 'open', 'asked').map(({ id, state, name, number }) => {
      const of = { name, number };
      return [id, state === 'pausing' ? { retry: of } : { wait: of }] as const;
    });
    const register = this.registrations();
    return {
      type: 'suspended',
      seen: this.history.seen,
      ...(register.length > 0 && { register }),
      waits: this.trees.list(new Map(leaves)),
    };
  }

  private answer(end: EndMessage): void {
    const message = this.end(end);
    const unsaved = this.outbox.unsaved(ANSWER_BYTES_MAX - stringify(message).length * 3);
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
}
