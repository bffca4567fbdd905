import { Nelkap, nelkap, type Callback, type Failure, type InputOf, type OutputOf, type Run, type SavedStep, type Schedule, type SchedulePage, type Tick, type WebhookRequest, type Workflow } from 'nelkap';
import { z } from 'zod';
import * as v from 'valibot';
import { type } from 'arktype';
import { same } from '../same.js';

// name + fn
const w1 = nelkap.workflow('w1', async (orderId: string) => ({ orderId, at: new Date() }));
same<InputOf<typeof w1>, string>(true);
same<OutputOf<typeof w1>, { orderId: string; at: string }>(true);
same<InputOf<typeof w1>, string>(true); same<OutputOf<typeof w1>, { orderId: string; at: string }>(true);
const w2 = nelkap.workflow('w2', async () => { await nelkap.step.sleep('s', 1000); });
same<InputOf<typeof w2>, unknown>(true); same<OutputOf<typeof w2>, void>(true);
const w3 = nelkap.workflow('w3', async ({ n }: { n: number }, { run, event, signal, log, step }) => { log.info('x', { id: run.id, a: run.attempt, e: event?.event, s: signal.aborted }); return step.run('x', () => n); });
same<InputOf<typeof w3>, { n: number }>(true); same<OutputOf<typeof w3>, number>(true);
const w4 = nelkap.workflow('w4', (n: number) => n * 2); same<OutputOf<typeof w4>, number>(true);   // sync

// schemas: zod, valibot, arktype
const zOrder = z.object({ id: z.string(), total: z.number(), note: z.string().default('-'), at: z.coerce.date() });
const s1 = nelkap.workflow({ name: 's1', on: { event: 'order.paid' }, payload: zOrder, retries: 4, timeout: '2h', lease: '5m' },
  async (order, { run }) => { same<typeof order, { id: string; total: number; note: string; at: Date }>(true); void run; return order.total; });
const s1in: InputOf<typeof s1> = { id: 'x', total: 1, at: '2026-01-01' }; void s1in; same<OutputOf<typeof s1>, number>(true);
const s2 = nelkap.workflow({ name: 's2', payload: v.object({ id: v.string(), n: v.optional(v.number(), 3) }) }, async (o) => o.n); same<InputOf<typeof s2>, { id: string; n?: number | undefined }>(true); same<OutputOf<typeof s2>, number>(true);
const s3 = nelkap.workflow({ name: 's3', payload: type({ id: 'string', 'n?': 'number' }) }, async (o) => o.id); same<OutputOf<typeof s3>, string>(true);
const s4 = nelkap.workflow({ name: 's4', payload: z.string() }, async (id) => id); same<InputOf<typeof s4>, string>(true);

// triggers without a schema
const t2 = nelkap.workflow({ name: 't2', on: { webhook: 'stripe' } }, async (request) => { same<typeof request, WebhookRequest>(true); return request.body; });
same<InputOf<typeof t2>, WebhookRequest>(true); same<OutputOf<typeof t2>, string>(true);
const t3 = nelkap.workflow({ name: 't3', on: [{ webhook: 'stripe' }, { webhook: 'github' }] }, async (p) => { same<typeof p, WebhookRequest>(true); const bytes: string | undefined = p.bodyBase64; return { p, bytes }; });
const t3b = nelkap.workflow({ name: 't3b', on: [{ event: 'order.paid' }, { webhook: 'shop' }] }, async (p) => { same<typeof p, unknown>(true); });
const t3c = nelkap.workflow({ name: 't3c', on: [{ event: 'order.paid' }, { webhook: 'shop' }] }, async (p: { id: string } | WebhookRequest) => ('webhook' in p ? p.json : p.id));
const t3d = nelkap.workflow({ name: 't3d', on: { webhook: 'shop' }, payload: z.object({ json: zOrder }).transform((request) => request.json) }, async (o) => o.total); same<OutputOf<typeof t3d>, number>(true);
const t3e = nelkap.workflow({ name: 't3e', on: { event: 'webhook.shop' } }, async (request) => { same<typeof request, WebhookRequest>(true); });
const t3f = nelkap.workflow({ name: 't3f', on: { webhook: 'shop' } }, async ({ body, headers }: Pick<WebhookRequest, 'body' | 'headers'>) => [body, headers['x-signature']]);
const t1 = nelkap.workflow({ name: 't1', on: { schedule: '0 9 * * 1-5', timezone: 'Europe/Berlin', catchUp: 'last' } }, async (tick) => { same<typeof tick, Tick>(true); return tick.time; });
const t3g = nelkap.workflow({ name: 't3g', on: [{ schedule: '@daily' }, { webhook: 'github', if: 'true' }] }, async (p) => { same<typeof p, Tick | WebhookRequest>(true); });
const t4b = nelkap.workflow({ name: 't4b', on: { event: 'order.paid', if: 'payload.total > 0' }, cancelOn: [{ event: 'order.cancelled', if: 'true' }, { event: 'all.cancelled' }], payload: zOrder, once: (o) => o.id }, async (o) => o.total);
const t7 = nelkap.workflow({ name: 't7', once: (p: { key: string }) => p.key }, async ({ key }: { key: string }) => key);
const t8 = nelkap.workflow({ name: 't8', once: (p) => p.key }, async ({ key }: { key: string }) => key); same<InputOf<typeof t8>, { key: string }>(true);
const t10 = nelkap.workflow({ name: 't10', once: (p: { key: string }) => p.key }, async ({ key }: { key: string }, { log }) => { log.info(key); return key; }); same<InputOf<typeof t10>, { key: string }>(true);
const t4 = nelkap.workflow({ name: 't4', on: { event: 'order.paid' } }, async (id) => { same<typeof id, unknown>(true); });
const t5 = nelkap.workflow({ name: 't5', on: { event: 'order.paid' } }, async (id: string) => id); same<InputOf<typeof t5>, string>(true);
const t6 = nelkap.workflow({ name: 't6', on: [{ event: 'order.paid' }, { event: 'order.free' }] }, async (o: { id: string }) => o.id);
const many = nelkap.workflow({ name: 'many', timeout: '1h' }, async ({ n }: { n: number }) => n);
const annotated: Workflow<string, { orderId: string; at: string }> = w1;

