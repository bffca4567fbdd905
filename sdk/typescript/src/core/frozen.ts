import type { Problem } from './problem.js';
import type { Entry, KindName, VerifiedMessage } from './message.js';
import type { Step } from './step.js';
import { Encoded } from './text.js';

const LISTED_MAX = 100;

/**
 * The function, played against entries that it can't add to: in a closing (protocol, section 5), and to be verified (D3). A step
 * without an entry among them stays open for good.
 */
export class Frozen {
  /** The function is done with: what it still asks for is never answered. */
  isOver = false;
  private readonly entries: number;
  private readonly open: KindName[] = [];
  private end: Pick<VerifiedMessage, 'end' | 'error'> = {};

  /** `entries`: the last that the function may be shown. */
  constructor(entries: number) {
    this.entries = entries;
  }

  /** Whether the function ended, or waits for what will not come. */
  get isAtRest(): boolean {
    return this.end.end !== undefined || this.open.length > 0;
  }

  shows(entry: Entry): boolean {
    return entry.entry <= this.entries;
  }

  keepOpen({ ask: { kind }, name, number }: Step): void {
    this.open.push({ kind, name, number });
  }

  ended(error?: Encoded): void {
    this.end = error === undefined ? { end: 'returned' } : { end: 'threw', error };
  }

  /** A rule stops the run: the function is not answered any more. */
  stopped(problem: Problem): void {
    this.ended(new Encoded(JSON.stringify(problem)));
    this.isOver = true;
  }

  /** What was found. */
  verified(unasked: readonly Entry[]): VerifiedMessage {
    const end = this.isAtRest ? this.end : { end: 'late' as const };
    return {
      type: 'verified',
      unasked: unasked.slice(0, LISTED_MAX).map(({ kind, name, number }) => ({ kind, name, number })),
      asked: this.open.slice(0, LISTED_MAX),
      ...end,
    };
  }
}
