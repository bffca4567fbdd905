// A run for each item, all at the same time; their results in one sum, their failures by name.
import { createServer } from 'node:http';
import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { nelkap, NonRetriableError, StepError } from 'nelkap';
import { handler } from 'nelkap/node';

interface Parcel {
  name: string;
  grams: number;
}

// The heavier a parcel, the longer its weighing takes, so that there is time to kill the app meanwhile.
const { values: settings } = parseArgs({
  options: {
    port: { type: 'string', default: '3000' },
    'seconds-per-kilo': { type: 'string', default: '2' },
  },
});

export const weighParcel = nelkap.workflow('weigh parcel', (parcel: Parcel) =>
  nelkap.step.run('scale', async () => {
    console.log(`${parcel.name} is on the scale`);
    if (parcel.grams === 0) throw new NonRetriableError('the scale shows nothing');
    await setTimeout(parcel.grams * Number(settings['seconds-per-kilo']));
    return parcel.grams;
  }),
);

export const weighParcels = nelkap.workflow('weigh parcels', async (parcels: Parcel[]) => {
  const weighed = await nelkap.step.all(
    parcels.map(async (parcel) => {
      try {
        return { grams: await nelkap.step.invoke(`weigh ${parcel.name}`, weighParcel, parcel), failed: [] };
      } catch (error) {
        // Not caught, the first failure would be the parent's, and end the children that are left.
        if (!(error instanceof StepError)) throw error;
        return { grams: 0, failed: [`${error.step}: ${error.message}`] };
      }
    }),
  );

  return {
    grams: weighed.reduce((sum, one) => sum + one.grams, 0),
    failed: weighed.flatMap((one) => one.failed),
  };
});

createServer(handler({ workflows: [weighParcels, weighParcel] })).listen(Number(settings.port), '127.0.0.1');
console.log(`process ${process.pid} serves http://127.0.0.1:${settings.port}/api/nelkap`);
