import type { Encoded } from './text.js';

/** The messages between server and app, as protocol/SPEC.md gives them. Users' values are `Encoded` on their way out. */

export interface CallMessage {
  type: 'call';
  run: RunMessage;
  call: {
    id: string;
    epoch?: number;
    token: string;
    cuts: number;
    leaseMs: number;
    heartbeatMs: number;
    sentAt?: string;
  };
  /** `begun`: the steps whose start is recorded; some may be saved. */
  steps: {
    entries: Entry[];
    next: number | null;
    retrying: Retrying[];
    waiting?: OpenWait[];
    begun?: StepName[];
  };
  limits?: { steps: number; resultBytes: number };
  url?: string;
  /** The run closes: what it did is undone, and its handler is called (protocol, section 5). */
  ending?: ClosingEnd;
}

/** With what a run closes, and how many entries its history had then. */
export interface ClosingEnd {
  reason: 'failed' | 'timedOut' | 'cancelled';
  error?: unknown;
  entries: number;
}

/** The run's code is to be played against its history without acting (D3). */
export interface VerifyMessage extends Pick<CallMessage, 'run' | 'steps' | 'limits'> {
  type: 'verify';
  limitMs: number;
}

export interface VerifiedMessage {
  type: 'verified';
  unasked: KindName[];
  asked: KindName[];
  end?: 'returned' | 'threw' | 'late';
  error?: Encoded;
}

export interface RunMessage {
  id: string;
  workflow: string;
  app: string;
  payload?: unknown;
  event: { id: string; event: string; payload?: unknown; createdAt: string } | null;
  key: string | null;
  replayOf: string | null;
  root: string;
  restart: number;
  attempt: number;
  createdAt: string;
}

export interface StepName {
  name: string;
  number: number;
}

export interface KindName extends StepName {
  kind: string;
}

export interface Retrying extends StepName {
  attempt: number;
  retryInMs: number;
}

/** A wait that is registered, and without an entry yet. */
export type OpenWait = KindName;

/** One entry of the run's history. */
export interface Entry extends StepName {
  entry: number;
  kind: string;
  status: 'completed' | 'failed';
  output?: unknown;
  error?: unknown;
  attempts?: number;
}

/** What a save says of a step that has a body. */
export interface RunItem extends StepName {
  op: 'start' | 'completed' | 'failed';
  kind: 'run';
  attempt: number;
  /** Of a start: the step runs at most once (S5). */
  once?: true;
  output?: Encoded | undefined;
  error?: Encoded;
  retriable?: boolean;
  retries?: number;
  retryAfterMs?: number | undefined;
  startedAt?: string | undefined;
  endedAt?: string | undefined;
}

/** What a wait waits for (protocol, *Waits*). */
export type Wait =
  | { kind: 'sleep'; delayMs: number }
  | { kind: 'sleep'; until: string }
  | {
      kind: 'event';
      events: readonly string[];
      match?: Readonly<Record<string, string | number | boolean | null>> | undefined;
      if?: string | undefined;
      since?: 'run' | 'wait' | undefined;
      timeoutMs?: number | undefined;
    }
  | {
      kind: 'invoke';
      workflow: string;
      app?: string | undefined;
      payload?: Encoded | undefined;
      timeoutMs?: number | undefined;
    }
  | { kind: 'callback'; of: number };

/** What a save asks, and the server answers at once. */
export type Question =
  | {
      op: 'claim';
      kind: 'claim';
      key: string;
      until?: 'failed' | undefined;
      forMs?: number | undefined;
      /** A workflow's `once`, in place of a name (K4). */
      once?: true;
    }
  | { op: 'callback'; kind: 'callback'; timeoutMs?: number | undefined }
  /** The code has something to undo (protocol, section 5). */
  | { op: 'undo'; kind: 'undo' };

export type WaitItem = StepName & { op: 'wait' } & Wait;
export type QuestionItem = StepName & Question;

/** One thing that a save says of a step. */
export type Item = RunItem | WaitItem | QuestionItem;

/** For what a suspended run waits: a step that threw, a wait, or several of them combined (H4). */
export type WaitTree =
  | { retry: StepName }
  | { wait: StepName }
  | { all: WaitTree[] }
  | { race: WaitTree[] }
  | { any: WaitTree[] };

/** What names a playing in every message (C4, C6). */
export interface Fence {
  call: string;
  token: string;
  nonce: string;
}

export interface Save extends Fence {
  seen: number;
  items: Item[];
  logs?: LogLine[];
}

/** One line of the run's log (protocol, section 6). */
export interface LogLine {
  at: string;
  level: Level;
  message: string;
  fields?: Encoded;
  /** The step whose body or check wrote it; one that was written outside steps has `entry`. */
  step?: StepName;
  entry?: number;
  attempt: number;
  line: number;
}

export type Level = 'debug' | 'info' | 'warn' | 'error';

export interface Ending {
  reason: 'cancelled' | 'timedOut';
}

export interface ItemOutcome {
  status: 'started' | 'waiting' | 'saved' | 'stands' | 'retrying' | 'refused';
  entry?: number;
  /** Of a claim or a callback: what the server made. */
  output?: unknown;
  /** Of a start: an attempt of the step was started before. */
  again?: boolean;
  checkInMs?: number;
  attempt?: number;
  retryInMs?: number;
  error?: unknown;
}

export interface SaveOutcome {
  call?: string;
  status: 'accepted' | 'later' | 'superseded' | 'ended' | 'invalid';
  items?: ItemOutcome[];
  entries?: Entry[];
  ending?: Ending | null;
  detail?: string;
}

export interface News {
  call: string;
  /** The playing that the news is for: a process may play one call twice. */
  nonce: string;
  status: 'superseded' | 'ended' | 'ending' | 'entries' | 'named?';
  ending?: Ending | null;
  entries?: Entry[];
}

export interface EndMessage {
  type: 'completed' | 'failed' | 'suspended' | 'yielded' | 'restarted' | 'over';
  nonce?: string;
  manifest?: string;
  output?: Encoded | undefined;
  /** Of a restart. */
  payload?: Encoded | undefined;
  error?: Encoded;
  retriable?: boolean;
  retries?: number;
  retryAfterMs?: number | undefined;
  seen?: number;
  /** Of a yield: the process is stopping, or the API can't be reached. */
  excused?: true;
  register?: WaitItem[];
  waits?: WaitTree[];
  /** Saved steps that the code did not ask for (S7). */
  unasked?: StepName[];
  unsaved?: Item[];
  logs?: LogLine[];
}
