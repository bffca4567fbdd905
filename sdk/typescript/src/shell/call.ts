import type { Left } from '../core/end.js';
import type { Ask, Combinator, Effect, Input, Part } from '../core/effect.js';
import type {
  CallMessage,
  EndMessage,
  Entry,
  Fence,
  LogLine,
  News,
  RunMessage,
  Save,
  SaveOutcome,
  StepName,
} from '../core/message.js';
import { Playing } from '../core/playing.js';
import { type Encoded, stringify } from '../core/text.js';
import { encodeError, stepError } from '../core/thrown.js';
import { encode } from '../core/value.js';
import { isFinal, isStepError, type NelkapError } from '../errors.js';
import { type Log, logTo, withFields } from '../log.js';
import type { Nelkap } from '../nelkap.js';
import type { StepContext } from '../step.js';
import type { WorkflowContext } from '../workflow.js';
import { type Attempt, attempt } from './attempt.js';
import { type Definition, RETRIES_DEFAULT } from './definition.js';
import type { Destination } from './destination.js';
import { failureOf } from './failure.js';
import { idempotencyKey } from './key.js';
import { written } from './line-text.js';
import { onceKey } from './once.js';
import { pause, pauseMs } from './pause.js';
import { payloadFor } from './payload.js';
import { retryAfterMs } from './retry-after.js';
import { type Clock, macrotask, randomHex, shared } from './process.js';
import { close, type RunScope, type Scope } from './scope.js';

/** What a call's connection is to be answered: a text of ours, a failure that counts as a cut, or nothing more. */
export type CallAnswer = { is: 'answer'; text: string } | { is: 'cut' } | { is: 'none' };

/** What a call is given by the handler. */
export interface CallOptions {
  readonly message: CallMessage;
  readonly definition: Definition;
  readonly manifest: string;
  readonly destination: Destination;
  readonly log: Log;
  /** The client, bound to a scope (K2). */
  readonly bind: (scope: Scope) => Nelkap;
  /** The host's time limit, less what an answer takes. */
  readonly yieldAfterMs: number | undefined;
  readonly onOver: (call: Call) => void;
  /** The code is played to see what it asks for, for so long at most; the call speaks to nobody (D3). */
  readonly verifyMs?: number | undefined;
  /** The time that its bodies and pauses take; else the process's clock. */
  readonly clock?: Clock;
  readonly hooks?: Hooks;
}

/** Where `nelkap/testing` takes part in a call. Nobody else does. */
export interface Hooks {
  /** What runs in place of a step's function or check. */
  body(step: StepName, isCheck: boolean, fn: StepBody): StepBody;
  /** The step's idempotency key. */
  key(step: StepName): string;
  /** The code is about to start a run of a workflow. */
  names(definition: Definition): void;
  /** The code has written a line of the run's log. */
  wrote(line: LogLine): void;
}

export type StepBody = (context: StepContext) => unknown;

/** A step that the code asks for. */
export interface AskedStep {
  /** Whose code asks; the function's, unless it says so. */
  part?: Part;
  name: string;
  /** Its name before it was renamed (S7). */
  was?: string | undefined;
  ask: Ask;
  /** What the code gets of a completed entry; its output otherwise. */
  receive?: (entry: Entry) => unknown;
  body?: Body;
}

/** What a step does, where it has a body. */
interface Body {
  fn: StepBody;
  check?: StepBody | undefined;
  timeoutMs: number | undefined;
}

type Payload = { value: unknown } | { error: unknown };

interface Waiting extends AskedStep {
  resolve: (value: unknown) => void;
  reject: (error: unknown) => void;
}

/** Which promises are steps of a call, or combinations of them (H4). */
export const asSteps: WeakMap<object, { readonly call: Call; readonly id: number; readonly part: Part }> =
  new WeakMap();

/** After so long lines of the log are sent, though nothing is saved with which they could travel. */
const LOG_MS = 1_000;

/** How often a page of saved steps is asked for: its failure is a cut (H5), so trying a while is cheaper. */
const READ_TRIES_MAX = 6;

/**
 * Carries out what a playing decides: runs the user's functions, keeps their promises, timers and signals. When the
 * playing is over it lets go of everything: promises of steps stay pending for ever (H7), and nothing refers to them.
 */
