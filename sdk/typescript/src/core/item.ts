import type { Entry, Item } from './message.js';
import type { Step } from './step.js';
import { Encoded } from './text.js';

interface Failure {
  error: Encoded;
  retriable: boolean;
  retryAfterMs?: number | undefined;
  startedAt: string;
  endedAt: string;
}

export function itemOf({ name, number, attempt }: Step): Pick<Item, 'kind' | 'name' | 'number' | 'attempt'> {
  return { kind: 'run', name, number, attempt };
}

export function failedItem(step: Step, input: Failure): Item {
  const { error, retriable, retryAfterMs, startedAt, endedAt } = input;
  return {
    ...itemOf(step),
    op: 'failed',
    error,
    retriable,
    retries: step.retries,
    retryAfterMs,
    startedAt,
    endedAt,
  };
}

/** The entry that an item became. Its value is decoded from the text that was saved: the code gets a copy (F3). */
export function entryOf(item: Item, entry: number): Entry {
  const { kind, name, number } = item;
  if (item.op === 'failed') {
    return {
      entry,
      kind,
      name,
      number,
      status: 'failed',
      error: item.error?.decode(),
      attempts: item.attempt,
    };
  }
  return { entry, kind, name, number, status: 'completed', output: item.output?.decode() };
}

/** UTF-16 units that an item's value takes: close enough to its bytes to choose the request that it travels in. */
export function sizeOf(item: Item): number {
  return (item.output?.text.length ?? 0) + (item.error?.text.length ?? 0) + item.name.length;
}

export function tooLarge(name: string, bytes: number, limit: number): Encoded {
  const message =
    `The step '${name}' ran, but its result can't be saved: it has ${bytes} bytes, more than ${limit}. ` +
    'Store it elsewhere, and return where it is.';
  return new Encoded(JSON.stringify({ name: 'ResultTooLargeError', message }));
}