const h = await nelkap.run(w1, 'o_1', { key: 'k', keyFor: '1d' }); const r = await h.result(); same<typeof r, { orderId: string; at: string }>(true);
await nelkap.run(w2); await nelkap.run(w2, undefined, { key: 'x' }); await nelkap.run(s1, { id: 'x', total: 1, at: '2026' });
const far_ = nelkap.ref<typeof w1>('w1', { app: 'billing' }); const away = await (await nelkap.run(far_, 'x')).result(); same<typeof away, { orderId: string; at: string }>(true);
const other = nelkap.ref<Workflow<{ a: number }, string>>('go workflow'); await nelkap.run(other, { a: 1 });
const unknownRef = nelkap.ref('x'); await nelkap.run(unknownRef, 5);

await nelkap.run(w1, 'o_1', { delay: '5m' }); await nelkap.run(w1, 'o_1', { at: new Date() }); await nelkap.run(w2, undefined, { at: '2027-01-01' });

// invoke
const out = await nelkap.step.invoke('invoice', w1, 'o'); same<typeof out, { orderId: string; at: string }>(true);
await nelkap.step.invoke('none', w2); await nelkap.step.invoke('none', w2, undefined, { timeout: '1h', was: 'nothing' });
const settled = await Promise.allSettled([1, 2].map((n) => nelkap.step.invoke(`c ${n}`, w4, n)));
const nums: number[] = settled.map((o) => (o.status === 'fulfilled' ? o.value : o.reason.code)); void nums;
const awayOut = await nelkap.step.invoke('away', far_, 'x'); same<typeof awayOut, { orderId: string; at: string }>(true);

