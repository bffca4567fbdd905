// Two ways to do something once for each customer: a workflow that runs once, and a run that asks whether it is the first.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { nelkap } from 'nelkap';
import { handler } from 'nelkap/node';

interface Customer {
  id: string;
  email: string;
}

declare module 'nelkap' {
  interface Events {
    'customer.registered': Customer;
  }
}

const { values: settings } = parseArgs({ options: { port: { type: 'string', default: '3000' } } });

// The key is known from the payload alone: the second run for a customer ends as skipped, before any of its code runs.
export const sendGift = nelkap.workflow(
  { name: 'send gift', on: { event: 'customer.registered' }, once: (customer) => customer.id },
  async (customer) => {
    await nelkap.step.run('gift', () => console.log(`a gift for ${customer.id}`));
  },
);

// The key is found out on the way, and the second run has something to do: the code decides.
export const startTrial = nelkap.workflow('start trial', async (customer: Customer) => {
  const mailbox = await nelkap.step.run('mailbox', () => customer.email.toLowerCase().replace(/\+.*@/, '@'));

  if (!(await nelkap.step.claim('one trial', mailbox))) {
    await nelkap.step.run('refusal', () => console.log(`${mailbox} has had its trial`));
    return 'refused';
  }
  await nelkap.step.run('trial', () => console.log(`a trial for ${mailbox}`));
  return 'started';
});

createServer(handler({ workflows: [sendGift, startTrial] })).listen(Number(settings.port), '127.0.0.1');
console.log(`process ${process.pid} serves http://127.0.0.1:${settings.port}/api/nelkap`);
