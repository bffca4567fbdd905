import type { Ask } from './effect.js';
import type { StepName } from './message.js';

/**
 * Where a step of a playing is. One with a body:
 *
 *     asked ─▶ starting ─▶ (asked) ─▶ running ─▶ saving ─▶ known ─▶ (released: forgotten)
 *       ▲          │  └─▶ delayed ─┘     │          │
 *       │          └── start refused ────┼──────────┼─▶ dropped
 *       └──────────── pausing ◀──────────┴──────────┘
 *
 * `starting` only where starts are recorded (C13, S4, S5), `delayed` only before a check (S4).
 *
 *     a wait:    asked ─▶ registering ─▶ open ─▶ known      (`asked` until the suspended answer, where no body runs)
 *     a question (claim, callback):  asked ─▶ saving ─▶ known
 *
 * `dropped` steps never come back to the code of this playing (H7).
 */
export type StepState =
  | 'asked'
  | 'starting'
  | 'delayed'
  | 'running'
  | 'saving'
  | 'pausing'
  | 'registering'
  | 'open'
  | 'known'
  | 'dropped';

export interface Step extends StepName {
  readonly id: number;
  readonly name: string;
  readonly number: number;
  readonly ask: Ask;
  /** Asked in the first turn or in the turn of a released entry (S1). */
  readonly isOrderly: boolean;
  readonly state: StepState;
  /** The attempt that runs, or runs next. */
  attempt: number;
  /** What the attempt does next. */
  next: 'start' | 'check' | 'body';
}

/** A map from a step's name and number. Nested, since a name may hold any character (E4). */
export class Named<T> {
  private readonly names = new Map<string, Map<number, T>>();

  get(of: StepName): T | undefined {
    return this.names.get(of.name)?.get(of.number);
  }

  set(of: StepName, value: T): void {
    let numbers = this.names.get(of.name);
    if (numbers === undefined) this.names.set(of.name, (numbers = new Map()));
    numbers.set(of.number, value);
  }

  delete(of: StepName): void {
    this.names.get(of.name)?.delete(of.number);
  }

  /** Those of one name. */
  of(name: string): Iterable<T> {
    return this.names.get(name)?.values() ?? [];
  }
}

/** The steps that the code waits for. */
export class Steps {
  private readonly byId = new Map<number, Step>();
  private readonly byName = new Named<Step>();
  private readonly counts = new Map<StepState, number>();

  add(step: Step): void {
    this.byId.set(step.id, step);
    this.byName.set(step, step);
    this.tally(step.state, 1);
  }

  at(id: number): Step | undefined {
    return this.byId.get(id);
  }

  get(of: StepName): Step | undefined {
    return this.byName.get(of);
  }

  /** Those of one name. */
  of(name: string): Iterable<Step> {
    return this.byName.of(name);
  }

  /** Those in some states, in the order in which the code asked. */
  in(...states: readonly StepState[]): Step[] {
    return [...this.byId.values()].filter((step) => states.includes(step.state));
  }

  count(...states: readonly StepState[]): number {
    return states.reduce((sum, state) => sum + (this.counts.get(state) ?? 0), 0);
  }

  move(step: Step, state: StepState): void {
    this.tally(step.state, -1);
    this.tally(state, 1);
    (step as { state: StepState }).state = state;
  }

  /** The code has it. */
  forget(step: Step): void {
    this.tally(step.state, -1);
    this.byId.delete(step.id);
    this.byName.delete(step);
  }

  private tally(state: StepState, by: 1 | -1): void {
    this.counts.set(state, (this.counts.get(state) ?? 0) + by);
  }
}