// emit, waits
await nelkap.emit({ event: 'x', payload: 1, at: new Date() }); await nelkap.emit([{ event: 'b', payload: null, at: '2027-01-01' }]);
const ok = await nelkap.step.waitForEvent('approved', { event: 'order.approved', match: { 'payload.id': 'o', 'payload.n': null }, timeout: '7d' });
if (ok) { same<typeof ok.event, 'order.approved'>(true); same<typeof ok.payload, unknown>(true); }
const either = await nelkap.step.waitForEvent('decided', { event: ['yes', 'no'] }); if (either?.event === 'yes') { const p: unknown = either.payload; void p; }
const done = await Promise.race([nelkap.step.sleep('t', 500).then(() => 'timer' as const), nelkap.step.waitForEvent('e', { event: 'never', timeout: '1h' }).then(() => 'event' as const)]); same<typeof done, 'timer' | 'event'>(true);
await nelkap.step.sleepUntil('u', new Date()); await nelkap.step.sleepUntil('u', '2027-01-01', { was: 'old' });
const mine_: boolean = await nelkap.step.claim('one', 'k', { until: '30d' }); void mine_; await nelkap.step.claim('one', 'k', { until: 'failed' });
const callback = await nelkap.step.callback<{ by: string }>('approval', { timeout: '1d' }); same<typeof callback, Callback<{ by: string }>>(true);
const by: string | undefined = (await callback.wait())?.by; void by;
const fan = await nelkap.step.all([1, 2, 3].map((n) => nelkap.step.invoke(`c ${n}`, w4, n))); same<typeof fan, number[]>(true);
const [f1, f2] = await nelkap.step.all([nelkap.step.run('x', () => 'x' as string), nelkap.step.sleep('s', '1s')]); same<[typeof f1, typeof f2], [string, void]>(true);
const first = await nelkap.step.race([nelkap.step.run('x', () => 1 as number), nelkap.step.waitForEvent('e', { event: 'x', match: { 'payload.id': 'x' }, since: 'wait' })]); const fx: number | null | { event: string } = first; void fx;
const any_ = await nelkap.step.any([nelkap.step.run('x', () => 1 as number), nelkap.step.claim('y', 'k')]); same<typeof any_, number | boolean>(true);
await nelkap.emit({ event: 'order.paid', payload: 'o_1', id: 'x' }); const es = await nelkap.emit([{ event: 'a', payload: 1 }, { event: 'b', payload: null }]); const esn: string[] = es.map((e) => e.id); void esn;
const mine = new Nelkap({ app: 'shop' }); const mw = mine.workflow('m', async (x: number) => x);
export const handler: (r: Request) => Promise<Response> = nelkap.handler({ workflows: [w1, w2, w3, w4, s1, s2, s3, s4, t1, t3g, t4b, t7, t8, t10, t2, t3, t3b, t3c, t3d, t3e, t3f, t4, t5, t6, many, mw] }); void annotated;
const t11 = nelkap.workflow({ name: 't11', payload: z.object({ at: z.coerce.date(), u: z.unknown(), a: z.any(), r: z.record(z.string(), z.number()), o: z.string().optional(), n: z.string().nullable(), d: z.iso.datetime(), e: z.enum(['a', 'b']), l: z.literal(3), un: z.union([z.string(), z.number()]), tu: z.tuple([z.string(), z.number()]), j: z.json(), tr: z.string().transform((s) => s.length), lazy: z.array(z.string()) }) }, async (x) => x.at.getTime() + x.tr); void t11;
interface Node { name: string; kids: Node[] } const zNode: z.ZodType<Node> = z.lazy(() => z.object({ name: z.string(), kids: z.array(zNode) }));
const t12 = nelkap.workflow({ name: 't12', payload: zNode }, async (x) => x.kids.length); void t12;
const started = await nelkap.step.run('new', { was: 'old' }, ({ nelkap }) => nelkap.run(w1, 'x')); const rid: string = started.id; const rres = await nelkap.result(started, w1); same<typeof rres, { orderId: string; at: string }>(true); void rid;

// endings
const e1 = nelkap.workflow({ name: 'e1', payload: zOrder, onFailure: async ({ payload, error, run, steps }, { step, log }) => { same<typeof payload, { id: string; total: number; note: string; at: Date }>(true); same<typeof error, Error>(true); same<typeof run, Run>(true); same<typeof steps, readonly SavedStep[]>(true); log.error(error.message); await step.run('tell', () => payload.id); }, onCancel: ({ payload, steps }) => [payload.id, steps.length] }, async (order) => order.total); same<OutputOf<typeof e1>, number>(true);
const e2 = nelkap.workflow({ name: 'e2', onFailure: ({ payload }) => payload.key }, async ({ key }: { key: string }) => key); same<InputOf<typeof e2>, { key: string }>(true);
const e3 = nelkap.workflow({ name: 'e3', onFailure: (failure: Failure<{ key: string }>) => failure.payload.key }, async ({ key }: { key: string }) => key); same<InputOf<typeof e3>, { key: string }>(true);
const e4 = nelkap.workflow('e4', async (page: number, { step }) => { await step.undo('x', ({ idempotencyKey, signal, attempt }) => [idempotencyKey, signal, attempt]); await step.undo('y', async () => {}); if (page < 3) await step.restart(page + 1); return page; }); same<OutputOf<typeof e4>, number>(true);
const never = nelkap.workflow('never', () => nelkap.step.restart({ page: 1 })); same<OutputOf<typeof never>, never>(true);

// schedules
const report = nelkap.workflow('report', async ({ time, payload }: Tick<{ id: string }>) => [time, payload?.id]);
const s = await nelkap.schedules.put('report of c_1', { workflow: report, schedule: '@daily', timezone: 'Europe/Berlin', catchUp: 'last', payload: { id: 'c_1' }, paused: true }); same<typeof s, Schedule>(true);
await nelkap.schedules.put('t1', { workflow: t1, schedule: '@daily', payload: 5 }); await nelkap.schedules.put('ref', { workflow: nelkap.ref('x'), schedule: '@daily', payload: { any: 1 } });
await nelkap.schedules.put('t3g', { workflow: t3g, schedule: '@daily' }); await nelkap.schedules.put('w1', { workflow: w1, schedule: '@daily' });
const page = await nelkap.schedules.list({ limit: 5, cursor: 'x' }); same<typeof page, SchedulePage>(true); const nextAt: string | null | undefined = page.data[0]?.nextAt; void nextAt;
const gone: void = await nelkap.schedules.delete('x'); void gone; (await nelkap.schedules.pause('x')).paused; (await nelkap.schedules.resume('x')).paused; (await nelkap.schedules.get('x')).payload; void [e1, e2, e3, e4, never];
