import type { EndMessage, Entry, StepName, WaitItem } from './message.js';
import type { Steps } from './step.js';
import type { Trees } from './tree.js';

const UNASKED_MAX = 20;

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
