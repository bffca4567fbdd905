// An order waits for its own payment, or for its cancellation; one event ends all that wait.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { type Duration, nelkap } from 'nelkap';
import { handler } from 'nelkap/node';

declare module 'nelkap' {
  interface Events {
    'order.placed': { id: string };
    'payment.updated': { orderId: string; status: string };
    'order.cancelled': { orderId: string };
    'sale.stopped': { reason: string };
  }
}

// `--timeout 30s` is for trying it out.
const { values: settings } = parseArgs({
  options: { port: { type: 'string', default: '3000' }, timeout: { type: 'string', default: '7 days' } },
});

export const shipOrder = nelkap.workflow(
  {
    name: 'ship order',
    on: { event: 'order.placed' },
    // Every run of this workflow that has not ended is cancelled: the event stops the sale, not an order.
    cancelOn: { event: 'sale.stopped' },
  },
  async (order) => {
    const news = await nelkap.step.waitForEvent('payment', {
      event: ['payment.updated', 'order.cancelled'],
      // Which order: a value, so it belongs in `match`. What about it: a condition that is the same for all, so `if`.
      match: { 'payload.orderId': order.id },
      if: "event.event == 'order.cancelled' || payload.status == 'paid'",
      timeout: settings.timeout as Duration,
    });

    if (news?.event === 'payment.updated') {
      await nelkap.step.run('ship', () => console.log(`order ${order.id} is shipped`));
      return 'shipped';
    }
    const why = news === null ? 'nobody paid' : 'cancelled';
    await nelkap.step.run('release', () => console.log(`order ${order.id} is released: ${why}`));
    return why;
  },
);

createServer(handler({ workflows: [shipOrder] })).listen(Number(settings.port), '127.0.0.1');
console.log(`process ${process.pid} serves http://127.0.0.1:${settings.port}/api/nelkap`);
