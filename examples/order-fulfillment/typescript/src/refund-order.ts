import { nelkap } from 'nelkap';
import { findInvoice } from './database.js';
import { marked } from './marked.js';
import { returnedOrder, shop } from './order.js';
import { refund } from './payment.js';
import { database, stripe } from './shop.js';

/** Pays an order back. However many runs there are for one order, Stripe sees one key. */
export const refundOrder = nelkap.workflow(
  { name: 'refund order', on: { event: 'order.returned' }, payload: returnedOrder },
  async (order, { run }) => {
    if (order.shop !== shop) return { outcome: 'for another shop' };
    const step = marked(run.id, order.id);

    const invoice = await step.run('find invoice', () => findInvoice(database, order.id));
    const refundId = await step.run('refund', () => refund(stripe, order.id, invoice.paymentIntent));

    return { outcome: 'refunded', refundId };
  },
);
