import type { CallMessage, EndMessage, Save, SaveOutcome } from '../core/message.js';
import type { Log } from '../log.js';
import { boundTo, Nelkap } from '../nelkap.js';
import { Call, type Hooks, type StepBody } from '../shell/call.js';
import type { Definition } from '../shell/definition.js';
import { Destination } from '../shell/destination.js';
import { type Clock, loadContext, macrotask, shared } from '../shell/process.js';
import type { Scope } from '../shell/scope.js';
import { keyOf } from './key.js';
import type { Point } from './point.js';
import type { RunState } from './state.js';

/** Macrotasks without anything new after which what waits is taken to be at rest. */
const QUIET_TURNS = 20;
/** Real time for which the functions of a call that was cut off may still run: nothing can stop them. */
const GHOST_MS_MAX = 1_000;

/** Taken when the module loads: the fake timers of a test must not hold the kit up. */
const { setTimeout: realTimeout, clearTimeout: clearRealTimeout } = globalThis;

/** What a process asks of the world that it is in. */
export interface Surroundings {
  readonly now: number;
  readonly log: Log;
  /** Whether the process is to be cut off here. */
  cutsHere(process: Process, point: Point): boolean;
  /** The function that stands in for a step's. */
  fakeOf(step: string, isCheck: boolean): ((context: never, step: never) => unknown) | undefined;
  names(definition: Definition): void;
  bodyBegins(): void;
  after(ms: number, then: () => void): () => void;
  save(process: Process, save: Save): SaveOutcome;
  /** Any other request of the app's, with what it is answered. */
  request(process: Process, request: Asked): Promise<Reply>;
  broken(error: unknown): void;
}

/** A request of the app's. Once it is aborted nobody waits for its answer. */
export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly body: unknown;
  readonly signal: AbortSignal | null | undefined;
}

export interface Reply {
  status: number;
  body: unknown;
}

interface Body {
  readonly step: string;
  /** It waits for something that only the world can bring. */
  isBlocked: boolean;
}

const processes: WeakMap<Call, Process> = new WeakMap();

/** Where the code that asks runs: its process, and its step if it is in one. Undefined outside any run of the kit's. */
export function current(): { process: Process; step: string | null; scope: Scope } | undefined {
  const scope = shared().context?.getStore();
  const process = scope === undefined ? undefined : processes.get(scope.call);
  if (scope === undefined || process === undefined) return undefined;
  return { process, scope, step: scope.kind === 'step' ? scope.name : null };
}

/**
 * One call, played by the SDK in a process of its own that can be cut off. A process that is cut off is as one that was killed, but
 * that a function which runs can't be stopped: it runs to its end, and nothing comes of it. No save is answered, no timer fires, no
 * body starts, so that the promises of its steps stay pending and the workflow's code goes no further.
 */
export class Process {
  /** Which call of the world it is, counted from 1. */
  readonly number: number;
  readonly run: RunState;
  isCut = false;
  /** How the call ended, unless it was cut off. */
  end: EndMessage | undefined;
  /** Something was told to it, and it was not followed since. */
  isTouched = false;
  /** A save of its own is being taken: what that appends to the history comes in its answer. */
  isSaving = false;
  call: Call | undefined;
  private readonly world: Surroundings;
  private readonly bodies = new Map<Scope, Body>();
  private held = 0;
  private isBegun = false;
  private isGivenUp = false;
  private activity = 0;
  private wake: () => void = () => {};

  constructor(world: Surroundings, run: RunState, number: number) {
    this.world = world;
    this.run = run;
    this.number = number;
  }

  async begin(message: CallMessage, definition: Definition): Promise<void> {
    await loadContext();
    const client = new Nelkap({ app: message.run.app, logger: this.world.log });
    const call = new Call({
      // A copy: what the code does to a value must not change the history.
      message: JSON.parse(JSON.stringify(message)) as CallMessage,
      definition,
      manifest: 'testing',
      destination: this.destination(),
      log: this.world.log,
      bind: (scope) => boundTo(client, scope),
      yieldAfterMs: undefined,
      onOver: () => {},
      clock: this.clock(),
      hooks: this.hooks(),
    });
    this.call = call;
    processes.set(call, this);
    this.isBegun = true;
    this.answered(call).catch((error: unknown) => this.world.broken(error));
    await call.start(false, () => true);
  }

  private async answered(call: Call): Promise<void> {
    const given = await call.answer;
    if (this.isCut) return;
    if (given.is === 'cut') throw new Error('the SDK failed while it played a run');
    const end = (given.is === 'answer' ? JSON.parse(given.text) : { type: 'over' }) as EndMessage;
    if (end.type !== 'over' && this.world.cutsHere(this, { at: 'answer', end: end.type })) return this.cut();
    call.delivered();
    this.end = end;
    this.stir();
  }

  /** Cuts the process off. */
  cut(): void {
    this.isCut = true;
    this.stir();
  }

  /** Something has happened in it. */
  stir(): void {
    this.activity += 1;
    this.isTouched = true;
    this.wake();
  }

  /** What happens here waits for the world: a fake that hangs, the result of another run. */
  block(scope: Scope | undefined): void {
    const body = scope === undefined ? undefined : this.bodies.get(scope);
    if (body === undefined) this.held += 1;
    else body.isBlocked = true;
    this.stir();
  }

  unblock(scope: Scope | undefined): void {
    const body = scope === undefined ? undefined : this.bodies.get(scope);
    if (body === undefined) this.held -= 1;
    else body.isBlocked = false;
    this.stir();
  }

  /** The names of the steps whose functions wait for the world. */
  get blocked(): string[] {
    return Array.from(this.bodies.values(), (body) => body.step);
  }

