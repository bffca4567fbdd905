import { serveWeb } from './adapters/web.js';
import type { Duration } from './duration.js';
import type { Emitted, EventName, NewEvent } from './event.js';
import { encode } from './core/value.js';
import { stringify } from './core/text.js';
import type { Args, ReplayOptions, ResultOptions, Run, RunHandle, RunOptions, SavedHandle } from './run.js';
import { typeId } from './shell/key.js';
import type { Call } from './shell/call.js';
import {
  asWorkflow,
  checkName,
  define,
  type Definition,
  definitionOf,
  refuseOthers,
} from './shell/definition.js';
import { exchange, REQUEST_LIMIT_MS } from './shell/http.js';
import { macrotask, shared } from './shell/process.js';
import { getRun, waitForResult } from './shell/result.js';
import type { Schedules } from './schedule.js';
import { type Scope, within } from './shell/scope.js';
import { schedulesOf } from './shell/schedules.js';
import {
  addressFor,
  isFrozen,
  persist,
  type Sender,
  sendEvents,
  sendRun,
  type Started,
} from './shell/send.js';
import { Server } from './shell/serve.js';
import { type NelkapOptions, Settings } from './shell/settings.js';
import { stepsOf } from './shell/steps.js';
import type { Step } from './step.js';
import type { DefineWorkflow, InputOf, OutputOf, Workflow } from './workflow.js';

export type { NelkapOptions } from './shell/settings.js';

export interface HandlerOptions {
  workflows: readonly Workflow[];
  /** The host's time limit for one request: the call yields in time and is called again. */
  maxDuration?: Duration;
}

export type Handler = (request: Request) => Promise<Response>;

/** What a client and those bound to its runs and steps share. */
interface Core {
  readonly settings: Settings;
  /** Calls under way, and no others. */
  readonly calls: Set<Call>;
  isStopping: boolean;
}

const cores: WeakMap<Nelkap, Core> = new WeakMap();

/** A client. Reads its environment when it is used, not when it is made. Its members may be taken off it. */
export class Nelkap {
  declare readonly step: Step;
  /**
   * Declares a workflow: a name or options, then its function, which is given the payload and a context. The function
   * may be played several times for one run, so work that leaves a mark belongs in its steps.
   */
  declare readonly workflow: DefineWorkflow;
  /** A workflow that lives elsewhere: another app, another language, or further down the same file. */
  declare readonly ref: <W extends Workflow = Workflow<unknown, unknown>>(
    name: string,
    options?: { app?: string },
  ) => Workflow<InputOf<W>, OutputOf<W>>;
  /**
   * Starts a run. When the promise resolves, the run is on disk. In a step, a repeat of the step finds the same run;
   * outside steps in a workflow it starts one every time the code runs, and says so.
   */
  declare readonly run: <Input, Output>(
    workflow: Workflow<Input, Output>,
    ...args: Args<Input, RunOptions>
  ) => Promise<RunHandle<Output>>;
  /** Emits an event, or several in one request. When the promise resolves, they are on disk. As `run`, it belongs in a step. */
  declare readonly emit: {
    (events: readonly NewEvent[]): Promise<Emitted[]>;
    // The usual form comes last: TypeScript 7 reports the last overload's error only.
    <Name extends EventName>(event: NewEvent<Name>): Promise<Emitted>;
  };
  /** A run as it is now. */
  declare readonly get: (runId: string) => Promise<Run>;
  /** The output of a run that an earlier step started; throws as `RunHandle.result` does. */
  declare readonly result: <Output = unknown>(
    run: string | SavedHandle,
    workflow?: Workflow<any, Output>,
    options?: ResultOptions,
  ) => Promise<Output>;
  /** Asks for a run's end. Steps that run may still be saved; no step starts any more. */
  declare readonly cancel: (runId: string) => Promise<Run>;
  /** Starts a new run of the same workflow and payload, in which every step runs again. */
  declare readonly replay: (runId: string, options?: ReplayOptions) => Promise<RunHandle>;
  /** Makes schedules at run time, and changes them. */
  declare readonly schedules: Schedules;
  /** The handler for hosts of web-standard requests; others have theirs in `nelkap/node` and `nelkap/express`. */
  declare readonly handler: (options: HandlerOptions) => Handler;
  /**
   * For deploys: starts no body, finishes and saves the running ones, and has the server call again. Resolves when no
   * call of this client is left; may be called twice.
   */
  declare readonly stop: () => Promise<void>;

  constructor(options: NelkapOptions = {}) {
    const core: Core = { settings: new Settings(options), calls: new Set(), isStopping: false };
    cores.set(
      Object.assign(
        this,
        membersOf(core, () => shared().context?.getStore()),
      ),
      core,
    );
  }
}

type Members = { -readonly [K in keyof Nelkap]: Nelkap[K] };

/** A client bound to a run or a step: it needs no AsyncLocalStorage (K2). */
function bind(core: Core, scope: Scope): Nelkap {
  const bound = Object.assign(
    Object.create(Nelkap.prototype),
    membersOf(core, () => within(scope)),
  ) as Nelkap;
  cores.set(bound, core);
  return bound;
}

