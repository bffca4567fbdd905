import type { EndMessage, Item } from '../core/message.js';

/** A place where a call may be cut off. */
export type Point =
  | { at: 'before save' | 'after save'; items: readonly Item[] }
  | { at: 'body'; step: string }
  | { at: 'mark'; mark: string; step: string | null }
  | { at: 'answer'; end: EndMessage['type'] };

/** The place in words: what a sentence that begins "When its call was cut off" goes on with. */
export function describePoint(point: Point): string {
  switch (point.at) {
    case 'before save':
      return `before ${savedOf(point.items)} was saved`;
    case 'after save':
      return `after ${savedOf(point.items)} was saved and before the app heard of it`;
    case 'body':
      return `after the body of '${point.step}' had run and before its result was saved`;
    case 'mark': {
      const where = point.step === null ? 'in code outside steps' : `in the body of '${point.step}'`;
      return `${where}, just after it had left the mark '${point.mark}'`;
    }
    case 'answer':
      return `${ends[point.end] ?? 'at its end'} and before its answer arrived`;
  }
}

const ends: Partial<Record<EndMessage['type'], string>> = {
  completed: 'after the code had returned',
  failed: 'after the code had thrown',
  suspended: 'after the code had come to wait',
};

function savedOf(items: readonly Item[]): string {
  const parts = items.map(({ op, name }) =>
    name === '' ? "the claim of its 'once'" : `${whats[op]} '${name}'`,
  );
  return parts.length === 0 ? 'nothing' : parts.join(' and ');
}

const whats: Record<Item['op'], string> = {
  start: 'the start of',
  completed: 'the result of',
  failed: 'the failure of',
  wait: 'the wait',
  claim: 'the claim',
  callback: 'the callback',
  undo: 'the undo',
};
