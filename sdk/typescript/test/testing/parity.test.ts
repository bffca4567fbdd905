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

test('a wait of no time has what is there already, or is over', async () => {
  const wf = nelkap.workflow({ name: 'looks' }, async () => {
    await step.run('emit', () => nelkap.emit({ event: 'e', payload: 1 }));
    const first = await step.waitForEvent('first', { event: 'e', timeout: 0 });
    return [first?.payload, await step.waitForEvent('second', { event: 'e', timeout: 0 })];
  });
  expect(await testRun(wf, undefined)).toMatchObject({ status: 'completed', output: [1, null] });
});

// Rule K5.
test('a replay has the callbacks that it keeps once their run has ended, and uses no event twice', async () => {
  const wf = nelkap.workflow({ name: 'asks' }, async () => {
    const first = await step.waitForEvent('first', { event: 'e' });
    const approval = await step.callback('approval');
    await step.run('a', () => 1);
    const second = await step.waitForEvent('second', { event: 'e', timeout: '1h' });
    return [first?.payload, await approval.wait(), second?.payload];
  });
  const played = await testRun(wf, undefined, { events: [{ event: 'e', payload: 1 }] });
  const early = await played.replay({ from: 'a' });
  await (await played.emit({ event: 'e', payload: 2 })).post('approval', 'yes');
  expect(played.output).toEqual([1, 'yes', 2]);
  expect(early.error?.message).toContain("replay from 'approval' to make another");
  const later = await played.replay({ from: 'a' });
  expect(later.output).toEqual([1, 'yes', 2]);
});

// Rule Z2.
test('a whole replay begins with the first payload, one from a step in the last chapter', async () => {
  const keys: string[] = [];
  const wf = nelkap.workflow({ name: 'pages' }, async (page: number) => {
    await step.run('a', ({ idempotencyKey }) => void keys.push(`${page} ${idempotencyKey}`));
    return page < 2 ? step.restart(page + 1) : page;
  });
  const played = await testRun(wf, 1);
  await played.replay({ keepKeys: true });
  await played.replay({ from: 'a' });
  const [one, two] = keys;
  expect(keys).toEqual([one, two, one, two, two]);
});
