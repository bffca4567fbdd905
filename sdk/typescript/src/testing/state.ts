import type {
  ClosingEnd,
  Entry,
  LogLine,
  OpenWait,
  Retrying,
  RunMessage,
  StepName,
  WaitTree,
} from '../core/message.js';
import { Named } from '../core/step.js';
import type { RunStatus } from '../run.js';
import type { Definition } from '../shell/definition.js';
import type { Process } from './process.js';

/** What a run plays: a workflow of the SDK's, or a fake that gives its output. */
export type Part = { definition: Definition } | { fake: (payload: never) => unknown };

/** A value as it travels: a member that is absent where it is undefined. */
export type Value = { readonly value?: unknown };

/** A wait's item, as it came. */
export interface WaitJson extends StepName {
  kind: string;
  delayMs?: number;
  until?: string;
  events?: string[];
  match?: Record<string, unknown>;
  if?: string;
  since?: 'run' | 'wait';
  timeoutMs?: number;
  workflow?: string;
  app?: string;
  payload?: unknown;
  of?: number;
}

export interface Waiting {
  readonly item: WaitJson;
  /** Events of lower numbers do not count. */
  readonly since: number;
  dueAt: number | undefined;
  child?: RunState;
}

export interface Retry {
  attempt: number;
  dueAt: number;
  isDue: boolean;
}

export interface CallbackState extends StepName {
  url: string;
  token: string;
  dueAt: number | undefined;
  /** What was posted. */
  payload?: Value;
}

export interface SavedEntry extends Entry {
  /** The process whose save made it; undefined where the world did. */
  by: Process | undefined;
}

/** A run as the kit's server keeps it. */
export class RunState {
  readonly id: string;
  readonly part: Part | undefined;
  readonly workflow: string;
  readonly app: string;
  payload: Value;
  readonly event: RunMessage['event'];
  readonly key: string | null;
  readonly replayOf: string | null;
  readonly root: string;
  readonly createdAt: number;
  /** Events of lower numbers came before the run; so its waits look back to here. */
  readonly since: number;
  status: RunStatus = 'queued';
  output: unknown;
  error: unknown = null;
  /** The run that owns the key, where this one was skipped. */
  owner: string | null = null;
  startedAt: number | undefined;
  endedAt: number | undefined;
  attempt = 1;
  cuts = 0;
  calls = 0;
  readonly entries: SavedEntry[] = [];
  retrying: Named<Retry & StepName> = new Named();
  readonly retries: Set<Retry & StepName> = new Set();
  readonly waits: Waiting[] = [];
  starts: Named<Process> = new Named();
  readonly used: Set<number> = new Set();
  readonly callbacks: CallbackState[] = [];
  /** The call that is current. */
  process: Process | undefined;
  /** For what it waits, since its last call was suspended. */
  trees: readonly WaitTree[] = [];
  /** When it is called next. */
  dueAt: number | undefined;
  /** It is so because its code threw. */
  isBackingOff = false;
  timeoutAt: number | undefined;
  ending: { reason: 'cancelled' | 'timedOut' } | undefined;
  endingAt: number | undefined;
  /** It closes: its undos and its handler are called. */
  closing: ClosingEnd | undefined;
  /** How often it began again, counted on from the chapter that a replay with its original's keys begins in. */
  restarts: number;
  /** How it began. */
  readonly first: { readonly payload: Value; readonly restarts: number };
  /** The lines of its log, each once, by what tells them apart. */
  readonly lines: Map<string, LogLine> = new Map();
  parent: { run: RunState; wait: Waiting } | undefined;
  readonly onEnd: (() => void)[] = [];

  constructor(
    made: Pick<
      RunState,
      | 'id'
      | 'part'
      | 'workflow'
      | 'app'
      | 'payload'
      | 'event'
      | 'key'
      | 'replayOf'
      | 'root'
      | 'restarts'
      | 'createdAt'
      | 'since'
    > & {
      /** When its first call is due, and its timeout begins. */
      from: number;
    },
  ) {
    this.id = made.id;
    this.part = made.part;
    this.workflow = made.workflow;
    this.app = made.app;
    this.payload = made.payload;
    this.event = made.event;
    this.key = made.key;
    this.replayOf = made.replayOf;
    this.root = made.root;
    this.restarts = made.restarts;
    this.first = { payload: made.payload, restarts: made.restarts };
    this.createdAt = made.createdAt;
    this.since = made.since;
    const timeoutMs =
      made.part !== undefined && 'definition' in made.part ? made.part.definition.timeoutMs : undefined;
    if (timeoutMs !== undefined) this.timeoutAt = made.from + timeoutMs;
  }

