import type { CallMessage, EndMessage, Save, SaveOutcome } from '../core/message.js';
import { encodeError } from '../core/thrown.js';
import { encode } from '../core/value.js';
import type { NewEvent, StoredEvent } from '../event.js';
import type { Log } from '../log.js';
import type { Definition } from '../shell/definition.js';
import { randomHex } from '../shell/process.js';
import { typeId } from '../shell/key.js';
import { Claims } from './claim.js';
import { Endings } from './ending.js';
import { compile, type FilterError, isMatch } from './filter.js';
import type { Point } from './point.js';
import { type Asked, Process, type Reply, type Surroundings } from './process.js';
import { Saves } from './save.js';
import { Sends } from './send.js';
import {
  copyOf,
  failure,
  instantOf,
  type Part,
  RunState,
  type Value,
  type WaitJson,
  type Waiting,
} from './state.js';
import { type Due, Timers } from './timers.js';

/** Calls that one world may take: a run that needs more goes round in circles. */
const CALLS_MAX = 5_000;
const LIMITS = { steps: 10_000, resultBytes: 4 * 1024 * 1024 };

export interface WorldOptions {
  readonly fakeOf: Surroundings['fakeOf'];
  readonly parts: ReadonlyMap<string, Part>;
  readonly filters: Readonly<Record<string, (event: StoredEvent) => boolean>>;
  readonly claimed: readonly string[];
  readonly log: Log;
  readonly now: number;
  readonly cutsHere: Surroundings['cutsHere'];
  /** Called for each function of a step that begins; what it throws ends the world. */
  readonly onBody: () => void;
  /** Called when a step has made a callback. */
  readonly onCallback: (step: string) => void;
}

/**
 * A server in miniature, in memory: it keeps runs, events, waits and time by the protocol's rules, and plays runs with the SDK, one call
 * at a time. Its time stands still until it is told to go on.
 */
export class World implements Surroundings {
  now: number;
  readonly log: Log;
  readonly runs: RunState[] = [];
  readonly events: StoredEvent[] = [];
  /** Events whose time has not come. */
  private readonly later = new Set<StoredEvent>();
  readonly sends: Sends;
  private readonly options: WorldOptions;
  private readonly timers = new Timers();
  private readonly saves: Saves;
  private readonly endings = new Endings(this);
  private readonly known = new Map<string, Definition>();
  private readonly queue: RunState[] = [];
  private readonly open = new Set<Process>();
  private calls = 0;
  private problem: { error: unknown } | undefined;

  constructor(options: WorldOptions) {
    this.options = options;
    this.now = options.now;
    this.log = options.log;
    this.sends = new Sends(this);
    this.saves = new Saves(this, new Claims(options.claimed), options.onCallback);
  }

  // What processes ask.

  cutsHere(process: Process, point: Point): boolean {
    return this.options.cutsHere(process, point);
  }

  fakeOf(step: string, isCheck: boolean): ReturnType<Surroundings['fakeOf']> {
    return this.options.fakeOf(step, isCheck);
  }

  names(definition: Definition): void {
    if (definition.fn !== undefined && !this.known.has(definition.name))
      this.known.set(definition.name, definition);
  }

  bodyBegins(): void {
    try {
      this.options.onBody();
    } catch (error) {
      this.broken(error);
    }
  }

  after(ms: number, then: () => void): () => void {
    return this.timers.after(this.now, ms, then);
  }

  request(process: Process, request: Asked): Promise<Reply> {
    return this.sends.request(process, request);
  }

  /** Nothing that follows would be right. */
  broken(error: unknown): void {
    this.problem ??= { error };
    for (const process of this.open) process.stir();
    for (const run of this.runs) run.process?.cut();
  }

  // Runs.

  partOf(workflow: string): Part | undefined {
    const given = this.options.parts.get(workflow);
    if (given !== undefined) return given;
    const definition = this.known.get(workflow);
    return definition === undefined ? undefined : { definition };
  }

  start(made: {
    workflow: string;
    app: string;
    payload: Value;
    id?: string | undefined;
    event?: RunState['event'];
    key?: string | undefined;
    replayOf?: string;
    root?: string;
    restarts?: number;
    since?: number;
    at?: number | undefined;
  }): RunState {
    const id = made.id ?? typeId('run', this.now);
    const run = new RunState({
      id,
      part: this.partOf(made.workflow),
      workflow: made.workflow,
      app: made.app,
      payload: made.payload,
      event: made.event ?? null,
      key: made.key ?? null,
      replayOf: made.replayOf ?? null,
      root: made.root ?? id,
      restarts: made.restarts ?? 0,
      createdAt: this.now,
      since: made.since ?? this.events.length,
      from: Math.max(this.now, made.at ?? this.now),
    });
    this.runs.push(run);
    if (made.at !== undefined && made.at > this.now) run.dueAt = made.at;
    else this.enqueue(run);
    return run;
  }

