// Three ways to make a step safe that may be cut off after it has acted and before its result is saved.
import { createServer } from 'node:http';
import { nelkap, StepInterruptedError } from 'nelkap';
import { handler } from 'nelkap/node';
import { bank, carrier, printer, settings } from './outside.js';

interface Order {
  id: string;
  amount: number;
}

export const fulfil = nelkap.workflow('fulfil', async (order: Order) => {
  // 1. The service takes a key. The step's own is the same in every attempt: the second request is the first one again.
  const charge = await nelkap.step.run('charge', ({ idempotencyKey }) =>
    bank.charge(order.amount, idempotencyKey),
  );

  // 2. It takes no key, but can be asked. `check` runs before every attempt but the first; what it finds is the result.
  const parcel = await nelkap.step.run('parcel', { check: () => carrier.find(order.id) }, () =>
    carrier.send(order.id),
  );

  // 3. Neither. Then rather never than twice: a step that was cut off fails, and someone has to look.
  try {
    await nelkap.step.run('card', { atMostOnce: true }, () => printer.print(`a card for order ${order.id}`));
  } catch (error) {
    if (!(error instanceof StepInterruptedError)) throw error;
    await nelkap.step.run('look', () =>
      console.log(`please look whether there is a card for order ${order.id}`),
    );
  }

  return { charge, parcel };
});

createServer(handler({ workflows: [fulfil] })).listen(Number(settings.port), '127.0.0.1');
console.log(
  `process ${process.pid} serves http://127.0.0.1:${settings.port}/api/nelkap; see ${settings.outside}`,
);
