import type { EndMessage, Ending, Entry, SaveOutcome } from './message.js';
import type { Encoded } from './text.js';

interface Body {
  id: number;
  attempt: number;
  startedAt: string;
  endedAt: string;
}

/** A body's end. */
export type Settled =
  | ({ on: 'returned'; output: Encoded | undefined } & Body)
  | ({ on: 'threw'; error: Encoded; retriable: boolean; retryAfterMs?: number | undefined } & Body);

/** What happened. */
export type Input =
  /** The message is here. `late`: signed more than 5 s ago (C4). */
  | { on: 'start'; late: boolean; connected: boolean }
  | { on: 'page'; entries: readonly Entry[]; next: number | null }
  /** A page could not be read. */
  | { on: 'unread'; status: 'superseded' | 'ended' | 'failed' }
  /** The code asks for a step; `id` is the caller's, never used twice. */
  | { on: 'asked'; id: number; name: string; retries: number }
  /** The code has come to rest after `play`, `release` or a stray `asked` (the effect `rest`). */
  | { on: 'rested' }
  | Settled
  /** The function returned. */
  | { on: 'completed'; output: Encoded | undefined }
  /** The function threw. */
  | { on: 'failed'; error: Encoded; retriable: boolean; retryAfterMs?: number | undefined }
  /** A step's pause is over. */
  | { on: 'due'; name: string; number: number }
  | { on: 'saved'; outcome: SaveOutcome }
  /** A save's request failed; every try has since the first of them was sent, `ms` ago. */
  | { on: 'unsent'; ms: number }
  /** As `unsent`, while a try is under way. */
  | { on: 'silent'; ms: number }
  | { on: 'news'; status: 'superseded' | 'ended' | 'ending' | 'named?'; ending?: Ending | null }
  | { on: 'disconnected' }
  /** The answer could not be delivered. */
  | { on: 'undelivered' }
  /** The answer was delivered, or the end accepted. */
  | { on: 'delivered' }
  /** The process stops, or the host's time limit is near. */
  | { on: 'hurry'; why: 'stopping' | 'time' }
  | { on: 'allowance over' };

/** What is to be done. */
export type Effect =
  /** Call the workflow's function. */
  | { do: 'play' }
  /** Say `rested` in a macrotask of its own. */
  | { do: 'rest' }
  | { do: 'fetch'; after: number }
  /** Call a step's function. */
  | { do: 'body'; id: number; name: string; number: number; attempt: number }
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
  /** Answer the call; `keep`: deliver it through the API as well (C10). */
  | { do: 'answer'; message: EndMessage; keep: boolean }
  /** Deliver the end through the API (C10). */
  | { do: 'end'; message: EndMessage }
  /** Answer nothing of ours: the server takes it for a cut. */
  | { do: 'cut' }
  /** The playing is over: forget it. */
  | { do: 'over' };
