// A trip is booked piece by piece. When a later piece fails, the earlier ones are given back, the last one first.
import { createServer } from 'node:http';
import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { nelkap } from 'nelkap';
import { handler } from 'nelkap/node';

interface Trip {
  id: string;
  customer: string;
  price: number;
}

// The seconds are there to kill the app in.
const { values: settings } = parseArgs({
  options: { port: { type: 'string', default: '3000' }, seconds: { type: 'string', default: '5' } },
});

export const bookTrip = nelkap.workflow(
  {
    name: 'book trip',
    onFailure: ({ payload: trip, error }: { payload: Trip; error: Error }) =>
      nelkap.step.run('apology', () => console.log(`email to ${trip.customer}: no trip, ${error.message}`)),
  },
  async (trip: Trip) => {
    // What undoes a booking is named before it: whenever the run ends from here on, the booking is given back.
    await nelkap.step.undo('flight back', () => giveBack('the flight', trip.id));
    await nelkap.step.run('flight', () => book('the flight', trip.id));

    await nelkap.step.undo('hotel back', () => giveBack('the hotel', trip.id));
    await nelkap.step.run('hotel', () => book('the hotel', trip.id));

    await nelkap.step.run('payment', { retries: 0 }, () => pay(trip));
    return 'booked';
  },
);

async function book(what: string, id: string): Promise<void> {
  console.log(`booking ${what} of ${id}`);
  await setTimeout(Number(settings.seconds) * 1000);
}

/** It may be asked for a booking that was never made, and twice for the same: it gives back what there is. */
async function giveBack(what: string, id: string): Promise<void> {
  console.log(`giving back ${what} of ${id}`);
  await setTimeout(Number(settings.seconds) * 1000);
}

async function pay({ price }: Trip): Promise<void> {
  if (price > 1000) throw new Error('the card is declined');
}

createServer(handler({ workflows: [bookTrip] })).listen(Number(settings.port), '127.0.0.1');
console.log(`process ${process.pid} serves http://127.0.0.1:${settings.port}/api/nelkap`);
