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
  steps: { entries: Entry[]; next: number | null; retrying: Retrying[] };
  limits?: { steps: number; resultBytes: number };
  url?: string;
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

export interface Retrying extends StepName {
  attempt: number;
  retryInMs: number;
}

/** One entry of the run's history. */
export interface Entry extends StepName {
  entry: number;
  kind: string;
  status: 'completed' | 'failed';
  output?: unknown;
  error?: unknown;
  attempts?: number;
}

/** One thing that a save says of a step. */
export interface Item extends StepName {
  op: 'start' | 'completed' | 'failed';
  kind: 'run';
  attempt: number;
  output?: Encoded | undefined;
  error?: Encoded;
  retriable?: boolean;
  retries?: number;
  retryAfterMs?: number | undefined;
  startedAt?: string;
  endedAt?: string;
}

/** What names a playing in every message (C4, C6). */
export interface Fence {
  call: string;
  token: string;
  nonce: string;
}

export interface Save extends Fence {
  seen: number;
  items: Item[];
}

export interface Ending {
  reason: 'cancelled' | 'timedOut';
}

export interface ItemOutcome {
  status: 'started' | 'saved' | 'stands' | 'retrying' | 'refused';
  entry?: number;
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
  status: 'superseded' | 'ended' | 'ending' | 'named?';
  ending?: Ending | null;
}

export interface EndMessage {
  type: 'completed' | 'failed' | 'suspended' | 'yielded' | 'over';
  nonce?: string;
  manifest?: string;
  output?: Encoded | undefined;
  error?: Encoded;
  retriable?: boolean;
  retries?: number;
  retryAfterMs?: number | undefined;
  seen?: number;
  /** Of a yield: the process is stopping, or the API can't be reached. */
  excused?: true;
  waits?: { retry: StepName }[];
  unsaved?: Item[];
}
