// A schedule that stands in the code, and one for each user that is made while the app runs.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { nelkap, type Tick } from 'nelkap';
import { handler } from 'nelkap/node';

interface Wish {
  userId: string;
  /** Such as `0 7 * * 1-5`: seven o'clock from Monday to Friday. */
  schedule: string;
  timezone: string;
}

declare module 'nelkap' {
  interface Events {
    'report.wanted': Wish;
  }
}

const { values: settings } = parseArgs({ options: { port: { type: 'string', default: '3000' } } });

// Two o'clock by the clocks of Berlin, in summer and in winter. A night in which no server ran is made up for.
export const nightlyReport = nelkap.workflow(
  { name: 'nightly report', on: { schedule: '0 2 * * *', timezone: 'Europe/Berlin', catchUp: 'last' } },
  async ({ time }) => {
    await nelkap.step.run('report', () => console.log(`the report of the night, due ${time}`));
  },
);

// What stands in a schedule's `payload` comes beside its tick.
export const userReport = nelkap.workflow(
  'user report',
  async ({ time, payload: user }: Tick & { payload: { userId: string } }) => {
    await nelkap.step.run('report', () => console.log(`the report of ${user.userId}, due ${time}`));
  },
);

export const planReport = nelkap.workflow(
  { name: 'plan report', on: { event: 'report.wanted' } },
  async ({ userId, schedule, timezone }) => {
    // The id says whose schedule it is: put again, by a second attempt or with a new wish, it is the same one.
    await nelkap.step.run('schedule', () =>
      nelkap.schedules.put(`report-${userId}`, {
        workflow: userReport,
        schedule,
        timezone,
        payload: { userId },
      }),
    );
  },
);

createServer(handler({ workflows: [nightlyReport, userReport, planReport] })).listen(
  Number(settings.port),
  '127.0.0.1',
);
console.log(`process ${process.pid} serves http://127.0.0.1:${settings.port}/api/nelkap`);
