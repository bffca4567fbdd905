// What is outside the app, for trying it out: each thing that is done there is a line in a file, which outlives the app.
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';

// An answer takes its time, so that there is time to kill the app when something is done and its result is not saved.
export const { values: settings } = parseArgs({
  options: {
    port: { type: 'string', default: '3000' },
    outside: { type: 'string', default: join(tmpdir(), 'careful-charge.txt') },
    seconds: { type: 'string', default: '5' },
  },
});

async function act(line: string): Promise<void> {
  appendFileSync(settings.outside, `${line}\n`);
  console.log(`${line}: done, and not saved yet`);
  await setTimeout(Number(settings.seconds) * 1000);
}

function find(line: string): string | undefined {
  const lines = existsSync(settings.outside) ? readFileSync(settings.outside, 'utf8').split('\n') : [];
  return lines.find((each) => `${each}\n`.startsWith(line));
}

/** It knows the keys that it has seen, as payment providers do: the same key, the same charge. */
export const bank = {
  async charge(amount: number, key: string): Promise<string> {
    if (find(`charge ${key} `) === undefined) await act(`charge ${key} ${amount}`);
    return `charge ${key}`;
  },
};

/** It sends as often as it is asked. It can be asked what it has sent. */
export const carrier = {
  find: (orderId: string): string | undefined => find(`parcel ${orderId}\n`),
  async send(orderId: string): Promise<string> {
    await act(`parcel ${orderId}`);
    return `parcel ${orderId}`;
  },
};

/** It prints as often as it is told, and can tell nothing. */
export const printer = {
  print: (text: string): Promise<void> => act(`print ${text}`),
};