export class Call {
  readonly fence: Fence;
  readonly manifest: string;
  readonly heartbeatMs: number;
  readonly since: number;
  readonly message: CallMessage;
  readonly destination: Destination;
  readonly log: Log;
  readonly clock: Clock;
  readonly hooks: Hooks | undefined;
  readonly answer: Promise<CallAnswer>;
  /** Settles when the answer was delivered, the end accepted, or the call is over otherwise. */
  readonly ended: Promise<void>;
  /** A newer call has begun, or the run has ended: what its code still does must leave no mark. */
  isSuperseded = false;
  private readonly playing: Playing;
  private readonly options: CallOptions;
  private readonly controller = new AbortController();
  private readonly waiting = new Map<number, Waiting>();
  /** In a closing, what the code gave to `step.undo`: the bodies outlive their steps (protocol, section 5). */
  private readonly undos = new Map<number, Body>();
  private readonly attempts = new Set<Attempt>();
  private readonly timers = new Set<() => void>();
  private readonly inputs: Input[] = [];
  private keyTurn: Promise<unknown> = Promise.resolve();
  private asked = 0;
  private isApplying = false;
  private isBroken = false;
  private isKept = false;
  private isLost = false;
  private hasBegun = false;
  private hasAnswered = false;
  /** Takes back what follows when every try has failed for too long; undefined while none has. */
  private unsilence: (() => void) | undefined;
  private payload: Payload | undefined;
  /** The run as the call came with it, for the handler: the function may change its own. */
  private sent: RunMessage | undefined;
  private handlerPayload: Payload | undefined;
  private hasLines = false;
  private settleAnswer: (answer: CallAnswer) => void = () => {};
  private settleEnded: () => void = () => {};

  constructor(options: CallOptions) {
    this.options = options;
    this.message = options.message;
    this.destination = options.destination;
    this.manifest = options.manifest;
    this.log = options.log;
    this.heartbeatMs = options.message.call.heartbeatMs;
    this.clock = options.clock ?? shared().clock;
    this.hooks = options.hooks;
    this.since = this.clock.now();
    this.playing = new Playing(options.message, {
      nonce: randomHex(16),
      manifest: options.manifest,
      retries: this.retries,
      handler: this.handler,
      isVerifying: this.isVerifying,
    });
    this.fence = this.playing.fence;
    this.answer = new Promise((resolve) => (this.settleAnswer = resolve));
    this.ended = new Promise((resolve) => (this.settleEnded = resolve));
  }

  /** See `Playing.known`. */
  get known(): number | undefined {
    return this.playing.known;
  }

  /** How often a step of the workflow is tried again where it does not say so itself. */
  get retries(): number {
    return this.options.definition.retries ?? RETRIES_DEFAULT;
  }

  /** The handler that the run's end asks for, where the workflow has it. */
  private get handler(): Part {
    const { ending } = this.message;
    if (ending === undefined) return undefined;
    const part = ending.reason === 'cancelled' ? 'onCancel' : 'onFailure';
    return this.options.definition[part] === undefined ? undefined : part;
  }

  private get isVerifying(): boolean {
    return this.options.verifyMs !== undefined;
  }

  get isOver(): boolean {
    return this.isBroken || this.playing.isOver;
  }

  /** Begins. The payload is checked first, so that the code's first turn begins with its first line. */
  async start(late: boolean, isConnected: () => boolean): Promise<void> {
    const { definition, yieldAfterMs, verifyMs } = this.options;
    const { payload } = this.message.run;
    if (this.handler !== undefined) {
      this.sent = structuredClone(this.message.run);
      this.handlerPayload = await payloadFor(definition, structuredClone(payload));
    }
    this.payload = await payloadFor(definition, payload);
    const once = this.onceKey();
    this.hasBegun = true;
    if (verifyMs === undefined) this.destination.add(this);
    else this.after(verifyMs, () => this.apply({ on: 'late' }));
    if (yieldAfterMs !== undefined) this.after(yieldAfterMs, () => this.hurry('time'));
    if (!isConnected()) this.isLost = true;
    if (this.isLost) this.destination.urge(this);
    this.apply({ on: 'start', late, connected: isConnected(), once });
  }

