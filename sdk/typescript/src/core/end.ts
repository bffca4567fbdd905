import type { EndMessage, Entry, StepName, WaitItem } from './message.js';
import type { Step, Steps } from './step.js';
import type { Trees } from './tree.js';

const UNASKED_MAX = 20;
const LEFT_MAX = 20;

/** A step that the code asked for, and that its end cuts off. */
export interface Left extends StepName {
  readonly attempt: number;
  readonly message: string;
}

/**
 * What the code did not wait for, and should know of. Waits that leave no mark are none of it, nor are members of a combination, whose
 * losers are meant to be left; those of a native one can't be told apart.
 */
export function leftIn(steps: Steps, trees: Trees, abandoned: readonly Step[]): Left[] {
  const unstarted = steps
    .in('asked', 'pausing')
    .filter(({ ask }) => ask.op !== 'wait' || ask.kind === 'invoke');
  return [...unstarted, ...abandoned]
    .filter(({ id }) => !trees.holds(id))
    .slice(0, LEFT_MAX)
    .map((step) => ({
      name: step.name,
      number: step.number,
      attempt: step.attempt,
      message: messageOf(step),
    }));
}

function messageOf({ name, state, attempt }: Step): string {
  if (state === 'dropped') return `step '${name}' went on when the code had ended: its result is not saved`;
  const what = attempt > 1 ? 'it failed, and is not tried again' : 'it did not run';
  return `step '${name}' was asked for and not awaited: ${what}`;
}

/** Saved steps that the code, now at rest, did not ask for (S7). */
export function unaskedIn(entries: readonly Entry[]): { unasked?: StepName[] } {
  if (entries.length === 0) return {};
  return { unasked: entries.slice(0, UNASKED_MAX).map(({ name, number }) => ({ name, number })) };
}

export function yielded(seen: number, isExcused: boolean): EndMessage {
  return { type: 'yielded', seen, ...(isExcused && { excused: true }) };
}

/** `register`: the waits among the steps that nobody knows of yet. */
export function suspended(
  seen: number,
  { steps, trees, register }: { steps: Steps; trees: Trees; register: WaitItem[] },
): EndMessage {
  const leaves = steps.in('pausing', 'open', 'asked').map(({ id, state, name, number }) => {
    const of = { name, number };
    return [id, state === 'pausing' ? { retry: of } : { wait: of }] as const;
  });
  return {
    type: 'suspended',
    seen,
    ...(register.length > 0 && { register }),
    waits: trees.list(new Map(leaves)),
  };
}
