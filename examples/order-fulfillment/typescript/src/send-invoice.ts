import { nelkap } from 'nelkap';
import { findInvoice } from './database.js';
import { sendEmail } from './mail.js';
import { marked } from './marked.js';
import { database, outside } from './shop.js';

/** Started by `fulfill order` for each order, and by hand for an invoice that got lost. */
export const sendInvoice = nelkap.workflow('send invoice', async (orderId: string, { run }) => {
  const step = marked(run.id, orderId);

  const invoice = await step.run('find invoice', () => findInvoice(database, orderId));

  await step.run('invoice email', () =>
    sendEmail(
      outside,
      {
        to: invoice.email,
        subject: `Invoice ${invoice.id}`,
        text: `Paid: ${invoice.amount / 100} ${invoice.currency}`,
        order: orderId,
        template: 'invoice',
      },
      `invoice_${invoice.id}`,
    ),
  );

  return invoice.id;
});
