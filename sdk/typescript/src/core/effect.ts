import type {
  EndMessage,
  Ending,
  Entry,
  News,
  Question,
  SaveOutcome,
  VerifiedMessage,
  Wait,
} from './message.js';
import type { Left } from './end.js';
import type { Encoded } from './text.js';

interface Body {
  id: number;
  attempt: number;
  startedAt: string;
  endedAt: string;
}

/** What the code asks for. */
export type Ask =
  /** A step with a body. `check` looks before a repeat (S4), `once` runs at most once (S5). */
  | { op: 'run'; kind: 'run'; retries: number; check?: boolean; once?: boolean }
  | ({ op: 'wait' } & Wait)
  | Question;

/** The handler whose code it is; undefined for the workflow's function. */
export type Part = 'onFailure' | 'onCancel' | undefined;

/** What a playing is given beside the call's message. */
export interface Settings {
  /** Names this playing (C4): random, never used twice. */
  nonce: string;
  /** The manifest's hash. */
  manifest: string;
  /** How often the code outside steps is tried again, and what was done is undone. */
  retries: number;
  /** The workflow's handler for the end with which the run closes. */
  handler?: Part;
  /** The code is played to see what it asks for; nothing is done (D3). */
  isVerifying?: boolean;
}

export type Combinator = 'all' | 'race' | 'any';

/** The end of a body, or of the check before it. */
export type Settled =
  /** The check ended; without an output it found nothing. */
  | ({ on: 'found'; output: Encoded | undefined } & Body)
  | ({ on: 'returned'; output: Encoded | undefined } & Body)
  | ({ on: 'threw'; error: Encoded; retriable: boolean; retryAfterMs?: number | undefined } & Body);

/** What happened. */
export type Input =
  /** The message is here. `late`: signed more than 5 s ago (C4). `once`: the key that the run must own to go on (K4). */
  | { on: 'start'; late: boolean; connected: boolean; once?: string | undefined }
  | { on: 'page'; entries: readonly Entry[]; next: number | null }
  /** A page could not be read. */
  | { on: 'unread'; status: 'superseded' | 'ended' | 'failed' }
  /** The code asks for a step, which was called `was` before; `id` is the caller's, never used twice. */
  | { on: 'asked'; id: number; name: string; was?: string | undefined; ask: Ask; part?: Part }
  /** The code waits for several steps or combinations as one (H4); `id` as for a step. */
  | { on: 'combined'; id: number; how: Combinator; of: readonly number[]; part?: Part }
  /** The code has come to rest after `play`, `release` or a stray `asked` (the effect `rest`). */
  | { on: 'rested' }
  | Settled
  /** The function, or a handler, returned. */
  | { on: 'completed'; output: Encoded | undefined; part?: Part }
  /** The function, or a handler, threw. */
  | { on: 'failed'; error: Encoded; retriable: boolean; retryAfterMs?: number | undefined; part?: Part }
  /** The function wants to begin again, with a new payload (Z2). */
  | { on: 'restarted'; payload: Encoded | undefined }
  /** A step's pause is over. */
  | { on: 'due'; name: string; number: number }
  | { on: 'saved'; outcome: SaveOutcome }
  /** A save's request failed. */
  | { on: 'unsent' }
  /** Every try has failed for `outageMs`, counted from when the first of them was sent (C11). */
  | { on: 'silent' }
  | ({ on: 'news' } & Pick<News, 'status' | 'ending' | 'entries'>)
  | { on: 'disconnected' }
  /** The answer could not be delivered. */
  | { on: 'undelivered' }
  /** The answer was delivered, or the end accepted. */
  | { on: 'delivered' }
  /** The process stops, or the host's time limit is near. */
  | { on: 'hurry'; why: 'stopping' | 'time' }
  | { on: 'allowance over' }
  /** Lines of the log have waited long enough for a save to travel with. */
  | { on: 'logs due' }
  /** The code that is verified took too long to come to rest (D3). */
  | { on: 'late' };

/** What is to be done. */
export type Effect =
  /** Call the workflow's function, or its handler with the entries that the run had when it began to close. */
  | { do: 'play'; part?: Part; entries?: readonly Entry[] }
  /** Say `rested` in a macrotask of its own. */
  | { do: 'rest' }
  | { do: 'fetch'; after: number }
  /** Call a step's function. */
  | { do: 'body'; id: number; name: string; number: number; attempt: number }
  /** Call a step's check (S4). */
  | { do: 'check'; id: number; name: string; number: number; attempt: number }
  /** There is something to save: ask `nextSave`, after a pause where `pause` says so. */
  | { do: 'save'; pause: boolean }
  /** Give the code a step's result. */
  | { do: 'release'; id: number; entry: Entry }
  /** Say `due` after `ms`. */
  | { do: 'pause'; name: string; number: number; ms: number }
  /** Abort every signal. */
  | { do: 'abort'; why: 'over' | 'superseded' | Ending['reason'] }
  /** Say `allowance over` after `ms`. */
  | { do: 'allow'; ms: number }
  /** Write a line of the log for each step that the code has left behind. */
  | { do: 'tell'; left: readonly Left[] }
  /** Answer the call; `keep`: deliver it through the API as well (C10). */
  | { do: 'answer'; message: EndMessage; keep: boolean }
  /** Answer what the code was found to do (D3). */
  | { do: 'verified'; message: VerifiedMessage }
  /** Deliver the end through the API (C10). */
  | { do: 'end'; message: EndMessage }
  /** Answer nothing of ours: the server takes it for a cut. */
  | { do: 'cut' }
  /** The playing is over: forget it. */
  | { do: 'over' };