  run(id: string): RunState | undefined {
    return this.runs.find((run) => run.id === id);
  }

  /** The run is called as soon as it can be. */
  enqueue(run: RunState): void {
    run.dueAt = undefined;
    run.isBackingOff = false;
    if (run.part === undefined || run.hasEnded || this.queue.includes(run)) return;
    run.status = 'queued';
    run.trees = [];
    this.queue.push(run);
  }

  cancel(run: RunState, reason: 'cancelled' | 'timedOut' = 'cancelled'): void {
    this.endings.cancel(run, reason);
  }

  /** Another run owns the key that the run needs (K4). */
  skip(run: RunState, owner: string): void {
    run.owner = owner;
    this.endings.finish(run, 'skipped', {});
  }

  /** A run has its final status. */
  ended(run: RunState): void {
    const at = this.queue.indexOf(run);
    if (at !== -1) this.queue.splice(at, 1);
    this.tell(run, 'ended');
    run.process = undefined;
  }

  // Playing.

  /** Plays until every run has ended or waits for time or for something from outside. Pauses of retries pass by themselves. */
  async play(): Promise<void> {
    for (;;) {
      if (this.problem !== undefined) throw this.problem.error;
      const run = this.queue.shift();
      const touched = Array.from(this.open).find((process) => process.isTouched);
      if (run !== undefined) await this.call(run);
      else if (touched !== undefined) await this.follow(touched);
      else if (Array.from(this.dues()).some((due) => due.isAuto)) this.fire(this.nextDue() as Due);
      else return;
    }
  }

  private async call(run: RunState): Promise<void> {
    if (run.hasEnded || run.part === undefined) return;
    this.calls += 1;
    run.calls += 1;
    if (this.calls > CALLS_MAX)
      throw new Error(
        `the run of '${run.workflow}' took more than ${CALLS_MAX} calls: does it go round in circles?`,
      );
    run.status = 'running';
    run.startedAt ??= this.now;
    if ('fake' in run.part) return this.playFake(run, run.part.fake);
    const process = new Process(this, run, this.calls);
    run.process = process;
    await process.begin(this.messageOf(run), run.part.definition);
    await this.follow(process);
  }

  private async playFake(run: RunState, fake: (payload: never) => unknown): Promise<void> {
    try {
      const output = encode(
        await fake(run.payload.value as never),
        `the output of the fake of '${run.workflow}'`,
      );
      this.endings.finish(run, 'completed', output === undefined ? {} : { output: output.decode() });
    } catch (error) {
      this.endings.finish(run, 'failed', { error: encodeError(error).decode() });
    }
  }

  private messageOf(run: RunState): CallMessage {
    return {
      type: 'call',
      run: run.message,
      call: {
        id: typeId('call', this.now),
        epoch: run.calls,
        token: randomHex(16),
        cuts: run.cuts,
        leaseMs: 300_000,
        heartbeatMs: 5_000,
        sentAt: instantOf(this.now),
      },
      steps: { entries: run.after(0), next: null, retrying: run.retryingAt(this.now), waiting: run.waiting },
      limits: LIMITS,
      ...(run.closing !== undefined && { ending: run.closing }),
    };
  }

  /** Goes with a call until it has ended, was cut off, or waits for the world. */
  private async follow(process: Process): Promise<void> {
    const { run } = process;
    await process.settled();
    if (process.end === undefined && !process.isCut) return void this.open.add(process);
    this.open.delete(process);
    if (run.process !== process) return;
    run.process = undefined;
    if (!process.isCut) return this.callEnded(run, process.end as EndMessage);
    run.cuts += 1;
    if (run.ending !== undefined) this.endings.conclude(run);
    else this.enqueue(run);
  }

  private callEnded(run: RunState, end: EndMessage): void {
    if (run.hasEnded || end.type === 'over') return;
    if (run.ending !== undefined) return this.endings.conclude(run);
    switch (end.type) {
      case 'completed':
        return this.endings.completed(run, end);
      case 'failed':
        return this.endings.failed(run, end);
      case 'restarted':
        return this.endings.restart(run, end);
      case 'yielded':
        return this.enqueue(run);
      case 'suspended':
        for (const item of end.register ?? []) this.register(run, item as WaitJson);
        run.trees = end.waits ?? [];
        run.status = 'waiting';
        return this.look(run);
    }
  }

  /** Calls a waiting run where what it waits for has come. */
  private look(run: RunState): void {
    if (run.status === 'waiting' && run.process === undefined && run.isAwake) this.enqueue(run);
  }

