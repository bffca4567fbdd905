import type { History } from './history.js';
import type { CallMessage, StepName } from './message.js';
import { otherKind, type Problem, sameName, tooManySteps } from './problem.js';
import { Named, type Step, type Steps } from './step.js';

const STEPS_MAX = 10_000;

/** Which of the run's steps a name means (S1, S7), and what is known of it beside its entry. */
export class Identity {
  private readonly numbers = new Map<string, number>();
  private readonly retrying = new Named<{ attempt: number; due: boolean }>();
  /** The kinds of the waits that were open when the call began. */
  private readonly waiting = new Named<string>();
  /** The steps that had begun, and may have been cut off. */
  private readonly begun = new Named<true>();
  private readonly history: History;
  private readonly steps: Steps;
  private readonly limit: number;
  private asked = 0;

  constructor({ steps: { retrying, waiting, begun }, limits }: CallMessage, history: History, steps: Steps) {
    this.history = history;
    this.steps = steps;
    this.limit = limits?.steps ?? STEPS_MAX;
    for (const wait of waiting ?? []) this.waiting.set(wait, wait.kind);
    for (const step of begun ?? []) this.begun.set(step, true);
    for (const retry of retrying)
      this.retrying.set(retry, { attempt: retry.attempt, due: retry.retryInMs <= 0 });
  }

  /**
   * The next step of a name. A renamed one that the run has under its old name alone keeps that, also where it was cut off: else one at
   * most once would begin a second time (S7). An undo takes two counts, of which the second is its body's.
   */
  next(name: string, was: string | undefined, counts: 1 | 2): StepName {
    const now = this.count(name, counts);
    if (was === undefined || was === name || this.isKnown(now)) return now;
    const before = { name: was, number: Math.max((this.numbers.get(was) ?? 0) + 1, now.number) };
    if (this.isKnown(before)) {
      this.numbers.set(was, before.number + counts - 1);
      return before;
    }
    return now;
  }

  private count(name: string, counts: 1 | 2): StepName {
    const before = this.numbers.get(name) ?? 0;
    this.numbers.set(name, before + counts);
    return { name, number: before + 1 };
  }

  /** Why a step can't be told apart from another, or is one too many: the run stops, for its names would lie. */
  problem(step: Step, names: readonly string[]): Problem | undefined {
    this.asked += 1;
    if (this.asked > this.limit) return tooManySteps(this.limit);
    const kind = this.kindOf(step);
    const isOther = kind !== step.ask.kind || (this.isOpen(step) && step.ask.op !== 'wait');
    if (kind !== undefined && isOther) return otherKind(step.name, kind, step.ask.kind);
    for (const name of names) {
      for (const other of this.steps.of(name)) {
        if (!step.isOrderly || !other.isOrderly) return sameName(name);
      }
    }
    return undefined;
  }

  private isKnown(step: StepName): boolean {
    return this.kindOf(step) !== undefined || this.begun.get(step) !== undefined;
  }

  /** The kind of step that the run has under a name and number. */
  private kindOf(step: StepName): string | undefined {
    return this.history.get(step)?.kind ?? this.waiting.get(step) ?? (this.retrying.get(step) && 'run');
  }

  /** Whether the wait was registered in an earlier call. */
  isOpen(step: StepName): boolean {
    return this.waiting.get(step) !== undefined;
  }

  /** How often the step was tried in earlier calls, and whether its pause is over. */
  retryOf(step: StepName): { readonly attempt: number; readonly due: boolean } | undefined {
    return this.retrying.get(step);
  }

  /** The step's pause is over. */
  due(step: StepName): void {
    const retry = this.retrying.get(step);
    if (retry !== undefined) retry.due = true;
  }
}
