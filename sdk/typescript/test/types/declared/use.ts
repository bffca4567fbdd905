import { nelkap, type InputOf, type WebhookRequest } from 'nelkap';
import { z } from 'zod';
import { same } from '../same.js';

await nelkap.emit({ event: 'order.paid', payload: { id: 'x', total: 1 } });
await nelkap.emit([{ event: 'order.paid', payload: { id: 'x', total: 1 } }, { event: 'user.gone', payload: null }]);
const w = nelkap.workflow({ name: 'w', on: { event: 'order.paid', if: 'payload.total > 0' } }, async (order) => { same<typeof order, { id: string; total: number }>(true); return order.id; });
same<InputOf<typeof w>, { id: string; total: number }>(true);
nelkap.workflow({ name: 'w2', on: [{ event: 'order.approved' }, { event: 'order.rejected' }] }, async (o) => o.id);
nelkap.workflow({ name: 'w4', on: { event: 'stripe.checkout.session.completed' } }, async (o) => o.type);
nelkap.workflow({ name: 'w5', on: [{ event: 'order.paid' }, { webhook: 'shop' }] }, async (o) => { same<typeof o, { id: string; total: number } | WebhookRequest>(true); return 'webhook' in o ? o.body : o.id; });
nelkap.workflow({ name: 'w6', on: { event: 'webhook.shop' } }, async (request) => { same<typeof request, WebhookRequest>(true); });
nelkap.workflow({ name: 'w7', on: { event: 'webhook.declared' } }, async (request) => { same<typeof request, { json?: unknown }>(true); });
const e = await nelkap.step.waitForEvent('decided', { event: ['order.approved', 'order.rejected'], timeout: '7d' });
if (e?.event === 'order.approved') { const by: string = e.payload.by; void by; } else if (e) { const why: string = e.payload.reason; void why; }
const hook = await nelkap.step.waitForEvent('hook', { event: 'webhook.shop' }); if (hook) same<typeof hook.payload, WebhookRequest>(true);

nelkap.emit({ event: 'order.piad', payload: { id: 'x', total: 1 } }); // refused: order.piad
nelkap.emit({ event: 'order.paid', payload: { id: 'x' } }); // refused: total
nelkap.emit({ event: 'order.paid', payload: 'o_1' }); // refused: string
nelkap.emit([{ event: 'order.paid', payload: 'o_1' }]); // refused:
nelkap.workflow({ name: 'x', on: { event: 'order.piad' } }, async () => 1); // refused: order.piad
nelkap.workflow({ name: 'y', on: { event: 'order.paid' } }, async (id: string) => id); // refused: the trigger gives
nelkap.workflow({ name: 'u', on: [{ event: 'order.paid' }, { webhook: 'shop' }] }, async (o) => o.total); // refused: total
nelkap.emit({ event: 'webhook.shop', payload: 1 }); // refused: number
nelkap.workflow({ name: 'v', on: { event: 'order.paid' }, payload: z.object({ other: z.string() }) }, async (o) => o.other); // fine: the schema decides
nelkap.step.waitForEvent('z', { event: 'order.piad' }); // refused: order.piad
nelkap.workflow({ name: 'z', cancelOn: { event: 'order.piad' } }, async () => 1); // refused: order.piad
