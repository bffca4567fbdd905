import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'vite';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { VERSION } from '../src/shell/version.js';

const root = fileURLToPath(new URL('..', import.meta.url));
let project: string;
let tarball: string;

function npm(cwd: string, ...args: string[]): string {
  return execFileSync('npm', args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

function node(...args: string[]): string {
  return execFileSync(process.execPath, args, { cwd: project, encoding: 'utf8' });
}

// The tarball is what users get: it is built and packed as for a release, and put into an empty project.
beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), 'nelkap-'));
  const [{ filename }] = JSON.parse(
    npm(root, 'pack', '--json', '--silent', '--ignore-scripts', '--pack-destination', project),
  );
  tarball = join(project, filename);
  writeFileSync(join(project, 'package.json'), '{ "private": true }');
  npm(project, 'install', '--offline', '--no-audit', '--no-fund', `./${filename}`);
}, 60_000);
afterAll(() => rmSync(project, { recursive: true, force: true }));

const use =
  "console.log(typeof nelkap.run, typeof handler, typeof express, typeof Nelkap, typeof testRun, nelkap.workflow('w', () => 1).name)";

test('the package can be imported', () => {
  writeFileSync(
    join(project, 'use.mjs'),
    `import { nelkap, Nelkap } from 'nelkap'; import { handler } from 'nelkap/node'; import { handler as express } from 'nelkap/express'; import { testRun } from 'nelkap/testing'; ${use}`,
  );
  expect(node('use.mjs')).toBe('function function function function function w\n');
});

test('the package can be required', () => {
  writeFileSync(
    join(project, 'use.cjs'),
    `const { nelkap, Nelkap } = require('nelkap'); const { handler } = require('nelkap/node'); const { handler: express } = require('nelkap/express'); const { testRun } = require('nelkap/testing'); ${use}`,
  );
  expect(node('use.cjs')).toBe('function function function function function w\n');
});

// As node:test or jest would run it: without vitest's own module loader, and with nothing that keeps the process open after its end.
test('the testing kit needs no test runner, and leaves nothing open', { timeout: 30_000 }, () => {
  writeFileSync(
    join(project, 'kit.cjs'),
    `const { nelkap } = require('nelkap'); const { crashEverywhere, hang, marks, testRun } = require('nelkap/testing');
    const { test } = require('node:test'); const assert = require('node:assert');
    const outside = marks();
    const w = nelkap.workflow('w', () => nelkap.step.run('charge', () => outside.leave('charge')));
    test('w', async () => {
      assert.equal((await testRun(w, undefined, { steps: { charge: hang } })).status, 'running');
      await assert.rejects(crashEverywhere(w, undefined, { marks: outside }), /the mark 'charge' was left twice/);
    });`,
  );
  expect(node('kit.cjs')).toMatch(/^# pass 1$/m);
});

test('importing it reads no environment and leaves nothing open', () => {
  writeFileSync(
    join(project, 'quiet.mjs'),
    `process.env = new Proxy({}, { get(_, name) { if (String(name).startsWith('NELKAP')) throw new Error(name); } });
    await import('nelkap'); await import('nelkap/node'); await import('nelkap/testing');
    console.log(JSON.stringify(process.getActiveResourcesInfo().filter((name) => !/FS|Pipe|TTY|CloseReq/.test(name))));`,
  );
  expect(node('quiet.mjs')).toBe('[]\n');
});

test.each([
  ['publint', ['--strict']],
  ['attw', ['--profile', 'esm-only']],
])('%s finds nothing to say', (tool, args) => {
  const bin = join(root, 'node_modules/.bin', tool);
  expect(() =>
    execFileSync(bin, [...(tool === 'attw' ? [tarball] : []), ...args], { cwd: root, stdio: 'pipe' }),
  ).not.toThrow();
});

test('it has no dependency, and says its version', () => {
  const manifest = JSON.parse(readFileSync(join(project, 'node_modules/nelkap/package.json'), 'utf8'));
  expect(manifest.dependencies ?? {}).toEqual({});
  expect(manifest.version).toBe(VERSION);
  expect(readFileSync(join(root, 'package-lock.json'), 'utf8')).not.toContain('"resolved"');
});

// The state machine alone, and all that `nelkap` brings: client, handler, saver, heartbeat and the whole language of steps,
// a good part of which is the sentences that say what is wrong with what was given. The testing kit holds all that and a server.
test.each([
  ['core/playing.js', 12 * 1024],
  ['index.js', 30 * 1024],
  ['testing/index.js', 46 * 1024],
])('%s fits into its budget', async (file, budget) => {
  const entry = join(project, 'node_modules/nelkap/dist', file);
  const lib = { entry, formats: ['iife' as const], name: 'nelkap' };
  const result: any = await build({
    root: project,
    logLevel: 'silent',
    build: { write: false, minify: true, lib },
  });
  expect(gzipSync(result[0].output[0].code, { level: 9 }).length).toBeLessThanOrEqual(budget);
});