  /** A mark was left; true where the process was cut off by it. */
  hasLeft(mark: string, step: string | null): boolean {
    if (this.isCut || !this.world.cutsHere(this, { at: 'mark', mark, step })) return false;
    this.block(shared().context?.getStore());
    this.cut();
    return true;
  }

  /** Resolves when the call has ended or was cut off, or when all that it still does is wait for the world. */
  async settled(): Promise<void> {
    this.isTouched = false;
    let timer: ReturnType<typeof realTimeout> | undefined;
    while (!this.isDone) {
      const seen = this.activity;
      if (this.isBlocked) {
        await turns();
        if (this.activity === seen) break;
        continue;
      }
      if (this.isCut) timer ??= realTimeout(() => this.giveUp(), GHOST_MS_MAX);
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
    clearRealTimeout(timer);
  }

  /** Nobody waits for its functions any longer. */
  private giveUp(): void {
    this.isGivenUp = true;
    this.wake();
  }

  private get isDone(): boolean {
    if (!this.isCut) return this.end !== undefined;
    if (this.isGivenUp) return true;
    return Array.from(this.bodies.values()).every((body) => body.isBlocked);
  }

  private get isBlocked(): boolean {
    if (!this.isBegun || (this.bodies.size === 0 && this.held === 0)) return false;
    return Array.from(this.bodies.values()).every((body) => body.isBlocked);
  }

  private hooks(): Hooks {
    return {
      names: (definition) => this.world.names(definition),
      wrote: (line) => {
        if (!this.isCut) this.run.wrote(this.number, line);
      },
      key: ({ name, number }) => keyOf(this.run.root, this.run.restarts, name, number),
      body: (step, isCheck, fn) => this.bodyOf(step, isCheck, fn),
    };
  }

  private bodyOf(step: { name: string; number: number }, isCheck: boolean, fn: StepBody): StepBody {
    const { name, number } = step;
    const fake = this.world.fakeOf(name, isCheck) as
      | ((context: unknown, step: unknown) => unknown)
      | undefined;
    return async (context) => {
      if (this.isCut) return never();
      const scope = shared().context?.getStore() as Scope;
      this.bodies.set(scope, { step: name, isBlocked: false });
      this.world.bodyBegins();
      this.stir();
      try {
        return await (fake === undefined ? fn(context) : fake(context, { name, number }));
      } finally {
        this.bodies.delete(scope);
        if (!this.isCut && !isCheck && this.world.cutsHere(this, { at: 'body', step: name }))
          this.isCut = true;
        this.stir();
        // What a function of a dead process gives, nobody gets.
        if (this.isCut) await never();
      }
    };
  }

  private clock(): Clock {
    return {
      now: () => this.world.now,
      after: (ms, then) =>
        this.world.after(ms, () => {
          if (this.isCut) return;
          this.stir();
          then();
        }),
    };
  }

  /** A saver whose timers stand still: in the kit no request fails, and news comes without a poll. */
  private destination(): Destination {
    const still: Clock = { now: () => this.world.now, after: () => () => {} };
    const own = { ...shared(), destinations: new Map(), offsets: new Map(), clock: still };
    const send = ((url: string, init: RequestInit) => this.fetch(url, init)) as unknown as typeof fetch;
    const address = { url: 'http://127.0.0.1:6355', apiKey: undefined, fetch: send, clock: still };
    return new Destination(own, '', address, this.world.log);
  }

  private async fetch(url: string, { method = 'GET', body: text, signal }: RequestInit): Promise<unknown> {
    const path = url.replace(/^https?:\/\/[^/]+/, '');
    const body: unknown = typeof text === 'string' ? JSON.parse(text) : undefined;
    if (path === '/v1/saves') return answer(200, await this.saves((body as { saves: Save[] }).saves));
    if (path === '/v1/heartbeats' || path === '/v1/ends') return never();
    if (this.isCut) {
      this.block(shared().context?.getStore());
      return never();
    }
    const reply = await this.world.request(this, { method, path, body, signal });
    if (this.isCut) return never();
    this.stir();
    signal?.throwIfAborted();
    return answer(reply.status, reply.body);
  }

  private async saves(saves: readonly Save[]): Promise<unknown> {
    const outcomes: SaveOutcome[] = [];
    for (const save of saves) {
      if (this.isCut) return never();
      if (this.world.cutsHere(this, { at: 'before save', items: save.items })) this.cut();
      if (this.isCut) return never();
      this.isSaving = true;
      outcomes.push(this.world.save(this, save));
      this.isSaving = false;
      if (this.world.cutsHere(this, { at: 'after save', items: save.items })) this.cut();
      if (this.isCut) return never();
    }
    this.stir();
    return { saves: outcomes };
  }
}

/** As much of a response as the SDK reads: not every test environment has the class. */
function answer(status: number, body: unknown): unknown {
  const type = status < 400 ? 'application/json' : 'application/problem+json';
  return {
    status,
    ok: status < 400,
    headers: { get: (name: string) => (name.toLowerCase() === 'content-type' ? type : null) },
    text: () => Promise.resolve(JSON.stringify(body)),
  };
}

export function never(): Promise<never> {
  return new Promise(() => {});
}

/** Enough macrotasks for whatever waits for nothing outside. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < QUIET_TURNS; turn++)
    await new Promise<void>((resolve) => void macrotask(resolve));
}

/**
 * A fake step that never ends, or the place in one where it hangs. While all bodies of a call hang, its run is at rest and virtual
 * time may pass: so its `timeout`, or a sleep that races it, can be seen to win.
 */
export function hang(): Promise<never> {
  const place = current();
  place?.process.block(place.scope);
  return never();
}