  /** Tells the call that is current of news (H2), as an answer to its poll would. */
  tell(run: RunState, status: 'entries' | 'ending' | 'ended'): void {
    const { process } = run;
    const call = process?.call;
    if (process === undefined || call === undefined || process.isCut) return;
    if (status === 'entries' && (process.isSaving || call.known === undefined)) return;
    const entries = status === 'entries' ? copyOf(run.after(call.known ?? 0, process)) : [];
    const { call: id, nonce } = call.fence;
    call.news({ call: id, nonce, status, entries, ending: run.ending ?? null });
    process.stir();
  }

  // The history.

  /** A wait has come to its end. */
  come(run: RunState, { kind, name, number }: WaitJson, result: object): void {
    if (run.hasEnded || run.entryOf({ name, number }) !== undefined) return;
    run.append({ kind, name, number, status: 'completed', ...result, by: undefined });
    this.tell(run, 'entries');
    this.look(run);
  }

  save(process: Process, save: Save): SaveOutcome {
    return this.saves.save(process, save);
  }

  // Waits.

  /** Opens a wait, unless it is open or over. */
  register(run: RunState, item: WaitJson): void {
    if (run.entryOf(item) !== undefined || run.waitOf(item) !== undefined) return;
    const wait: Waiting = {
      item,
      since: item.since === 'wait' ? this.events.length : run.since,
      dueAt: item.timeoutMs === undefined ? undefined : this.now + item.timeoutMs,
    };
    run.waits.push(wait);
    if (item.kind === 'sleep') this.sleep(wait);
    else if (item.kind === 'event') this.lookBack(run, wait);
    else if (item.kind === 'invoke') this.invoke(run, wait);
    else this.awaitCallback(run, wait);
    // A wait of no time has looked back.
    if (wait.dueAt !== undefined && wait.dueAt <= this.now) this.timedOut(run, wait);
  }

  private sleep(wait: Waiting): void {
    const { delayMs, until } = wait.item;
    wait.dueAt = until === undefined ? this.now + (delayMs ?? 0) : Date.parse(until);
  }

  private lookBack(run: RunState, wait: Waiting): void {
    for (let at = wait.since; at < this.events.length; at++) {
      const event = this.events[at] as StoredEvent;
      if (!run.used.has(at) && event.id !== run.event?.id && this.fits(wait, event))
        return this.give(run, wait, at);
    }
  }

  private give(run: RunState, wait: Waiting, at: number): void {
    run.used.add(at);
    this.come(run, wait.item, { output: copyOf(this.events[at]) });
  }

  /** Whether an open wait would take an event. */
  fits({ item }: Waiting, event: Pick<StoredEvent, 'id' | 'event' | 'payload'>): boolean {
    if (item.kind !== 'event' || item.events?.includes(event.event) !== true) return false;
    if (item.match !== undefined && !isMatch(item.match, event)) return false;
    return item.if === undefined || this.passes(item.if, event, `the wait '${item.name}'`);
  }

  private passes(
    filter: string,
    event: Pick<StoredEvent, 'id' | 'event' | 'payload'>,
    what: string,
  ): boolean {
    try {
      const given = this.options.filters[filter];
      return given === undefined ? compile(filter)(event) : given(event as StoredEvent);
    } catch (error) {
      this.broken(new Error(`${what}: ${(error as FilterError).message}`, { cause: error }));
      return false;
    }
  }

  private invoke(run: RunState, wait: Waiting): void {
    const { name, workflow = '', app = run.app } = wait.item;
    if (this.partOf(workflow) === undefined) {
      return this.broken(
        new Error(
          `the step '${name}' invokes '${workflow}', of which the kit has a reference only: give the workflow itself, or a fake, ` +
            `as workflows: { ${JSON.stringify(workflow)}: (payload) => … }`,
        ),
      );
    }
    const payload: Value = 'payload' in wait.item ? { value: wait.item.payload } : {};
    wait.child = this.start({ workflow, app, payload });
    wait.child.parent = { run, wait };
  }

  private awaitCallback(run: RunState, wait: Waiting): void {
    const { name, of } = wait.item;
    const callback = run.callbacks.find((each) => each.name === name && each.number === of);
    if (callback === undefined) return this.come(run, wait.item, failure('WaitError', notMade(name, of)));
    wait.dueAt = callback.dueAt;
    if (callback.payload !== undefined) this.come(run, wait.item, { output: postedOf(callback.payload) });
  }

  private timedOut(run: RunState, wait: Waiting): void {
    const { kind, name } = wait.item;
    if (kind === 'sleep') return this.come(run, wait.item, {});
    if (kind !== 'invoke') return this.come(run, wait.item, { output: null });
    const child = wait.child;
    this.come(
      run,
      wait.item,
      failure('TimeoutError', `the child of '${name}' did not end within its timeout`),
    );
    if (child !== undefined) this.cancel(child);
  }

  // What comes from outside.

