import type { Entry } from './message.js';

/**
 * Where a step of a playing is:
 *
 *     asked ─▶ starting ─▶ running ─▶ saving ─▶ known ─▶ (released: forgotten)
 *       ▲          └──── start refused ──┼─▶ dropped
 *       └──────────── waiting ◀──────────┘
 *
 * `starting` only while starts are recorded (C13). `dropped` steps never come back to the code of this playing (H7).
 */
export type StepState = 'asked' | 'starting' | 'running' | 'saving' | 'waiting' | 'known' | 'dropped';

export interface Step {
  readonly id: number;
  readonly name: string;
  readonly number: number;
  readonly retries: number;
  /** Asked in the first turn or in the turn of a released entry (S1). */
  readonly orderly: boolean;
  state: StepState;
  /** The attempt that runs, or runs next. */
  attempt: number;
}

/** A map from a step's name and number. Nested, since a name may hold any character (E4). */
export class Named<T> {
  private readonly names = new Map<string, Map<number, T>>();

  get(of: { name: string; number: number }): T | undefined {
    return this.names.get(of.name)?.get(of.number);
  }

  set(of: { name: string; number: number }, value: T): void {
    let numbers = this.names.get(of.name);
    if (numbers === undefined) this.names.set(of.name, (numbers = new Map()));
    numbers.set(of.number, value);
  }

  delete(of: { name: string; number: number }): void {
    this.names.get(of.name)?.delete(of.number);
  }

  /** Those of one name. */
  of(name: string): Iterable<T> {
    return this.names.get(name)?.values() ?? [];
  }
}

/** A step whose entry is known, on its way to the code. */
export interface Ready {
  readonly step: Step;
  readonly entry: Entry;
}

/** The entries that the code may be shown, in the history's order (H1). */
export class Queue {
  private readonly ready: Ready[] = [];

  add(step: Step, entry: Entry): void {
    let at = this.ready.length;
    while (at > 0 && (this.ready[at - 1] as Ready).entry.entry > entry.entry) at--;
    this.ready.splice(at, 0, { step, entry });
  }

  next(): Ready | undefined {
    return this.ready.shift();
  }
}