  /** The key that the run must own (K4), unless it was claimed in an earlier call. What is wrong with it fails the run. */
  private onceKey(): string | undefined {
    const { definition } = this.options;
    const isClaimed = this.message.steps.entries.some(({ kind, name }) => kind === 'claim' && name === '');
    if (isClaimed || this.isVerifying || this.message.ending !== undefined) return undefined;
    if (this.payload === undefined || 'error' in this.payload) return undefined;
    try {
      return onceKey(definition, this.payload.value);
    } catch (error) {
      this.payload = { error };
      return undefined;
    }
  }

  // What happens to a call from outside.

  /** Its connection is gone. An answer on its way then comes through the API (C10). */
  disconnected(): void {
    if (this.isOver) return;
    this.isLost = true;
    // Before it has begun there is nothing to name; the beginning does it.
    if (this.hasBegun) this.destination.urge(this);
    this.apply({ on: 'disconnected' });
    if (this.hasAnswered && !this.isKept) this.undelivered();
  }

  private undelivered(): void {
    this.isKept = true;
    this.apply({ on: 'undelivered' });
  }

  /** Its answer was handed over. */
  delivered(): void {
    this.settleEnded();
    if (!this.isKept) this.apply({ on: 'delivered' });
  }

  endAccepted(): void {
    this.apply({ on: 'delivered' });
  }

  hurry(why: 'stopping' | 'time'): void {
    this.apply({ on: 'hurry', why });
  }

  news(news: News): void {
    this.apply({ ...news, on: 'news' });
  }

  nextSave(): Save | null {
    return this.playing.nextSave();
  }

  saved(outcome: SaveOutcome): void {
    if (this.unsilence !== undefined && !this.isLost) this.destination.calm(this);
    this.unsilence?.();
    this.unsilence = undefined;
    this.apply({ on: 'saved', outcome });
  }

  /** A save failed, and nothing has come from the server since `silentSince`, whatever was sent to it. */
  unsent(silentSince: number): void {
    // By a timer, which a clock that is set back does not hold up.
    const silentMs = Math.max(0, this.clock.now() - silentSince);
    this.unsilence ??= this.clock.after(this.playing.outageMs - silentMs, () => this.apply({ on: 'silent' }));
    this.apply({ on: 'unsent' });
  }

  /** The code asks for a step. The promise stays pending when the call is over first. */
  step(step: AskedStep): Promise<unknown> {
    const id = this.asked++;
    const result = new Promise((resolve, reject) => {
      if (!this.isOver) this.waiting.set(id, { ...step, resolve, reject });
    });
    // Awaited later or never, its rejection must not end the process (D6).
    result.catch(() => {});
    const { part, name, was, ask, body } = step;
    const isClosing = this.message.ending !== undefined;
    if (ask.op === 'undo' && body !== undefined && isClosing) this.undos.set(id, body);
    asSteps.set(result, { call: this, id, part });
    this.apply({ on: 'asked', id, name, was, ask, part });
    return result;
  }

  /** The code waits for several of its steps as one (H4). */
  combine(how: Combinator, of: readonly number[], part: Part): number {
    const id = this.asked++;
    this.apply({ on: 'combined', id, how, of, part });
    return id;
  }

  /** The code begins again with a new payload (Z2). User code never sees its call end (H7). */
  restart(payload: Encoded | undefined): Promise<never> {
    this.apply({ on: 'restarted', payload });
    return new Promise(() => {});
  }

  /** The log of the code in a scope: writes where the app's messages go, and to the run's log (protocol, section 6). */
  logFor(scope: Scope, tries = 1): Log {
    const step =
      scope.kind === 'step' ? { name: scope.name, number: scope.number, attempt: tries } : undefined;
    const part = scope.kind === 'run' ? scope.part : undefined;
    const local = withFields(this.log, step === undefined ? {} : { step: step.name, attempt: tries });
    return logTo((level, message, fields) => {
      const at = new Date(this.clock.now()).toISOString();
      const line = this.playing.log(() => written(at, level, message, fields), step, part);
      if (line === undefined) return;
      local[level](message, fields);
      this.hooks?.wrote(line);
      if (this.hasLines || this.isOver) return;
      this.hasLines = true;
      this.after(LOG_MS, () => this.linesAreDue(), this.destination.clock);
    });
  }