/** A client bound to a run or a step. @internal */
export function boundTo(nelkap: Nelkap, scope: Scope): Nelkap {
  return bind(cores.get(nelkap) as Core, scope);
}

/** What an adapter serves. @internal */
export function serverOf(nelkap: Nelkap, options: HandlerOptions): Server {
  const core = cores.get(nelkap);
  if (core === undefined) throw new TypeError('nelkap is no client: give one made with new Nelkap(…)');
  return new Server({
    settings: core.settings,
    options,
    bind: (scope) => bind(core, scope),
    calls: core.calls,
    isStopping: () => core.isStopping,
  });
}

function membersOf(core: Core, locate: () => Scope | undefined): Members {
  const { settings } = core;
  const sender = (): Sender => ({ settings, scope: locate() });
  const members: Members = {
    step: stepsOf(locate),
    workflow: ((options: string, fn: unknown) =>
      asWorkflow(define(options, fn, () => settings.app))) as DefineWorkflow,
    ref: (name, options) => asWorkflow(reference(name, options)),
    run: async (workflow, ...[payload, options]) =>
      handle(sender(), await sendRun(sender(), definitionOf(workflow), payload, options)),
    emit: ((events: NewEvent) => sendEvents(sender(), events)) as Nelkap['emit'],
    get: async (runId) => getRun(addressFor(sender()), checkId(runId), 0),
    result: async (run, _workflow, options) =>
      result(sender(), checkId(typeof run === 'string' ? run : run?.id), options),
    cancel: async (runId) => (await act(sender(), runId, 'cancel')) as Run,
    replay: async (runId, options) =>
      handle(sender(), {
        ...((await act(sender(), runId, 'replay', replayOf(options))) as Started),
        created: true,
      }),
    schedules: schedulesOf(sender),
    handler: (options) => {
      const server = serverOf(bound(), options);
      return (request) => serveWeb(server, request);
    },
    stop: () => stop(core),
  };
  const bound = (): Nelkap => {
    const client = Object.create(Nelkap.prototype) as Nelkap;
    cores.set(client, core);
    return client;
  };
  return members;
}

function reference(name: string, options: { app?: string } | undefined): Definition {
  refuseOthers(options, ['app'], `the reference to workflow '${name}'`);
  const app = options?.app === undefined ? undefined : checkName(options.app, 'an app');
  return { name: checkName(name, 'a workflow'), app: () => app };
}

function checkId(id: unknown): string {
  if (typeof id === 'string' && id !== '') return id;
  throw new TypeError('a run is named by its id: give run.id, or what nelkap.run gave');
}

/** The body of a replay. Its id is drawn before the first try, so that a try again finds the run. */
function replayOf(options: ReplayOptions | undefined): object {
  refuseOthers(options, ['from', 'payload', 'keepKeys', 'events'], 'the replay');
  const { from, payload, keepKeys, events } = options ?? {};
  return {
    id: typeId('run', shared().clock.now()),
    ...(from !== undefined && { from: checkName(from, 'a step') }),
    payload: encode(payload, 'payload'),
    ...(keepKeys !== undefined && { keepKeys }),
    ...(events !== undefined && { events }),
  };
}

/** Asked again, a cancellation changes nothing, and a replay finds the run that it started. */
async function act(
  sender: Sender,
  runId: string,
  verb: 'cancel' | 'replay',
  message: object = {},
): Promise<unknown> {
  // Code that must leave no mark sees the run as it is, or a handle of no run.
  if (isFrozen(sender.scope)) return { ...(await getRun(addressFor(sender), checkId(runId), 0)), ...message };
  const path = `/v1/runs/${encodeURIComponent(checkId(runId))}/${verb}`;
  const request = { method: 'POST', path, body: stringify(message), limitMs: REQUEST_LIMIT_MS } as const;
  return persist(undefined, () => exchange(addressFor(sender), shared().clock, request));
}

function handle<Output>(sender: Sender, started: Started): RunHandle<Output> {
  const { id, workflow, created, payloadDiffers } = started;
  const saved: SavedHandle = { id, workflow, created, ...(payloadDiffers === true && { payloadDiffers }) };
  return {
    ...saved,
    result: (options) => result<Output>(sender, id, options),
    toJSON: () => saved,
  };
}

async function result<Output>(sender: Sender, runId: string, options?: ResultOptions): Promise<Output> {
  const { scope, settings } = sender;
  if (scope !== undefined && !scope.call.isOver && !isFrozen(scope)) {
    const where = `workflow '${scope.call.message.run.workflow}'`;
    settings.log.warn(`result() of run ${runId} in ${where} holds the call open until that run ends`, {
      run: runId,
    });
  }
  return (await waitForResult(addressFor(sender), runId, options, scope)) as Output;
}

async function stop(core: Core): Promise<void> {
  core.isStopping = true;
  const ends = Array.from(core.calls, (call) => {
    call.hurry('stopping');
    return call.ended;
  });
  await Promise.all(ends);
  // Hosts of web requests send an answer only once they have it.
  await new Promise<void>((resolve) => void macrotask(resolve));
}

/** The default client. */
export const nelkap: Nelkap = new Nelkap();
