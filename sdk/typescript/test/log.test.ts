import { expect, test } from 'vitest';
import type { WorkflowContext } from '../src/index.js';
import type { LogLine } from '../src/core/message.js';
import { LogLines } from '../src/core/log-lines.js';
import { Encoded } from '../src/core/text.js';
import { written } from '../src/shell/line-text.js';
import { shared } from '../src/shell/process.js';
import { callOf, play } from './app.js';
import { answerOf, done, one, Played } from './played.js';
import { log, nelkap, server } from './stage.js';

function sent(): any[] {
  return server.paths('/v1/saves').flatMap((seen) => seen.body.saves.flatMap((save: any) => save.logs ?? []));
}

/** All lines that came: on a busy machine a second may be over before the answer, and a save brings them. */
function heard(answer: any): any[] {
  return [...sent(), ...(answer.logs ?? [])];
}

test('lines go where they went, and to the server', async () => {
  const w = nelkap.workflow('w', async (_payload, { log: runLog }) => {
    runLog.debug('begins', { n: 1 });
    await nelkap.step.run('a', (context) => context.log.warn('inside'));
    runLog.error('ends');
  });
  const message = callOf('w');
  const answer = await play(nelkap.handler({ workflows: [w] }), message);
  const run = { run: message.run.id, workflow: 'w' };
  expect(log.debug).toHaveBeenCalledExactlyOnceWith('begins', { ...run, n: 1 });
  expect(log.warn).toHaveBeenCalledExactlyOnceWith('inside', { ...run, step: 'a', attempt: 1 });
  expect(log.error).toHaveBeenCalledExactlyOnceWith('ends', run);
  log.error.mockClear();
  const at = expect.stringMatching(/^\d{4}-.*Z$/);
  expect(heard(answer)).toEqual([
    { at, level: 'debug', message: 'begins', fields: { n: 1 }, entry: 0, attempt: 1, line: 1 },
    { at, level: 'warn', message: 'inside', step: { name: 'a', number: 1 }, attempt: 1, line: 1 },
    { at, level: 'error', message: 'ends', entry: 1, attempt: 1, line: 1 },
  ]);
});

test('lines of a long body are sent after a second, though nothing is saved', async () => {
  let finish = (): void => {};
  const w = nelkap.workflow('w', () =>
    nelkap.step.run('a', (context) => {
      context.log.info('begins');
      context.log.info('goes on');
      return new Promise<void>((resolve) => (finish = resolve));
    }),
  );
  const answer = play(nelkap.handler({ workflows: [w] }), callOf('w'));
  await server.until(() => sent().length > 0);
  expect(sent()).toMatchObject([
    { message: 'begins', line: 1 },
    { message: 'goes on', line: 2 },
  ]);
  expect(server.paths('/v1/saves')[0]?.body.saves[0].items).toEqual([]);
  finish();
  expect(await answer).toMatchObject({ type: 'completed' });
  expect(sent()).toHaveLength(2);
});

test('the key that a run had to own silences nothing', async () => {
  const w = nelkap.workflow({ name: 'w', once: () => 'k' }, (_payload, { log: runLog }) =>
    runLog.info('begins'),
  );
  const entry = { entry: 1, kind: 'claim', name: '', number: 1, status: 'completed', output: true };
  for (const entries of [[], [entry]]) {
    const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w', { steps: { entries } }));
    expect(heard(answer)).toMatchObject([{ message: 'begins', entry: 1, line: 1 }]);
  }
  expect(log.info).toHaveBeenCalledTimes(2);
});

test('nothing is written again while saved steps answer', async () => {
  const entries = [1, 2].map((entry) => ({
    entry,
    kind: 'run',
    name: 'a',
    number: entry,
    status: 'completed',
  }));
  const w = nelkap.workflow('w', async (_payload, { log: runLog }) => {
    for (const n of [0, 1, 2]) {
      runLog.info(`before ${n}`);
      if (n < 2) await nelkap.step.run('a', () => n);
    }
  });
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w', { steps: { entries } }));
  expect(log.info.mock.calls.map(([message]) => message)).toEqual(['before 2']);
  expect(heard(answer)).toMatchObject([{ message: 'before 2', entry: 2, line: 1 }]);
});

test('in a closing the handler is heard, with numbers of its own, and the function is not', async () => {
  const onFailure = (_: unknown, { log: runLog }: WorkflowContext): void => runLog.info('failed');
  const w = nelkap.workflow({ name: 'w', onFailure }, async (_payload, { log: runLog }) => {
    await nelkap.step.undo('give back', (context) => context.log.info('given back'));
    runLog.info('said before');
    throw new Error('no');
  });
  const steps = { entries: [{ entry: 1, kind: 'undo', name: 'give back', number: 1, status: 'completed' }] };
  const ending = { reason: 'failed', error: { name: 'Error', message: 'no' }, entries: 1 };
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w', { steps, ending }));
  expect(log.info.mock.calls.map(([message]) => message)).toEqual(['given back', 'failed']);
  // The function may have written a line of entry 1, attempt 1 and number 1.
  expect(heard(answer).slice(1)).toMatchObject([{ message: 'failed', entry: 1, attempt: 1, line: 10_001 }]);
});

