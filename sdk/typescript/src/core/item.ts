import type { Entry, Item, ItemOutcome, QuestionItem, RunItem, WaitItem } from './message.js';
import type { Settled } from './effect.js';
import type { Step } from './step.js';
import { bytesOf, Encoded, stringify } from './text.js';

interface Failure {
  error: Encoded;
  retriable: boolean;
  retryAfterMs?: number | undefined;
  startedAt?: string | undefined;
  endedAt?: string | undefined;
}

function runItem(step: Step): Pick<RunItem, 'kind' | 'name' | 'number' | 'attempt'> {
  const { name, number, attempt } = step;
  return { kind: 'run', name, number, attempt };
}

export function startItem(step: Step): RunItem {
  const isOnce = step.ask.op === 'run' && step.ask.once === true;
  return { op: 'start', ...runItem(step), ...(isOnce && { once: true }) };
}

export function failedItem(step: Step, input: Failure): RunItem {
  const { error, retriable, retryAfterMs, startedAt, endedAt } = input;
  return {
    ...runItem(step),
    op: 'failed',
    error,
    retriable,
    retries: step.ask.op === 'run' ? step.ask.retries : 0,
    retryAfterMs,
    startedAt,
    endedAt,
  };
}

/** A step whose result is too large fails: its body ran, and would give the same again (S3). */
export function completedItem(
  step: Step,
  input: Settled & { on: 'returned' | 'found' },
  limit: number,
): RunItem {
  const { output, startedAt, endedAt } = input;
  const error = tooLarge(`The step '${step.name}' ran, but its result`, output, limit);
  if (error === undefined) return { ...runItem(step), op: 'completed', output, startedAt, endedAt };
  return failedItem(step, { error, retriable: false, startedAt, endedAt });
}

/** What registers a wait, or asks a question. */
export function askItem({ ask, name, number }: Step): WaitItem | QuestionItem {
  return { ...ask, name, number } as WaitItem | QuestionItem;
}

/**
 * The entry that an item became; undefined where the server has to send it and did not. The value of a body is decoded from
 * the text that was saved: the code gets a copy (F3).
 */
export function entryOf(item: Item, outcome: ItemOutcome): Entry | undefined {
  const { kind, name, number } = item;
  const entry = outcome.entry ?? 0;
  switch (item.op) {
    case 'completed':
      return { entry, kind, name, number, status: 'completed', output: item.output?.decode() };
    case 'failed':
      return {
        entry,
        kind,
        name,
        number,
        status: 'failed',
        error: item.error?.decode(),
        attempts: item.attempt,
      };
    case 'claim':
    case 'callback':
      if (outcome.output === undefined) return undefined;
      return { entry, kind, name, number, status: 'completed', output: outcome.output };
    case 'undo':
      return { entry, kind, name, number, status: 'completed' };
    default:
      return undefined;
  }
}

/** Whether waits are too many for an answer beside what else it holds. */
export function isTooMuch(items: readonly WaitItem[], limit: number): boolean {
  let units = 0;
  return items.some((item) => (units += sizeOf(item)) > limit);
}

/** UTF-16 units that an item takes: close enough to its bytes to choose the request that it travels in. */
export function sizeOf(item: Item): number {
  if (item.kind !== 'run') return stringify(item).length;
  return (item.output?.text.length ?? 0) + (item.error?.text.length ?? 0) + item.name.length;
}

/** What a value fails with that has more bytes than can be saved; undefined where it has not (S3). */
export function tooLarge(what: string, output: Encoded | undefined, limit: number): Encoded | undefined {
  const text = output?.text ?? '';
  // Every UTF-16 unit takes one to three bytes, so short texts need no measuring.
  const bytes = text.length * 3 > limit ? bytesOf(text) : 0;
  if (bytes <= limit) return undefined;
  const message = `${what} can't be saved: it has ${bytes} bytes, more than ${limit}. Store it elsewhere, and return where it is.`;
  return new Encoded(JSON.stringify({ name: 'ResultTooLargeError', message }));
}
