import { nelkap, type SavedHandle } from 'nelkap';
import Stripe from 'stripe';
import { same } from '../same.js';
declare const stripe: Stripe;
declare const order: { id: string; paymentIntentId: string };
declare function createInvoice(i: { id: string; orderId: string }): Promise<void>;
interface Ticket { id: string; orderId: string }
declare function findTicketByOrder(id: string): Promise<Ticket | undefined>;
declare function createTicket(id: string): Promise<Ticket>;
export const sendInvoice = nelkap.workflow('send invoice', async (orderId: string) => { return { sent: orderId }; });

const refund = await nelkap.step.run('refund', () =>
  stripe.refunds.create(
    { payment_intent: order.paymentIntentId },
    { idempotencyKey: `refund_${order.id}` },
  ),
);
export const amount: number = refund.amount;
const invoiceId = await nelkap.step.run(
  'invoice id',
  () => crypto.randomUUID(),
);
same<typeof invoiceId, `${string}-${string}-${string}-${string}-${string}`>(true);
await nelkap.step.run('invoice', () =>
  createInvoice({ id: invoiceId, orderId: order.id }),
);
const ticket = await nelkap.step.run(
  'ticket',
  async () => {
    const existingTicket = await findTicketByOrder(
      order.id,
    );

    return existingTicket ?? createTicket(order.id);
  },
);
same<typeof ticket, Ticket>(true);
const started = await nelkap.step.run('invoice run', () =>
  nelkap.run(sendInvoice, order.id),
);
same<typeof started, SavedHandle>(true);
const emitted = await nelkap.step.run('paid event', () =>
  nelkap.emit({
    event: 'order.paid',
    payload: order.id,
  }),
);
export const eid: string = emitted.id;
