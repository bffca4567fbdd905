import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test, vi } from 'vitest';
import { Nelkap } from '../src/index.js';
import { shared } from '../src/shell/process.js';
import { callOf, play } from './app.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** A server in the place of fetch: every second call is superseded at its first save, so its promise stays pending. */
function fakeFetch(): typeof fetch {
  let count = 0;
  return (async (_: string, init: RequestInit) => {
    const { saves } = JSON.parse(String(init.body));
    const outcomes = saves.map((save: any) =>
      count++ % 2 === 0
        ? { call: save.call, status: 'superseded' }
        : {
            call: save.call,
            status: 'accepted',
            items: save.items.map((__: unknown, at: number) => ({ status: 'saved', entry: at + 1 })),
            entries: [],
            ending: null,
          },
    );
    return new Response(JSON.stringify({ saves: outcomes }), {
      headers: { 'content-type': 'application/json' },
    });
  }) as typeof fetch;
}

async function heapAfter(calls: number, handler: (request: Request) => Promise<Response>): Promise<number> {
  for (let at = 0; at < calls; at += 100) {
    await Promise.all(Array.from({ length: 100 }, () => play(handler, callOf('w'))));
  }
  await new Promise(setImmediate);
  collect();
  return process.memoryUsage().heapUsed;
}

test('ended calls leave nothing behind, though half of their promises stay pending', {
  timeout: 60_000,
}, async () => {
  vi.stubEnv('NELKAP_DEV', '1');
  const nelkap = new Nelkap({ url: 'http://127.0.0.1:9', fetch: fakeFetch() });
  const ballast = 'x'.repeat(1_000);
  const w = nelkap.workflow('w', async () => {
    const kept = Array.from({ length: 100 }, () => ballast + Math.random());
    await nelkap.step.run('a', () => 1);
    return kept.length;
  });
  const handler = nelkap.handler({ workflows: [w] });
  const before = await heapAfter(2_000, handler);
  const after = await heapAfter(6_000, handler);
  // Each call holds 100 kB while it lives: a leak of one in a hundred would show.
  expect(after - before).toBeLessThan(5_000_000);
  expect(shared().destinations.size).toBe(0);
  vi.unstubAllEnvs();
});
