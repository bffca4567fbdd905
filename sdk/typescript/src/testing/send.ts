import type { Entry } from '../core/message.js';
import type { NewEvent, StoredEvent } from '../event.js';
import type { Run } from '../run.js';
import { type Asked, current, type Process, type Reply } from './process.js';
import { type CallbackState, instantOf, type RunState, type Value } from './state.js';
import type { World } from './world.js';

interface Send {
  call: string;
  step: { name: string; number: number };
  place: number;
}

interface RunBody {
  id?: string;
  workflow: string;
  app?: string;
  payload?: unknown;
  key?: string;
  keyForMs?: number;
  at?: string;
  delayMs?: number;
  send?: Send;
}

type EventBody = NewEvent<string> & { send?: Send };

/** A send that acted outside steps, and so acts every time the code runs. */
export interface OutsideSend {
  readonly what: string;
  readonly workflow: string;
  times: number;
}

interface Sent {
  hash: string;
  body: { id: string; [field: string]: unknown };
}

/** The API in miniature: runs and events, deduplicated as a server does it. */
export class Sends {
  /** What code outside steps sent, by run, kind, name and place in its call. */
  readonly outside: Map<string, OutsideSend> = new Map();
  private readonly world: World;
  private readonly derived = new Map<string, Sent>();
  private readonly keys = new Map<string, { run: RunState; hash: string; forMs: number | undefined }>();
  private readonly places = new WeakMap<Process, Map<string, number>>();

  constructor(world: World) {
    this.world = world;
  }

  async request(process: Process, { method, path, body, signal }: Asked): Promise<Reply> {
    const [, id, verb] = /^\/v1\/runs\/([^/?]+)(?:\/(\w+))?/.exec(path) ?? [];
    if (method === 'POST' && path === '/v1/runs') return this.run(process, body as RunBody);
    if (method === 'POST' && path === '/v1/events')
      return this.events(process, body as EventBody | EventBody[]);
    if (id === undefined)
      return problem(404, 'not_played', `the kit does not play ${method} ${path}: give the step a fake`);
    const run = this.world.run(decodeURIComponent(id));
    if (run === undefined) return problem(404, 'run_unknown', `the kit has no run ${id}`);
    if (method === 'GET') return this.get(process, run, path.includes('waitMs='), signal);
    if (verb === 'cancel') this.world.cancel(run);
    if (verb === 'replay') return this.replay(run, body as ReplayBody);
    return { status: 200, body: runOf(run) };
  }

  private async get(
    process: Process,
    run: RunState,
    waits: boolean,
    signal: Asked['signal'],
  ): Promise<Reply> {
    if (waits && !run.hasEnded) {
      const scope = current()?.scope;
      process.block(scope?.kind === 'step' ? scope : undefined);
      await new Promise<void>((resolve) => {
        run.onEnd.push(resolve);
        signal?.addEventListener('abort', () => resolve());
      });
      process.unblock(scope?.kind === 'step' ? scope : undefined);
    }
    return { status: 200, body: runOf(run) };
  }

  private replay(of: RunState, body: ReplayBody): Reply {
    const run = this.startReplay(of, body);
    return run === undefined
      ? problem(422, 'step_unknown', `the run has no saved step '${body.from}'`)
      : { status: 201, body: { id: run.id, workflow: run.workflow, created: true } };
  }

  /** A new run of the same workflow; undefined where the step to begin from is not saved. */
  startReplay(
    of: RunState,
    { id, from, payload, keepKeys = from !== undefined, events }: ReplayBody,
  ): RunState | undefined {
    // Its closing is no part of what a replay plays.
    const all = of.entries.slice(0, of.closing?.entries);
    const begin = from === undefined ? 0 : all.findIndex(({ name }) => name === from);
    if (begin === -1) return undefined;
    // A whole replay begins as the run did, one from a step in its last chapter (Z2).
    const chapter = from === undefined ? of.first : of;
    const run = this.world.start({
      id,
      workflow: of.workflow,
      app: of.app,
      payload: payload === undefined ? chapter.payload : { value: payload },
      event: of.event,
      replayOf: of.id,
      ...(keepKeys && { root: of.root, restarts: chapter.restarts }),
      ...(events !== 'new' && { since: of.since }),
    });
    for (const { entry: _, ...kept } of all.slice(0, begin)) {
      run.append({ ...kept, by: undefined });
      this.passOn(of, run, kept);
    }
    return run;
  }

  /** What a replay has with an entry that it keeps: the event is used, and an ended run's callback is its own (K5). */
  private passOn(of: RunState, to: RunState, { kind, output }: Pick<Entry, 'kind' | 'output'>): void {
    const { id, event, token } = (output ?? {}) as Partial<StoredEvent & CallbackState>;
    const used = this.world.events.findIndex((each) => each.id === id && each.event === event);
    if (kind === 'event' && used !== -1) to.used.add(used);
    const made = of.callbacks.findIndex((each) => each.token === token);
    if (kind === 'callback' && made !== -1 && of.hasEnded) to.callbacks.push(...of.callbacks.splice(made, 1));
  }

