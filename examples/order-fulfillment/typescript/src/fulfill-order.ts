import { nelkap } from 'nelkap';
import { claimOrder, createInvoice, saveContact } from './database.js';
import { sendEmail } from './mail.js';
import { marked } from './marked.js';
import { arrivingOrder, shop } from './order.js';
import { charge } from './payment.js';
import { sendInvoice } from './send-invoice.js';
import { database, outside, stripe } from './shop.js';
import { findOrCreateTicket } from './ticket.js';

export const fulfillOrder = nelkap.workflow(
  {
    name: 'fulfill order',
    // The webhook is /hooks/shop-ts.
    on: [{ event: 'order.placed' }, { webhook: 'shop-ts' }],
    payload: arrivingOrder,
  },
  async (order, { run }) => {
    if (order.shop !== shop) return { outcome: 'for another shop' };
    const step = marked(run.id, order.id);

    // An event that was emitted twice, or a webhook called twice, starts a second run. One of them owns the order.
    const owner = await step.run('claim', () => claimOrder(database, order.id, run.id));
    if (owner !== run.id) return { outcome: 'claimed by another run', owner };

    // An idempotency key, made from the order: see payment.ts.
    const paymentIntent = await step.run('charge', () => charge(stripe, order));

    // An upsert, by a key that says what the row is: see database.ts.
    await step.run('contact', () => saveContact(database, order));

    // An id of our own making is drawn in a step, so that it is the same when the next one runs again.
    const invoiceId = await step.run('invoice id', () => crypto.randomUUID());
    await step.run('invoice', () =>
      createInvoice(database, {
        id: invoiceId,
        orderId: order.id,
        email: order.email,
        amount: order.amount,
        currency: order.currency,
        paymentIntent,
      }),
    );

    // The ticket desk takes no key: find what a first attempt made, or make it.
    const ticket = await step.run('ticket', () => findOrCreateTicket(outside, order.id));

    // Code outside steps runs again on every call, so runs and events are started in steps.
    const invoiceRun = await step.run('invoice run', () => nelkap.run(sendInvoice, order.id));
    await step.run('paid event', () => nelkap.emit({ event: 'order.paid', payload: order.id }));

    await step.run('confirmation', () =>
      sendEmail(
        outside,
        {
          to: order.email,
          subject: `Your order ${order.id}`,
          text: `Thank you, ${order.name}. Your ticket is ${ticket.id}.`,
          order: order.id,
          template: 'confirmation',
        },
        `confirmation_${order.id}`,
      ),
    );

    return { outcome: 'fulfilled', invoiceId, ticket: ticket.id, invoiceRun: invoiceRun.id };
  },
);