  /** Stores an event; with an id that is there already, nothing, unless it is to come again. False then. */
  emit(
    { event, payload, id, at }: NewEvent<string>,
    isAgain = false,
  ): { stored: StoredEvent; isNew: boolean } {
    const there = [...this.events, ...this.later].find((each) => each.id === id && each.event === event);
    if (there !== undefined && !isAgain) return { stored: there, isNew: false };
    const text = encode(payload, 'payload');
    const stored = {
      id: id ?? typeId('evt', this.now),
      event,
      ...(text !== undefined && { payload: text.decode() }),
      createdAt: instantOf(this.now),
    } as StoredEvent;
    const dueAt = at === undefined ? this.now : new Date(at).getTime();
    if (dueAt <= this.now) this.store(stored);
    else {
      this.later.add(stored);
      this.timers.after(this.now, dueAt - this.now, () => this.store(stored));
    }
    return { stored, isNew: true };
  }

  private store(stored: StoredEvent): void {
    this.later.delete(stored);
    const at = this.events.push(stored) - 1;
    for (const run of this.runs) {
      if (run.hasEnded) continue;
      if (this.cancels(run, stored)) this.cancel(run);
      const wait = run.waits.find((each) => at >= each.since && this.fits(each, stored));
      if (wait !== undefined) this.give(run, wait, at);
    }
  }

  /** Whether an event cancels a run (`cancelOn`). */
  cancels(
    { part, workflow, hasEnded }: RunState,
    event: Pick<StoredEvent, 'id' | 'event' | 'payload'>,
  ): boolean {
    if (hasEnded || part === undefined || 'fake' in part) return false;
    return (part.definition.cancelOn ?? []).some(
      (trigger) =>
        trigger.event === event.event &&
        (trigger.if === undefined || this.passes(trigger.if, event, `cancelOn of '${workflow}'`)),
    );
  }

  /** Ends a callback; `name` is its step's name, its URL or its token. False where none is open. */
  post(run: RunState, name: string, payload: unknown): boolean {
    const callback = run.callbacks.find(
      (each) => each.payload === undefined && [each.name, each.url, each.token].includes(name),
    );
    const isOpen = callback !== undefined && !run.hasEnded && (callback.dueAt ?? Infinity) > this.now;
    if (!isOpen) return false;
    const text = encode(payload, 'payload');
    callback.payload = text === undefined ? {} : { value: text.decode() };
    const wait = run.waits.find(({ item }) => item.name === callback.name && item.of === callback.number);
    if (wait !== undefined) this.come(run, wait.item, { output: postedOf(callback.payload) });
    return true;
  }

  // Time.

  /** Everything that only time brings. */
  private *dues(): Iterable<Due> {
    for (const run of this.runs) {
      if (run.hasEnded) continue;
      if (run.dueAt !== undefined)
        yield { at: run.dueAt, isAuto: run.isBackingOff, fire: () => this.enqueue(run) };
      for (const retry of run.retries) {
        if (!retry.isDue) yield { at: retry.dueAt, isAuto: true, fire: () => this.retryIsDue(run, retry) };
      }
      for (const wait of run.waits) {
        const { kind } = wait.item;
        if (wait.dueAt !== undefined)
          yield {
            at: wait.dueAt,
            isTimeout: kind === 'event' || kind === 'callback',
            fire: () => this.timedOut(run, wait),
          };
      }
      if (run.timeoutAt !== undefined && run.ending === undefined && run.closing === undefined)
        yield { at: run.timeoutAt, isTimeout: true, fire: () => this.cancel(run, 'timedOut') };
      if (run.endingAt !== undefined) yield { at: run.endingAt, fire: () => this.endings.conclude(run) };
    }
    yield* this.timers.dues();
  }

  private retryIsDue(run: RunState, retry: { isDue: boolean }): void {
    retry.isDue = true;
    this.look(run);
  }

  /** What is due next; of several at one time, the first of them. */
  nextDue(): Due | undefined {
    let next: Due | undefined;
    for (const due of this.dues()) if (next === undefined || due.at < next.at) next = due;
    return next;
  }

  fire(due: Due): void {
    this.now = Math.max(this.now, due.at);
    due.fire();
  }

  /** Lets time pass, and plays what that brings. */
  async pass(ms: number): Promise<void> {
    const until = this.now + ms;
    await this.play();
    for (let due = this.nextDue(); due !== undefined && due.at <= until; due = this.nextDue()) {
      this.fire(due);
      await this.play();
    }
    this.now = Math.max(this.now, until);
  }
}

function notMade(name: string, of: number | undefined): string {
  return (
    `the step '${name}' waits for callback ${of} of its name, which this replay does not have: ` +
    `a run that had not ended has it; replay from '${name}' to make another`
  );
}

function postedOf(payload: Value): object {
  return 'value' in payload ? { payload: payload.value } : {};
}
