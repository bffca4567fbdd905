import { expect, test, vi } from 'vitest';
import { shared } from '../src/shell/process.js';
import { callOf, play } from './app.js';
import { log, nelkap, server } from './stage.js';

function verifyOf(workflow: string, entries: object[] = [], more: object = {}): object {
  const { run, steps } = callOf(workflow, { steps: { entries } });
  return { type: 'verify', run, steps, limitMs: 5_000, ...more };
}

const a = { entry: 1, kind: 'run', name: 'a', number: 1, status: 'completed', output: 1 };

// Rule D3.
test('code is verified without a trace: nothing runs, is sent, is claimed or is written', async () => {
  const once = vi.fn(() => 'k');
  const body = vi.fn();
  const w = nelkap.workflow({ name: 'w', once }, async (_payload, { log: runLog, step }) => {
    runLog.info('begins');
    const out = await step.run('a', body);
    const handle = await nelkap.run(nelkap.ref('other'), out);
    const [event] = await nelkap.emit([{ event: 'e', payload: 1 }]);
    runLog.warn('sent', { handle: handle.created, event: event?.event });
    await step.claim(`claimed ${handle.workflow} ${event?.event}`, 'k');
    await step.undo('never', body);
  });
  const answer = await play(nelkap.handler({ workflows: [w] }), verifyOf('w', [a]));
  expect(answer).toEqual({
    status: 200,
    type: 'verified',
    unasked: [],
    asked: [{ kind: 'claim', name: 'claimed other e', number: 1 }],
  });
  expect(once).not.toHaveBeenCalled();
  expect(body).not.toHaveBeenCalled();
  for (const write of Object.values(log)) expect(write).not.toHaveBeenCalled();
  expect(server.seen).toEqual([]);
});

test.each<[string, () => unknown, object]>([
  ['returns', () => 1, { end: 'returned' }],
  ['begins again', () => nelkap.step.restart(1), { end: 'returned' }],
  [
    'throws',
    () => {
      throw new TypeError('no');
    },
    { end: 'threw', error: { name: 'TypeError', message: 'no' } },
  ],
  ['never comes to rest', () => new Promise<null>(() => {}), { end: 'late' }],
])('code that %s', async (_, fn, end) => {
  const w = nelkap.workflow('w', () => fn() as null);
  expect(await play(nelkap.handler({ workflows: [w] }), verifyOf('w', [a]))).toMatchObject({
    type: 'verified',
    unasked: [{ kind: 'run', name: 'a', number: 1 }],
    asked: [],
    ...end,
  });
});

test('steps that are tried again or waited for are asked for', async () => {
  const w = nelkap.workflow('w', () =>
    Promise.all([nelkap.step.run('a', () => 1), nelkap.step.run('b', () => 1), nelkap.step.sleep('nap', 5)]),
  );
  const { steps } = callOf('w', {
    steps: {
      entries: [a],
      retrying: [{ name: 'b', number: 1, attempt: 1, retryInMs: 50 }],
      waiting: [{ kind: 'sleep', name: 'nap', number: 1 }],
    },
  });
  expect(await play(nelkap.handler({ workflows: [w] }), verifyOf('w', [], { steps }))).toMatchObject({
    asked: [
      { kind: 'run', name: 'b' },
      { kind: 'sleep', name: 'nap' },
    ],
  });
  expect(shared().bodies).toBe(0);
});

test('a workflow that there is not can not be verified, nor without a limit', async () => {
  const handler = nelkap.handler({ workflows: [] });
  expect(await play(handler, verifyOf('w'))).toMatchObject({ status: 404, code: 'workflow_unknown' });
  expect(await play(handler, verifyOf('w', [], { limitMs: 0 }))).toMatchObject({ code: 'bad_request' });
});

test('a process that stops verifies nothing', async () => {
  const handler = nelkap.handler({ workflows: [nelkap.workflow('w', () => 1)] });
  await nelkap.stop();
  expect(await play(handler, verifyOf('w'))).toMatchObject({ status: 503, code: 'stopping' });
});
