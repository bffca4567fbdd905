import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { nelkap } from '../../src/index.js';
import { testRun } from '../../src/testing/index.js';

const { step } = nelkap;

// A result that is waited for outside steps says so.
beforeEach(() => void vi.spyOn(console, 'warn').mockImplementation(() => {}));
afterEach(() => void vi.restoreAllMocks());

test('the result of a run that a step started can be waited for', async () => {
  const other = nelkap.workflow('other', async () => {
    await step.sleep('s', '1h');
    return 7;
  });
  const w = nelkap.workflow('w', async () => {
    const handle = await step.run('start', () => nelkap.run(other));
    return nelkap.result(handle, other);
  });
  const run = await testRun(w);
  expect(run.status).toBe('running');
  expect(await run.end()).toMatchObject({ output: 7 });
});

test("the time for which a result is waited for is the run's", async () => {
  const other = nelkap.workflow('other', () => step.sleep('s', '3h'));
  const w = nelkap.workflow('w', async () => {
    const handle = await step.run('start', () => nelkap.run(other));
    const wait = () => nelkap.result(handle, other, { timeout: '1h' });
    const outcome = await step.run('wait', { retries: 0 }, wait).catch((error: Error) => error.name);
    return [
      outcome,
      await nelkap.result(handle, other, { timeout: '1h' }).catch((error: Error) => error.name),
    ];
  });
  const run = await testRun(w);
  expect(run).toMatchObject({ status: 'running', waitingFor: [{ name: 'wait', kind: 'run' }] });
  await run.skip('59m');
  expect(run.step('wait')).toBeUndefined();
  await run.skip('1m');
  expect(run.step('wait')).toMatchObject({ status: 'failed' });
  expect(await run.end()).toMatchObject({ output: ['TimeoutError', 'TimeoutError'] });
  expect(run.others[0]).toMatchObject({ status: 'waiting' });
});