  get hasEnded(): boolean {
    return this.endedAt !== undefined;
  }

  entryOf({ name, number }: StepName): SavedEntry | undefined {
    return this.entries.find((entry) => entry.name === name && entry.number === number);
  }

  waitOf({ name, number }: StepName): Waiting | undefined {
    return this.waits.find(({ item }) => item.name === name && item.number === number);
  }

  /** Appends an entry. Progress: the tries of the code, and cuts in a row, count anew. */
  append(entry: Omit<SavedEntry, 'entry'>): SavedEntry {
    const saved: SavedEntry = { entry: this.entries.length + 1, ...entry };
    this.entries.push(saved);
    const retry = this.retrying.get(entry);
    if (retry !== undefined) this.retries.delete(retry);
    this.retrying.delete(entry);
    const at = this.waits.findIndex(({ item }) => item.name === entry.name && item.number === entry.number);
    if (at !== -1) this.waits.splice(at, 1);
    this.attempt = 1;
    this.cuts = 0;
    return saved;
  }

  /** The step threw, and is tried again. */
  retry(step: StepName, attempt: number, dueAt: number): void {
    const before = this.retrying.get(step);
    if (before !== undefined) this.retries.delete(before);
    const retry = { name: step.name, number: step.number, attempt, dueAt, isDue: false };
    this.retrying.set(step, retry);
    this.retries.add(retry);
  }

  forgetRetries(): void {
    this.retries.clear();
    this.retrying = new Named();
  }

  /** The history becomes a closed chapter. Which events the run has used stays. */
  restart(payload: Value): void {
    this.restarts += 1;
    this.payload = payload;
    this.entries.length = 0;
    this.callbacks.length = 0;
    this.starts = new Named();
    this.attempt = 1;
    this.cuts = 0;
  }

  /** Keeps a line of the log, which a call may write again (protocol, section 6). */
  wrote(call: number, line: LogLine): void {
    const place = line.step === undefined ? line.entry : [call, line.step.name, line.step.number];
    const key = JSON.stringify([this.restarts, place, line.attempt, line.line]);
    if (!this.lines.has(key)) this.lines.set(key, line);
  }

  /** Entries after a number that a process did not save itself. */
  after(seen: number, own?: Process): Entry[] {
    return this.entries
      .filter(({ entry, by }) => entry > seen && (own === undefined || by !== own))
      .map(bare);
  }

  get message(): RunMessage {
    const { id, workflow, app, payload, event, key, replayOf, root, attempt, createdAt } = this;
    const made = {
      id,
      workflow,
      app,
      event,
      key,
      replayOf,
      root,
      restart: this.restarts,
      attempt,
      createdAt: instantOf(createdAt),
    };
    return 'value' in payload ? { ...made, payload: payload.value } : made;
  }

  retryingAt(now: number): Retrying[] {
    return Array.from(this.retries, ({ name, number, attempt, dueAt }) => ({
      name,
      number,
      attempt,
      retryInMs: Math.max(0, dueAt - now),
    }));
  }

  get waiting(): OpenWait[] {
    return this.waits.map(({ item: { kind, name, number } }) => ({ kind, name, number }));
  }

  /** Whether what it waits for has come. */
  get isAwake(): boolean {
    return this.trees.some((tree) => this.look(tree) !== 'open');
  }

  private look(tree: WaitTree): 'open' | 'completed' | 'failed' | 'due' {
    if ('wait' in tree) return this.entryOf(tree.wait)?.status ?? 'open';
    if ('retry' in tree) return this.retrying.get(tree.retry)?.isDue === false ? 'open' : 'due';
    const [[how, of]] = Object.entries(tree) as [[string, WaitTree[]]];
    const found = of.map((each) => this.look(each));
    // A retry wakes at its time, also inside a combination.
    if (found.includes('due')) return 'due';
    if (how === 'race') return found.find((each) => each !== 'open') ?? 'open';
    const [decides, otherwise] =
      how === 'all' ? (['failed', 'completed'] as const) : (['completed', 'failed'] as const);
    if (found.includes(decides)) return decides;
    return found.includes('open') ? 'open' : otherwise;
  }
}

export function bare({ by: _, ...entry }: SavedEntry): Entry {
  return entry;
}

export function instantOf(ms: number): string {
  return new Date(ms).toISOString();
}

/** What an entry has of a failure. */
export function failure(
  name: string,
  message: string,
  fields?: object,
): { status: 'failed'; error: unknown } {
  return { status: 'failed', error: { name, message, ...(fields !== undefined && { fields }) } };
}

/** What is handed over as JSON: nobody else holds it. */
export function copyOf<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T;
}
