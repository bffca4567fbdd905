import type { Effect, Settled } from './effect.js';
import { askItem, completedItem, failedItem, isTooMuch, startItem } from './item.js';
import type { CallMessage, Item, ItemOutcome, StepName, WaitItem } from './message.js';
import type { Outbox } from './outbox.js';
import type { Step, Steps } from './step.js';

/** From this cut on, bodies run one at a time (C13). */
const SERIAL_CUTS_MIN = 5;
/** What a suspended answer registers, in UTF-16 units: beside its list of waits it fits into a request to the API (C10). */
const REGISTER_UNITS_MAX = 1024 * 1024;
const RESULT_BYTES_MAX = 4 * 1024 * 1024;

/** Takes the steps that the code asks for to their bodies, and to the server: starts, retries, registrations and saves. */
export class Work {
  /** Starts are recorded before bodies (C13). */
  recordStarts: boolean;
  /** Signals are aborted: what a body throws now is no failure (H7). */
  isAborted = false;
  private readonly message: CallMessage;
  private readonly steps: Steps;
  private readonly outbox: Outbox;
  private readonly effects: Effect[];
  /** What a result or the run's output may have. */
  readonly resultBytesMax: number;
  /** Steps whose turn has come, in the order in which the code asked. */
  private startable: Step[] = [];
  /** Waits that the code asks for and nobody knows of yet, in the same order. */
  private unregistered: Step[] = [];

  /** `effects` is the playing's: what is to be done is added to it. */
  constructor(message: CallMessage, steps: Steps, outbox: Outbox, effects: Effect[]) {
    this.message = message;
    this.steps = steps;
    this.outbox = outbox;
    this.effects = effects;
    this.resultBytesMax = message.limits?.resultBytes ?? RESULT_BYTES_MAX;
    this.recordStarts = message.call.cuts > 0;
  }

  /** The step starts when the code rests, or after the pause that it is in. */
  begin(step: Step, retry: { readonly attempt: number; readonly due: boolean } | undefined): void {
    if (retry !== undefined) step.attempt = retry.attempt + 1;
    if (retry === undefined || retry.due) this.startable.push(step);
    else this.steps.move(step, 'pausing');
  }

  /** The wait is registered when the code rests. */
  register(wait: Step): void {
    this.unregistered.push(wait);
  }

  due(of: StepName): void {
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

  /**
   * The code rests: what it asked for starts. In a call that `hurries` to its end only a step at most once does whose start is
   * recorded: the next call would take it for cut off (S5).
   */
  start(hurries: boolean): void {
    const serial = this.message.call.cuts >= SERIAL_CUTS_MIN;
    const left: Step[] = [];
    for (const step of this.startable) {
      if (step.state !== 'asked') continue;
      if (hurries && !(startItem(step).once && step.next !== 'start')) left.push(step);
      else if (step.ask.op !== 'run') this.send(step, 'saving', askItem(step));
      else if (serial && !this.isQuiet) left.push(step);
      else if (step.next === 'start' && this.isRecorded(step)) this.send(step, 'starting', startItem(step));
      else this.run(step);
    }
    this.startable = left;
    if (!hurries) this.registerWaits();
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

  settled(input: Settled): void {
    const step = this.steps.at(input.id);
    if (step?.state !== 'running' || step.attempt !== input.attempt) return;
    if (input.on === 'threw' && this.isAborted) return this.steps.move(step, 'dropped');
    if (input.on === 'found' && input.output === undefined) {
      step.next = 'body';
      return this.startAgain(step);
    }
    const isFailed = input.on === 'threw';
    const item = isFailed ? failedItem(step, input) : completedItem(step, input, this.resultBytesMax);
    this.send(step, 'saving', item);
  }

  send(step: Step, state: Step['state'], item: Item): void {
    this.steps.move(step, state);
    this.put(item);
  }

  put(item: Item): void {
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
    if (!isActive && !(this.isQuiet && isTooMuch(this.registrations, REGISTER_UNITS_MAX))) return;
    for (const step of this.unregistered) this.send(step, 'registering', askItem(step));
    this.unregistered = [];
  }

  /** What registers the waits that nobody knows of yet. */
  get registrations(): WaitItem[] {
    return this.unregistered.map((step) => askItem(step) as WaitItem);
  }

  /** The start is recorded. Before a repeat, and first in a replay, the step's check looks (S4). */
  started(step: Step, { again, checkInMs = 0 }: ItemOutcome): void {
    const repeats = again === true || step.attempt > 1 || this.message.run.replayOf !== null;
    step.next = step.ask.op === 'run' && step.ask.check && repeats ? 'check' : 'body';
    if (step.next === 'check' && checkInMs > 0) return this.pause(step, 'delayed', checkInMs);
    this.startAgain(step);
  }

  retry(step: Step, outcome: ItemOutcome): void {
    step.attempt = (outcome.attempt ?? step.attempt) + 1;
    step.next = 'start';
    this.pause(step, 'pausing', outcome.retryInMs ?? 0);
  }

  private pause(step: Step, state: 'delayed' | 'pausing', ms: number): void {
    this.steps.move(step, state);
    const { name, number } = step;
    this.effects.push({ do: 'pause', name, number, ms });
  }

  /** Nothing runs, and nothing is to be saved. */
  get isQuiet(): boolean {
    return this.steps.count('running') === 0 && !this.outbox.isSending && this.outbox.isEmpty;
  }

  /** The code waits for steps that only the server can bring on. */
  get isBlocked(): boolean {
    return this.steps.count('delayed') === 0 && this.steps.count('pausing', 'open', 'asked') > 0;
  }
}
