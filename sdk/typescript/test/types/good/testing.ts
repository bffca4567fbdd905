import { nelkap, type Workflow } from 'nelkap';
import { CrashError, crashEverywhere, hang, marks, testRun, type CrashReport, type Marks, type Scenario, type TestLine, type TestRun, type TestStep } from 'nelkap/testing';
import { z } from 'zod';
import { same } from '../same.js';

const order = nelkap.workflow({ name: 'order', payload: z.object({ id: z.string(), n: z.number().default(1) }) }, async ({ id }) => ({ id, at: new Date() }));
const bare = nelkap.workflow('bare', async () => {});
const outside: Marks = marks();

const run = await testRun(order, { id: 'o_1' }, {
  steps: { charge: ({ idempotencyKey, attempt }, { number }) => ({ idempotencyKey, attempt, number }), ticket: { check: () => undefined, run: hang } },
  events: [{ event: 'order.approved', payload: 1 }, { callback: 'approval', payload: { by: 'me' } }],
  workflows: { other: order, faked: (payload: { id: string }) => payload.id },
  filters: { 'size(payload) > 1': ({ payload }) => Array.isArray(payload) },
  event: 'order.paid', key: 'k', claimed: ['k'], now: new Date(),
});
same<typeof run, TestRun<{ id: string; at: string }>>(true);
same<typeof run.output, { id: string; at: string } | undefined>(true);
const on = await run.skip('3 days'); same<typeof on, typeof run>(true);
await run.emit({ event: 'x', payload: 1, id: 'e', at: '2027-01-01' }); await run.post('approval'); await run.end(); await run.cancel(); await run.skip();
const again = await run.replay({ from: 'charge', keepKeys: true }); same<typeof again.output, { id: string; at: string } | undefined>(true);
const step: TestStep | undefined = run.step('charge'); void step; const until: Date | null | undefined = run.waitingFor[0]?.until; void until;
const none = await testRun(bare); same<typeof none.output, void | undefined>(true); await testRun(bare, undefined, { claimed: [] });

const left: boolean = await outside.leave('charge o_1', { idempotencyKey: 'k' }); void left;
const report = await crashEverywhere(order, { id: 'o_1' }, {
  marks: [outside], before: async () => outside.clear(), mayEnd: ['completed', 'failed'], timings: ['early'], startedTwice: true, replayed: true, only: 'x', scenariosMax: 10, stepsMax: 10,
  check: (played, scenario) => { same<typeof played, TestRun<{ id: string; at: string }>>(true); same<typeof scenario, Scenario>(true); },
});
same<typeof report, CrashReport>(true);
await crashEverywhere(bare); const error: Scenario = new CrashError('x', { name: 'n', story: 's' }).scenario; void error;
const typed: Workflow<string, number> = nelkap.workflow('t', async (x: string) => x.length); same<(typeof typedRun)['output'], number | undefined>(true);
const typedRun = await testRun(typed, 'x');
await testRun(bare, undefined, { events: [{ cancel: true }] }); const line: TestLine | undefined = typedRun.logs[0]; void line; const undo = typedRun.steps.some(({ kind }) => kind === 'undo'); void undo;