  private tell(left: readonly Left[]): void {
    const at = new Date(this.clock.now()).toISOString();
    for (const { message, ...step } of left) {
      this.log.warn(message);
      const line = this.playing.log(() => written(at, 'warn', message, undefined), step, undefined);
      if (line !== undefined) this.hooks?.wrote(line);
    }
  }

  private linesAreDue(): void {
    this.hasLines = false;
    this.apply({ on: 'logs due' });
  }

  /** Whatever code is in the call's hands when something of ours fails: the server takes it for a cut. */
  private broken(error: unknown): void {
    this.isBroken = true;
    this.log.error('the SDK failed while playing a run', { error });
    this.settleAnswer({ is: 'cut' });
    this.forget();
  }

  private apply(input: Input): void {
    this.inputs.push(input);
    // Effects of one input are carried out before the next; what they bring about waits its turn.
    if (this.isApplying || this.isBroken) return;
    this.isApplying = true;
    try {
      for (let next = this.inputs.shift(); next !== undefined; next = this.inputs.shift()) {
        for (const effect of this.playing.apply(next)) this.carryOut(effect);
      }
    } catch (error) {
      this.broken(error);
    } finally {
      this.isApplying = false;
    }
  }

  private carryOut(effect: Effect): void {
    switch (effect.do) {
      case 'play':
        return void this.play(effect);
      case 'rest':
        return void macrotask(() => this.apply({ on: 'rested' }));
      case 'fetch':
        return void this.read(effect.after);
      case 'body':
      case 'check':
        return this.body(effect);
      case 'save':
        return effect.pause ? this.destination.saveAgain(this) : this.destination.save(this);
      case 'release':
        return this.release(effect.id, effect.entry);
      case 'pause':
        return this.after(effect.ms, () =>
          this.apply({ on: 'due', name: effect.name, number: effect.number }),
        );
      case 'abort':
        return this.abort(effect.why);
      case 'allow':
        return this.after(effect.ms, () => this.apply({ on: 'allowance over' }));
      case 'tell':
        return this.tell(effect.left);
      case 'answer':
        return this.answered(effect.message, effect.keep);
      case 'verified':
        return this.settleAnswer({ is: 'answer', text: stringify(effect.message) });
      case 'end':
        this.isKept = true;
        this.settleAnswer({ is: 'none' });
        return this.destination.end(this, effect.message);
      case 'cut':
        return this.settleAnswer({ is: 'cut' });
      case 'over':
        return this.forget();
    }
  }

  private after(ms: number, then: () => void, clock: Clock = this.clock): void {
    const cancel = clock.after(ms, () => {
      this.timers.delete(cancel);
      then();
    });
    this.timers.add(cancel);
  }

  private answered(message: EndMessage, keep: boolean): void {
    this.hasAnswered = true;
    this.settleAnswer({ is: 'answer', text: stringify(message) });
    if (!keep) return;
    this.isKept = true;
    this.destination.end(this, message);
  }

  private abort(why: 'over' | 'superseded' | 'cancelled' | 'timedOut'): void {
    const reason = abortError(why);
    if (why === 'superseded') this.isSuperseded = true;
    if (why !== 'over') this.controller.abort(reason);
    for (const each of this.attempts) each.abort(reason);
  }

  private forget(): void {
    for (const cancel of this.timers) cancel();
    this.timers.clear();
    this.unsilence?.();
    this.waiting.clear();
    this.undos.clear();
    for (const each of this.attempts) each.forget();
    this.attempts.clear();
    this.settleAnswer({ is: 'none' });
    if (!this.isVerifying) this.destination.remove(this);
    this.settleEnded();
    this.options.onOver(this);
  }

  // The user's code.

  private async play({ part, entries = [] }: Effect & { do: 'play' }): Promise<void> {
    const isFrozen = part === undefined && (this.isVerifying || this.message.ending !== undefined);
    const scope: RunScope = { kind: 'run', call: this, part, isFrozen, closed: false };
    try {
      const output = await this.within(scope, () =>
        part === undefined ? this.callFunction(scope) : this.callHandler(scope, part, entries),
      );
      // What a handler gives is nobody's.
      const encoded = part === undefined ? encode(output, 'output') : undefined;
      this.apply({ on: 'completed', output: encoded, part });
    } catch (error) {
      const retriable = !isFinal(error) && !isStepError(error);
      const retry = { retriable, retryAfterMs: retryAfterMs(error) };
      this.apply({ on: 'failed', error: encodeError(error), ...retry, part });
    } finally {
      close(scope);
    }
  }