  private run(process: Process, body: RunBody): Reply {
    const { workflow, key, send } = body;
    const app = body.app ?? process.run.app;
    const hash = JSON.stringify(body.payload) ?? '';
    if (key !== undefined) {
      const there = this.keys.get(JSON.stringify([app, workflow, key]));
      if (there !== undefined && !this.isOver(there))
        return { status: 200, body: again(startedOf(there.run), there.hash !== hash) };
    } else if (send !== undefined) {
      const there = this.sent(process, 'run', workflow, send, hash);
      if (there !== undefined) return there;
    } else this.outsideSteps(process, 'run', workflow);
    const payload: Value = 'payload' in body ? { value: body.payload } : {};
    const at = body.at === undefined ? this.world.now + (body.delayMs ?? 0) : Date.parse(body.at);
    const run = this.world.start({ id: body.id, workflow, app, payload, key, at });
    if (key !== undefined)
      this.keys.set(JSON.stringify([app, workflow, key]), { run, hash, forMs: body.keyForMs });
    else if (send !== undefined) this.keep(process, 'run', workflow, send, { hash, body: startedOf(run) });
    return { status: 201, body: { ...startedOf(run), created: true } };
  }

  private isOver({ run, forMs }: { run: RunState; forMs: number | undefined }): boolean {
    return forMs !== undefined && this.world.now >= run.createdAt + forMs;
  }

  private events(process: Process, body: EventBody | EventBody[]): Reply {
    if (!Array.isArray(body)) return this.event(process, body);
    const replies = body.map((each) => this.event(process, each));
    return (
      replies.find(({ status }) => status >= 400) ?? { status: 201, body: replies.map((each) => each.body) }
    );
  }

  private event(process: Process, { send, ...event }: EventBody): Reply {
    const hash = JSON.stringify(event.payload) ?? '';
    const isKeyed = event.id !== undefined && !/^evt_[0-9a-z]{26}$/.test(event.id);
    if (!isKeyed && send !== undefined) {
      const there = this.sent(process, 'event', event.event, send, hash);
      if (there !== undefined) return there;
    } else if (!isKeyed) this.outsideSteps(process, 'event', event.event);
    const { stored, isNew } = this.world.emit(event);
    const emitted = { id: stored.id, event: stored.event };
    if (!isNew) return { status: 200, body: again(emitted, JSON.stringify(stored.payload) !== hash) };
    if (!isKeyed && send !== undefined)
      this.keep(process, 'event', event.event, send, { hash, body: emitted });
    return { status: 201, body: { ...emitted, created: true } };
  }

  /** What an earlier attempt of the step sent at that place (K1). */
  private sent(process: Process, kind: string, name: string, send: Send, hash: string): Reply | undefined {
    if (process.run.hasEnded) return problem(409, 'ended', 'the run has ended');
    if (process.run.process !== process) return problem(409, 'superseded', 'a newer call has begun');
    const there = this.derived.get(derivedKey(process, kind, name, send));
    if (there === undefined) return undefined;
    if (there.hash !== hash) {
      for (let place = 1; place <= send.place + 1; place++) {
        const other = this.derived.get(derivedKey(process, kind, name, { ...send, place }));
        if (other?.hash === hash)
          return problem(409, 'ambiguous_send', 'two sends of the step have changed places');
      }
    }
    return { status: 200, body: again(there.body, there.hash !== hash) };
  }

  private keep(process: Process, kind: string, name: string, send: Send, sent: Sent): void {
    this.derived.set(derivedKey(process, kind, name, send), sent);
  }

  private outsideSteps(process: Process, kind: 'run' | 'event', name: string): void {
    const places = this.places.get(process) ?? new Map<string, number>();
    this.places.set(process, places);
    const place = (places.get(`${kind} ${name}`) ?? 0) + 1;
    places.set(`${kind} ${name}`, place);
    const key = JSON.stringify([process.run.id, process.run.restarts, kind, name, place]);
    const what = kind === 'run' ? `a run of '${name}' was started` : `the event '${name}' was emitted`;
    const there = this.outside.get(key) ?? { what, workflow: process.run.workflow, times: 0 };
    there.times += 1;
    this.outside.set(key, there);
  }
}

export interface ReplayBody {
  id?: string;
  from?: string;
  payload?: unknown;
  keepKeys?: boolean;
  events?: 'original' | 'new';
}

function derivedKey({ run }: Process, kind: string, name: string, { step, place }: Send): string {
  return JSON.stringify([run.id, run.restarts, step.name, step.number, kind, name, place]);
}

function again(body: object, differs: boolean): object {
  return { ...body, created: false, ...(differs && { payloadDiffers: true }) };
}

function startedOf({ id, workflow }: RunState): { id: string; workflow: string } {
  return { id, workflow };
}

function problem(status: number, code: string, detail: string): Reply {
  return { status, body: { type: 'about:blank', status, code, detail } };
}

function runOf(run: RunState): Run & { owner: string | null } {
  const { id, workflow, app, status, payload, output, error, event, key, replayOf, attempt, owner } = run;
  return {
    id,
    workflow,
    app,
    status,
    payload: payload.value ?? null,
    output: output ?? null,
    error: error as Run['error'],
    event: event?.event ?? null,
    eventId: event?.id ?? null,
    key,
    replayOf,
    attempt,
    createdAt: instantOf(run.createdAt),
    startedAt: run.startedAt === undefined ? null : instantOf(run.startedAt),
    endedAt: run.endedAt === undefined ? null : instantOf(run.endedAt),
    cancelRequestedAt: null,
    waitingFor: null,
    owner,
  };
}