test.each<[string, () => unknown, object | string]>([
  ['nothing', () => undefined, ''],
  ['null', () => null, ''],
  ['a bigint', () => ({ n: 1n }), "fields.n is a bigint (give a string): JSON can't hold it"],
  [
    'a cycle',
    () => {
      const cycle: Record<string, unknown> = {};
      return (cycle['self'] = cycle);
    },
    "fields.self is a cycle: the value holds itself: JSON can't hold it",
  ],
  [
    'a getter that throws',
    () => ({
      get n() {
        throw new Error('no');
      },
    }),
    'no',
  ],
  [
    'a toJSON that throws',
    () => ({
      n: {
        toJSON() {
          throw new Error('no');
        },
      },
    }),
    "fields.n can't be read: its toJSON threw",
  ],
  [
    'a proxy that says nothing',
    () =>
      new Proxy(
        {},
        {
          ownKeys() {
            throw 'no';
          },
        },
      ),
    'fields can not be read',
  ],
  ['a text', () => 'text', 'fields is no object'],
  ['a list', () => [1], 'fields is no object'],
  ['too much', () => ({ text: 'x'.repeat(9_000) }), '9011 bytes, more than 8192'],
  ['plain data', () => ({ n: 1, at: new Date(0) }), { n: 1, at: '1970-01-01T00:00:00.000Z' }],
])('fields that are %s fail nothing', (_, fields, expected) => {
  const line = written('at', 'info', 'm', fields());
  const found = line.fields?.decode();
  expect(found).toEqual(
    expected === '' ? undefined : typeof expected === 'string' ? { dropped: expected } : expected,
  );
});

test('an error among the fields is told, not emptied', () => {
  const error = new TypeError('no', { cause: new Error('why') });
  expect(written('at', 'error', 'm', { error, n: 1 }).fields?.decode()).toMatchObject({
    n: 1,
    error: { name: 'TypeError', message: 'no', cause: { message: 'why' } },
  });
});

test.each<[string, unknown, string]>([
  ['is cut on a whole character', `${'x'.repeat(8_191)}€`, 'x'.repeat(8_191)],
  ['may just fit', `${'x'.repeat(8_189)}€`, `${'x'.repeat(8_189)}€`],
  ['need not be a text', 5n, '5'],
  ['may have no text', Object.create(null), 'a message that has no text'],
])('a message %s', (_, message, expected) => {
  expect(written('at', 'info', message, undefined).message).toBe(expected);
});

test('a logger that throws, and fields that nothing can read, fail no run', async () => {
  log.info.mockImplementationOnce(() => {
    throw new Error('full');
  });
  const w = nelkap.workflow('w', (_payload, { log: runLog }) => {
    runLog.info('x', { big: 1n });
    return 1;
  });
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(answer.output).toBe(1);
  expect(heard(answer)).toMatchObject([{ fields: { dropped: expect.stringContaining('fields.big') } }]);
});

const place = { entry: 1, attempt: 1, isHandler: false };
const line = (message: string): Parameters<LogLines['add']>[0] => ({ at: 'at', level: 'info', message });

test('of too many lines the last are dropped, and the next says how many', () => {
  const lines = new LogLines();
  for (let n = 0; n < 1_003; n++) lines.add(line(`${n}`), place);
  const kept: LogLine[] = [];
  for (let part = lines.take(); part.length > 0; part = lines.take()) kept.push(...part);
  expect(kept).toHaveLength(1_000);
  lines.add(line('next'), place);
  expect(lines.take()).toMatchObject([
    { level: 'warn', message: '3 lines were dropped', line: 1_004 },
    { message: 'next', line: 1_005 },
  ]);
});

test('a save takes as much as fits into a request, and the answer says what it left out', () => {
  const lines = new LogLines();
  const fields = new Encoded(JSON.stringify({ text: 'x'.repeat(8_000) }));
  for (let n = 0; n < 100; n++) lines.add({ ...line('m'), fields }, place);
  expect(lines.take()).toHaveLength(31);
  expect(lines.areDue).toBe(true);
  const last = lines.takeLast();
  expect(last).toHaveLength(32);
  expect(last.at(-1)).toMatchObject({ level: 'warn', message: '38 lines were dropped' });
});

test('attempts that overlap count their lines apart', () => {
  const lines = new LogLines();
  const step = { name: 'a', number: 1 };
  for (const attempt of [1, 2, 1]) lines.add(line('m'), { step, attempt });
  expect(lines.take().map((each) => [each.attempt, each.line])).toEqual([
    [1, 1],
    [2, 1],
    [1, 2],
  ]);
});

test('lines that are due while a save is under way go with the next', () => {
  const played = new Played();
  played.ask('a', 'b');
  played.rest();
  played.returned(0);
  expect(played.playing.nextSave()?.items).toHaveLength(1);
  played.playing.log(() => line('late'), undefined, undefined);
  expect(done(played.apply({ on: 'logs due' }))).toEqual(['save']);
  expect(played.playing.nextSave()).toBeNull();
  expect(done(played.saved([{ status: 'saved', entry: 1 }]))).toContain('save');
  expect(played.playing.nextSave()).toMatchObject({ items: [], logs: [{ message: 'late' }] });
  expect(done(played.apply({ on: 'logs due' }))).toEqual([]);
});

test('lines of a save that failed come in the answer', () => {
  const played = new Played();
  played.ask('a');
  played.rest();
  played.playing.log(() => line('first'), undefined, undefined);
  played.returned(0);
  played.playing.nextSave();
  played.playing.log(() => line('second'), undefined, undefined);
  const answer = answerOf(played.apply({ on: 'silent' }));
  expect(answer).toMatchObject({
    type: 'yielded',
    unsaved: [{ name: 'a' }],
    logs: [{ message: 'first' }, { message: 'second' }],
  });
});

test('lines that were written when the code has ended come in the answer alone', () => {
  const played = new Played();
  played.playing.log(() => line('m'), undefined, undefined);
  played.apply({ on: 'completed', output: one });
  expect(answerOf(played.rest())).toMatchObject({ type: 'completed', logs: [{ message: 'm' }] });
  expect(played.apply({ on: 'logs due' })).toEqual([]);
  expect(shared().bodies).toBe(0);
});
