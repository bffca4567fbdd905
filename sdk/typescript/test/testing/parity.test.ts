import { expect, test } from 'vitest';
import { nelkap } from '../../src/index.js';
import { crashEverywhere, testRun } from '../../src/testing/index.js';

const { step } = nelkap;

test('a child whose parent has returned is cancelled', async () => {
  const approval = nelkap.workflow({ name: 'approval' }, async () => {
    await step.waitForEvent('approved', { event: 'approved' });
  });
  const wf = nelkap.workflow({ name: 'race' }, async () => {
    return await step.race([step.invoke('ask', approval, undefined), step.sleep('timeout', '1h')]);
  });
  const played = await (await testRun(wf, undefined)).end();
  expect(played.status).toBe('completed');
  expect(played.others.map(({ status }) => status)).toEqual(['cancelled']);
});

test('the timeout of a run for later counts from then', async () => {
  const late = nelkap.workflow({ name: 'late', timeout: '1h' }, async () => 'done');
  const wf = nelkap.workflow({ name: 'starter' }, async () => {
    await step.run('start', async () => {
      await nelkap.run(late, undefined, { delay: '2h' });
    });
    await step.sleep('s', '3h');
  });
  const played = await (await testRun(wf, undefined)).end();
  expect(played.others.map(({ status, output }) => [status, output])).toEqual([['completed', 'done']]);
});

test('an event with an id comes early, and in its time for a wait that does not look back', async () => {
  const wf = nelkap.workflow({ name: 'fresh' }, async (_: string) => {
    await step.run('a', () => 1);
    await step.waitForEvent('paid', { event: 'paid', since: 'wait' });
  });
  const report = await crashEverywhere(wf, 'x', { events: [{ event: 'paid', id: 'p1', payload: 1 }] });
  expect(report.scenarios).toBeGreaterThan(4);
});
