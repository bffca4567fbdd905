import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { TestProject } from 'vitest/node';

declare module 'vitest' {
  interface ProvidedContext {
    /** Where the stand-in listens. */
    outside: string;
  }
}

/** Builds the stand-in and runs it while the tests run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = mkdtempSync(join(tmpdir(), 'order-fulfillment-'));
  const binary = join(folder, 'stripe-stand-in');
  const source = join(import.meta.dirname, '../../stripe-stand-in');
  const built = spawnSync('go', ['build', '-o', binary, './cmd/stripe-stand-in'], {
    cwd: source,
    encoding: 'utf8',
  });
  if (built.status !== 0) {
    throw new Error(
      `The stand-in could not be built (is Go installed?): ${built.error?.message ?? built.stderr}`,
    );
  }
  const child = spawn(binary, ['--addr', '127.0.0.1:0', '--marks', join(folder, 'marks')], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  project.provide('outside', await address(child));
  return async () => {
    child.kill();
    await once(child, 'exit');
    rmSync(folder, { recursive: true });
  };
}

/** The address that the stand-in's first line names. */
async function address(child: ChildProcess): Promise<string> {
  for await (const line of createInterface({ input: child.stdout! })) {
    const url = /http:\S+/.exec(line)?.[0];
    if (url !== undefined) return url;
  }
  throw new Error('The stand-in ended before it listened.');
}
