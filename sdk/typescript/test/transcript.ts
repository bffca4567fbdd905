import { readdirSync, readFileSync } from 'node:fs';

/** One file of protocol/transcripts. */
export interface Transcript {
  file: string;
  title: string;
  workflow: keyof typeof import('./fixture.js').fixtures;
  retries?: number;
  lines: Line[];
}

export type Line = { [key: string]: unknown } & { message?: any };

const folder = new URL('../../../protocol/transcripts/', import.meta.url);

export const transcripts: Transcript[] = readdirSync(folder)
  .filter((file) => file.endsWith('.json'))
  .map((file) => ({ file, ...JSON.parse(readFileSync(new URL(file, folder), 'utf8')) }));

const ignored = new Set([
  'at',
  'startedAt',
  'endedAt',
  'createdAt',
  'time',
  'sentAt',
  'process',
  'manifest',
  'stack',
  'url',
  'limits',
]);

/** A message without the fields that comparisons leave out. */
export function bare(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(bare);
  if (typeof part !== 'object' || part === null) return part;
  return Object.fromEntries(
    Object.entries(part)
      .filter(([key, member]) => !ignored.has(key) && member !== undefined)
      .map(([key, member]) => [key, bare(member)]),
  );
}

/** A call's message with what a transcript leaves out. */
export function wholeCall(message: any, workflow: string): any {
  const { ending } = message;
  const run = { id: '$run', workflow, app: 'app', payload: null, event: null, key: null, replayOf: null };
  return {
    type: 'call',
    run: {
      ...run,
      root: '$run',
      restart: 0,
      attempt: 1,
      createdAt: '2026-01-01T00:00:00.000Z',
      ...message.run,
    },
    call: { cuts: 0, leaseMs: 300_000, heartbeatMs: 5_000, ...message.call },
    steps: { entries: [], next: null, retrying: [], waiting: [], ...message.steps },
    ...(ending !== undefined && { ending }),
  };
}
