import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/build.ts'],
    // Far above what a test takes: CI's machine may be busy with other things.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Two cores: the compilers of the type tests run beside the rest.
    maxWorkers: 2,
  },
});