  private callFunction(scope: RunScope): unknown {
    const { payload } = this;
    this.payload = undefined;
    if (payload === undefined || 'error' in payload) throw payload?.error;
    return this.options.definition.fn?.(payload.value, this.context(scope, this.message.run));
  }

  /** A payload that does not fit is handed over as it came: the run may have failed for it. */
  private callHandler(scope: RunScope, part: 'onFailure' | 'onCancel', entries: readonly Entry[]): unknown {
    const { sent: run = this.message.run, handlerPayload: given } = this;
    const payload = given !== undefined && 'value' in given ? given.value : structuredClone(run.payload);
    const failure = failureOf(run, this.message.ending, payload, entries);
    return this.options.definition[part]?.(failure, this.context(scope, run));
  }

  private within<T>(scope: Scope, fn: () => T): T {
    const { context } = shared();
    return context === undefined ? fn() : context.run(scope, fn);
  }

  private context(scope: RunScope, run: RunMessage): WorkflowContext {
    const { id, workflow, app, key, replayOf, createdAt, attempt: tries, event } = run;
    const nelkap = this.options.bind(scope);
    return {
      run: { id, workflow, app, key, replayOf, createdAt, attempt: tries },
      event: event === null ? null : { ...event, payload: event.payload },
      signal: this.controller.signal,
      log: this.logFor(scope),
      nelkap,
      step: nelkap.step,
    };
  }

  private body({ do: does, id, name, number, attempt: tries }: Effect & { do: 'body' | 'check' }): void {
    const body = this.undos.get(id) ?? this.waiting.get(id)?.body;
    const fn = does === 'check' ? body?.check : body?.fn;
    if (fn === undefined) return;
    const isCheck = does === 'check';
    const running = attempt({
      call: this,
      step: { name, number },
      tries,
      fn: this.hooks?.body({ name, number }, isCheck, fn) ?? fn,
      isCheck,
      timeoutMs: body?.timeoutMs,
      key: this.keyOf({ name, number }),
      bind: this.options.bind,
      within: (scope, part) => this.within(scope, part),
      settle: (outcome) => {
        this.attempts.delete(running);
        this.apply({ ...outcome, id, attempt: tries });
      },
    });
    this.attempts.add(running);
  }

  /** Keys are made side by side and given in the order of the asking, so that bodies start in that order. */
  private keyOf(step: StepName): Promise<string> {
    const made = this.hooks?.key(step);
    const key = made === undefined ? idempotencyKey(this.message.run, step) : Promise.resolve(made);
    const turn = this.keyTurn.then(() => key);
    this.keyTurn = turn;
    return turn;
  }

  private release(id: number, entry: Entry): void {
    const step = this.waiting.get(id);
    this.waiting.delete(id);
    const { status, output, error, name, attempts = 1, kind } = entry;
    if (status === 'failed') return step?.reject(stepError(error, name, attempts, kind));
    try {
      step?.resolve(step.receive === undefined ? output : step.receive(entry));
    } catch (misread) {
      step?.reject(misread);
    }
  }

  private async read(after: number): Promise<void> {
    const { clock } = this;
    for (let fails = 0; fails < READ_TRIES_MAX; fails++) {
      try {
        const page = (await this.destination.read(this, after, this.controller.signal)) as {
          entries: Entry[];
          next: number | null;
        };
        return this.apply({ on: 'page', entries: page.entries, next: page.next ?? null });
      } catch (error) {
        const { code } = error as Partial<NelkapError>;
        if (code === 'superseded' || code === 'ended') return this.apply({ on: 'unread', status: code });
        if (this.isOver) return;
        this.destination.urge(this);
        await pause(clock, pauseMs(fails, this.heartbeatMs / 2), this.controller.signal);
      }
    }
    this.apply({ on: 'unread', status: 'failed' });
  }
}

const reasons = {
  over: 'the workflow has ended, and does not wait for this step',
  superseded: 'a newer call of this run has begun, or the run has ended',
  cancelled: 'the run was cancelled',
  timedOut: 'the run took longer than its timeout',
};

function abortError(why: keyof typeof reasons): Error {
  const error = new Error(reasons[why]);
  error.name = 'AbortError';
  return error;
}
