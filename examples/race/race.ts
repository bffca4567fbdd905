// The first of two providers wins, and stays the winner after every crash.
import { createServer } from 'node:http';
import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { type Duration, nelkap } from 'nelkap';
import { handler } from 'nelkap/node';

interface Quote {
  provider: string;
  price: number;
}

// The pause is there to kill the app in.
const { values: settings } = parseArgs({
  options: { port: { type: 'string', default: '3000' }, pause: { type: 'string', default: '20s' } },
});

export const bookRide = nelkap.workflow('book ride', async (to: string) => {
  // Which answer is saved first decides. When the code is played again, it comes first again.
  const quote = await nelkap.step.race([
    nelkap.step.run('ask north', ({ signal }) => ask('north', to, signal)),
    nelkap.step.run('ask south', ({ signal }) => ask('south', to, signal)),
  ]);

  await nelkap.step.sleep('time to think', settings.pause as Duration);

  await nelkap.step.run('booking', () => console.log(`booked with ${quote.provider} for ${quote.price}`));
  return quote;
});

/** Nobody knows who is the quicker one today. */
async function ask(provider: string, to: string, signal: AbortSignal): Promise<Quote> {
  console.log(`asking ${provider} for a ride to ${to}`);
  await setTimeout(200 + 800 * Math.random(), undefined, { signal });
  return { provider, price: Math.round(20 + 10 * Math.random()) };
}

createServer(handler({ workflows: [bookRide] })).listen(Number(settings.port), '127.0.0.1');
console.log(`process ${process.pid} serves http://127.0.0.1:${settings.port}/api/nelkap`);
