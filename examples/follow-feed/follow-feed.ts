// A loop that never has to end: each round begins again in the run's place, with a history of its own.
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import { type Duration, nelkap } from 'nelkap';
import { handler } from 'nelkap/node';

interface Position {
  page: number;
  read: number;
}

const { values: settings } = parseArgs({
  options: {
    port: { type: 'string', default: '3000' },
    pause: { type: 'string', default: '10s' },
    pages: { type: 'string', default: '1000000' },
  },
});

export const followFeed = nelkap.workflow('follow feed', async ({ page, read }: Position, { log }) => {
  const items = await nelkap.step.run('page', () => fetchPage(page));
  for (const item of items) {
    await nelkap.step.run(`item ${item}`, () => console.log(`item ${item} is handled`));
  }
  log.info('a page is done', { page, items: items.length });
  if (page === Number(settings.pages)) return { read: read + items.length };

  await nelkap.step.sleep('pause', settings.pause as Duration);
  return nelkap.step.restart({ page: page + 1, read: read + items.length });
});

/** Three items on each page. */
function fetchPage(page: number): string[] {
  console.log(`reading page ${page}`);
  return ['a', 'b', 'c'].map((letter) => `${page}${letter}`);
}

createServer(handler({ workflows: [followFeed] })).listen(Number(settings.port), '127.0.0.1');
console.log(`process ${process.pid} serves http://127.0.0.1:${settings.port}/api/nelkap`);
