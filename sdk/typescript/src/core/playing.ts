import type {
  CallMessage,
  EndMessage,
  Ending,
  Entry,
  Fence,
  Item,
  ItemOutcome,
  LogLine,
  Save,
  SaveOutcome,
  StepName,
} from './message.js';
import { Closing, type Undo, undoStep } from './closing.js';
import type { Effect, Input, Part, Settings } from './effect.js';
import { leftIn, suspended, unaskedIn, yielded } from './end.js';
import { Frozen } from './frozen.js';
import { History } from './history.js';
import { Identity } from './identity.js';
import { entryOf, failedItem, tooLarge } from './item.js';
import { LogLines, type Written } from './log-lines.js';
import { Outbox } from './outbox.js';
import { disagreement, type Problem, undoMissing } from './problem.js';
import { type Step, Steps } from './step.js';
import { Encoded } from './text.js';
import { Trees } from './tree.js';
import { Work } from './work.js';

/** How long the losers of a race may take to stop (H6), and code beside what rests to ask for its undos. */
const ALLOWANCE_MS = 10_000;
/** The step that a workflow's `once` is saved as (K4). No step of the code has this name. */
const ONCE: StepName = { name: '', number: 1 };

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
  private readonly lines = new LogLines();
  private readonly outbox = new Outbox(this.lines);
  private readonly work: Work;
  private identity: Identity;
  private readonly closing: Closing | undefined;
  /** Set where the function can't add to the history. */
  private readonly frozen: Frozen | undefined;
  /** The entry after which the last page was asked for. */
  private after = -1;
  /** The last entry that the call came with: up to it the code's lines of the log were written before. */
  private begunAt = 0;
  /** The key that the run must own before its code plays (K4). */
  private once: string | undefined;

  private progress = false;
  private unreachable = false;
  private hurry: 'stopping' | 'time' | undefined;
  private ending: Ending | undefined;
  private fate: EndMessage | undefined;
  private abandoned: readonly Step[] = [];
  /** Whether a closing's code that is at rest may still ask for an undo; undefined where that was not to be waited for. */
  private isPatient: boolean | undefined;
  private hasTold = false;

  constructor(message: CallMessage, settings: Settings) {
    this.message = message;
    this.settings = settings;
    this.fence = { call: message.call.id, token: message.call.token, nonce: settings.nonce };
    this.outageMs = Math.max(message.call.leaseMs / 5, 2 * message.call.heartbeatMs);
    this.work = new Work(message, this.steps, this.outbox, this.effects);
    this.identity = new Identity(message, this.history, this.steps);
    const { ending } = message;
    if (ending !== undefined) this.closing = new Closing(ending, settings.handler, this.history);
    this.frozen = this.closing?.frozen ?? (settings.isVerifying ? new Frozen(Infinity) : undefined);
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

  /**
   * Takes in a line of the log, of `step` or of code outside steps. Undefined where it was written before, and is not to be
   * written again: the code is shown what the call came with, or plays frozen.
   */
  log(
    line: () => Written,
    step: (StepName & { attempt: number }) | undefined,
    part: Part,
  ): LogLine | undefined {
    if (step !== undefined) {
      const { name, number, attempt } = step;
      return this.lines.add(line(), { step: { name, number }, attempt });
    }
    const { given: entry } = this.history;
    if (this.isFrozen(part) || entry < this.begunAt) return undefined;
    const { attempt } = this.message.run;
    return this.lines.add(line(), { entry, attempt, isHandler: part !== undefined });
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
        return this.isFrozen(input.part) ? undefined : this.trees.add(input.id, input);
      case 'rested':
        this.turn = 'none';
        return;
      case 'returned':
      case 'threw':
      case 'found':
        return this.phase === 'playing' ? this.work.settled(input) : undefined;
      case 'completed':
        return this.completed(input);
      case 'failed':
        return this.isFrozen(input.part) ? this.frozen?.ended(input.error) : this.failed(input);
      case 'restarted':
        return this.restarted(input.payload);
      case 'due':
        this.identity.due(input);
        return this.work.due(input);
      case 'saved':
        return this.saved(input.outcome);
      case 'unsent':
        return this.outbox.again();
      case 'silent':
        this.unreachable = true;
        return;
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
      case 'logs due':
        return this.sendLines();
      case 'late':
        return this.verified();
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
    // A page that leads back to itself would be read for ever.
    if (next <= this.after) return this.cut();
    this.after = next;
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
    return status === 'failed' ? this.cut() : this.superseded();
  }

  private cut(): void {
    this.effects.push({ do: 'cut' });
    this.over();
  }

  private claim(): void {
    const saved = this.history.get(ONCE);
    if (this.once === undefined || saved !== undefined || this.frozen !== undefined) return this.play();
    this.phase = 'claiming';
    this.work.put({ op: 'claim', kind: 'claim', ...ONCE, key: this.once, once: true });
  }

  /** Where another run owns the key the save is answered `ended`. */
  private claimed({ status, error, entry = 0 }: ItemOutcome): void {
    const failed = status === 'stands' ? this.history.get(ONCE)?.error : error;
    this.history.pass(entry);
    if (failed === undefined) return this.play();
    this.phase = 'playing';
    this.failed({ error: new Encoded(JSON.stringify(failed)), retriable: false });
  }

  /** The last page is here. A closing whose undos are done needs the function no more. */
  private play(): void {
    this.phase = 'playing';
    const claimed = this.history.get(ONCE);
    // The code's lines go by the entries that it knows, and its key is one.
    if (claimed !== undefined) this.history.pass(claimed.entry);
    this.begunAt = this.history.known;
    if (this.closing?.begin() ?? true) this.call({ do: 'play' });
    else this.closing?.frozen.ended();
  }

  private call(effect: Effect & { do: 'play' }): void {
    this.turn = 'orderly';
    this.effects.push(effect, { do: 'rest' });
  }

  // Steps: asked by the code, run by the shell.

  private ask({ id, name, was, ask, part }: Input & { on: 'asked' }): void {
    const frozen = this.isFrozen(part) ? this.frozen : undefined;
    if (this.phase !== 'playing' || frozen?.isOver === true) return;
    if (this.turn === 'none') {
      this.turn = 'stray';
      this.effects.push({ do: 'rest' });
    }
    const isOrderly = this.turn === 'orderly';
    const of = this.identity.next(name, was, ask.op === 'undo' ? 2 : 1);
    const step: Step = { id, ...of, ask, isOrderly, state: 'asked', attempt: 1, next: 'start' };
    const problem = this.identity.problem(step, [name, was ?? name]);
    this.history.asked(step);
    if (problem !== undefined) return frozen === undefined ? this.fatal(problem) : frozen.stopped(problem);
    this.steps.add(step);
    const entry = this.history.get(step);
    if (frozen !== undefined) return this.askFrozen(step, frozen, entry);
    if (entry !== undefined) return this.know(step, entry);
    if (ask.op !== 'wait') return this.work.begin(step, this.identity.retryOf(step));
    if (this.identity.isOpen(step)) this.steps.move(step, 'open');
    else this.work.register(step);
  }

  /** The function may be shown what there is, and adds nothing to it. */
  private askFrozen(step: Step, frozen: Frozen, entry: Entry | undefined): void {
    if (entry === undefined || !frozen.shows(entry)) {
      this.steps.move(step, 'dropped');
      return frozen.keepOpen(step);
    }
    if (step.ask.op === 'undo') this.closing?.asked(step, step.id);
    this.know(step, entry);
  }

  private isFrozen(part: Part): boolean {
    return part === undefined && this.frozen !== undefined;
  }

  // Saves and their outcomes.

  private saved(outcome: SaveOutcome): void {
    if (!this.outbox.isSending) return;
    this.unreachable = false;
    if (outcome.status === 'later') {
      this.outbox.again();
      return void this.effects.push({ do: 'save', pause: true });
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
    if (!this.outbox.isEmpty || this.lines.areDue) this.effects.push({ do: 'save', pause: false });
    if (this.phase === 'binding') this.read(this.message.steps.next);
  }

  private itemAnswered(item: Item, outcome: ItemOutcome): void {
    if (outcome.entry !== undefined) this.hasSaved(outcome.entry);
    if (this.phase === 'claiming') return this.claimed(outcome);
    const step = this.steps.get(item);
    if (step === undefined || step.state === 'known' || step.state === 'dropped') return;
    switch (outcome.status) {
      case 'started':
        return this.work.started(step, outcome);
      case 'waiting':
        return this.steps.move(step, 'open');
      case 'retrying':
        return this.work.retry(step, outcome);
      case 'refused':
        return this.refused(step, item, outcome);
      // Saved, or standing; what else there may be is no part of this protocol.
      default: {
        const entry = outcome.status === 'saved' ? entryOf(item, outcome) : undefined;
        return entry === undefined ? this.missing(step) : this.know(step, entry);
      }
    }
  }

  private hasSaved(entry: number): void {
    this.history.saved(entry);
    this.progress = true;
    this.work.recordStarts = false;
  }

  /** A result that can't be saved fails its step at once (S3). A start is refused when the run is ending (Z1). */
  private refused(step: Step, item: Item, outcome: ItemOutcome): void {
    if (this.ending !== undefined) return this.steps.move(step, 'dropped');
    const said = outcome.error ?? { name: 'Error', message: 'the server refused the save' };
    const error = new Encoded(JSON.stringify(said));
    if (item.kind === 'run' && item.op !== 'failed')
      return this.work.send(step, 'saving', failedItem(step, { ...item, error, retriable: false }));
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
    this.fatal(disagreement(detail));
  }

  /** Lines of the log that no save took with it get one of their own. */
  private sendLines(): void {
    if (this.phase !== 'playing' || this.lines.isEmpty) return;
    this.lines.areDue = true;
    this.effects.push({ do: 'save', pause: false });
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

  private fatal(problem: Problem): void {
    this.failed({ error: new Encoded(JSON.stringify(problem)), retriable: false });
  }

  /** What a handler gives is nobody's. */
  private completed({ output, part }: Input & { on: 'completed' }): void {
    if (this.isFrozen(part)) return this.frozen?.ended();
    if (part !== undefined) return this.finished({ type: 'completed' });
    const error = tooLarge("The workflow's output", output, this.work.resultBytesMax);
    if (error !== undefined) return this.failed({ error, retriable: false });
    this.finished({ type: 'completed', output, ...unaskedIn(this.history.unasked) });
  }

  private restarted(payload: Encoded | undefined): void {
    if (this.frozen !== undefined) return this.frozen.ended();
    this.finished({ type: 'restarted', payload });
  }

  /** The function's end. Bodies that still run are stopped, unless the code is tried again and needs them (H6). */
  private finished(end: EndMessage): void {
    if (this.phase !== 'playing' || this.fate !== undefined) return;
    this.fate = end;
    if (this.steps.count('running') === 0 || this.isTriedAgain) return;
    this.abort('over');
    this.effects.push({ do: 'allow', ms: ALLOWANCE_MS });
  }

  /** The function has thrown, and is called again: it needs what runs. */
  private get isTriedAgain(): boolean {
    return this.fate?.retriable === true && this.message.run.attempt <= this.settings.retries;
  }

  private abandon(): void {
    const isOfCode = this.isPatient === true || this.fate === undefined;
    this.isPatient = false;
    if (isOfCode) return;
    this.abandoned = this.steps.in('running');
    for (const step of this.abandoned) this.steps.move(step, 'dropped');
  }

  private abort(why: 'over' | Ending['reason'] | 'superseded'): void {
    this.work.isAborted = true;
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
    if (this.phase !== 'answered' && this.connected)
      this.effects.push({ do: 'answer', message: this.end({ type: 'over' }), keep: false });
    this.over();
  }

  private over(): void {
    this.phase = 'over';
    this.effects.push({ do: 'over' });
  }

  /** What is unsaved has no way left but the answer: every try failed for too long, or there is no time for another (C11). */
  private get isSilenced(): boolean {
    return this.unreachable || (this.hurry !== undefined && this.outbox.isFailing);
  }

  /** What follows from where things stand, once the code rests. */
  private advance(): void {
    const isCutOff = this.isSilenced && this.connected;
    const isBeginning = this.phase === 'binding' || this.phase === 'claiming';
    if (isBeginning && (isCutOff || this.hurry === 'stopping')) return this.answer(this.yielded());
    if (this.phase !== 'playing' || this.turn !== 'none') return;
    if (isCutOff && this.steps.count('running') === 0) return this.answer(this.conclusion());
    if (this.ending !== undefined || this.fate !== undefined) {
      if (this.ending === undefined && this.isTriedAgain) this.work.start(true);
      if (this.work.isQuiet && !this.tell()) this.answer(this.conclusion());
      return;
    }
    if (this.release() || isCutOff) return;
    const hurries = this.hurry === 'stopping' || (this.hurry === 'time' && this.progress);
    const isFrozen = this.frozen !== undefined && this.closing?.isHandling !== true;
    if (isFrozen && !hurries && !this.unfreeze(this.frozen)) return;
    this.work.start(hurries);
    if (!this.work.isQuiet) return;
    if (hurries) this.answer(this.yielded());
    else if (this.work.isBlocked) this.answer(this.suspended());
  }

  /** What follows once the frozen function rests; false where nothing is left to be started. */
  private unfreeze(frozen: Frozen): boolean {
    if (!frozen.isAtRest) return false;
    if (this.closing === undefined) {
      this.verified();
      return false;
    }
    if (this.isPatient !== false && this.closing.isMissing) {
      if (this.isPatient === undefined) this.effects.push({ do: 'allow', ms: ALLOWANCE_MS });
      this.isPatient = true;
      return false;
    }
    const next = this.closing.next();
    if (typeof next === 'object') this.undo(next);
    else if (next === undefined) this.finish();
    else {
      // A handler's steps are counted apart.
      this.identity = new Identity(this.message, this.history, this.steps);
      this.call({ do: 'play', part: next, entries: this.closing.entries });
    }
    return typeof next === 'object';
  }

  /** Runs what the code gave to `step.undo`, unless it is under way. */
  private undo(undo: Undo): void {
    if (this.steps.get(undo.of) !== undefined) return;
    const step = undoStep(undo, this.settings.retries);
    this.steps.add(step);
    if (undo.id !== undefined) return this.work.begin(step, this.identity.retryOf(step));
    const error = new Encoded(JSON.stringify(undoMissing(step.name)));
    this.work.send(step, 'saving', failedItem(step, { error, retriable: false }));
  }

  /** All is done that a closing has to do. */
  private finish(): void {
    this.fate = { type: 'completed' };
    if (this.work.isQuiet) this.answer(this.fate);
  }

  private verified(): void {
    if (this.frozen === undefined || this.phase !== 'playing') return;
    this.effects.push({ do: 'verified', message: this.frozen.verified(this.history.unasked) });
    this.over();
  }

  /** Says once what the code has left behind where it ended well; true where that has to be heard before the answer. */
  private tell(): boolean {
    const { type } = this.conclusion();
    if (this.hasTold || (type !== 'completed' && type !== 'restarted')) return false;
    this.hasTold = true;
    const left = leftIn(this.steps, this.trees, this.abandoned);
    if (left.length > 0) this.effects.push({ do: 'tell', left }, { do: 'rest' });
    return left.length > 0;
  }

  /** A run that is ending takes no other end (Z1). */
  private conclusion(): EndMessage {
    return this.ending === undefined && this.fate !== undefined ? this.fate : this.yielded();
  }

  private yielded(): EndMessage {
    return yielded(this.history.seen, this.hurry === 'stopping' || this.isSilenced);
  }

  private suspended(): EndMessage {
    const { steps, trees, history, work } = this;
    const end = suspended(history.seen, { steps, trees, register: work.registrations });
    return this.closing === undefined ? { ...end, ...unaskedIn(history.unasked) } : end;
  }

  private answer(end: EndMessage): void {
    const message = this.end(end);
    this.outbox.addTo(message);
    const keep = message.unsaved !== undefined;
    this.phase = 'answered';
    this.fate = message;
    this.effects.push(this.connected ? { do: 'answer', message, keep } : { do: 'end', message });
  }

  private end(end: EndMessage): EndMessage {
    return { ...end, nonce: this.fence.nonce, manifest: this.settings.manifest };
  }
}
