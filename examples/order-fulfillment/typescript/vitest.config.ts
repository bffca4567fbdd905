import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    globalSetup: './test/stand-in.ts',
    // A database of its own for each test starts a Postgres each time, which takes seconds on a busy machine.
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
