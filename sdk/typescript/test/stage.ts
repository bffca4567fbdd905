import { afterAll, afterEach, beforeAll, beforeEach, expect, vi } from 'vitest';
import { Nelkap } from '../src/index.js';
import { fastClock } from './clock.js';
import { FakeServer } from './server.js';

/** What each test of a file that imports this finds anew: a small server, and a client of an app that speaks to it. */
export let server: FakeServer;
export let nelkap: Nelkap;

export const apiKey: string = 'k'.repeat(32);
export const log = { debug: vi.fn(), info: vi.fn(), warn: vi.fn(), error: vi.fn() };

const unhandled = vi.fn();
let realClock: () => void;

beforeAll(() => {
  realClock = fastClock();
  process.on('unhandledRejection', unhandled);
});
afterAll(() => {
  realClock();
  process.off('unhandledRejection', unhandled);
});
beforeEach(async () => {
  vi.stubEnv('NELKAP_DEV', '1');
  vi.clearAllMocks();
  server = await new FakeServer().start();
  nelkap = new Nelkap({ app: 'shop', url: server.url, apiKey, logger: log });
});
afterEach(async () => {
  await server.stop();
  vi.unstubAllEnvs();
  expect(unhandled).not.toHaveBeenCalled();
  expect(log.error).not.toHaveBeenCalled();
});
