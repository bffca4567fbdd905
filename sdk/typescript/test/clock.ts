import { type Clock, shared } from '../src/shell/process.js';

/** So many of the clock's milliseconds pass in one: pauses of seconds cost a test nothing, and their order stays. */
const SPEED = 20;

/** Puts a fast clock under the SDK; what comes back puts the real one in again. */
export function fastClock(): () => void {
  const process = shared();
  const real = process.clock;
  const startedAt = Date.now();
  const fast: Clock = {
    now: () => startedAt + (Date.now() - startedAt) * SPEED,
    after(ms, then) {
      const timer = setTimeout(then, ms / SPEED);
      return () => clearTimeout(timer);
    },
  };
  process.clock = fast;
  return () => {
    process.clock = real;
  };
}

/** For `vi.waitUntil`: how long a signal may take on a machine that is busy with other things. */
export const patience: { timeout: number } = { timeout: 30_000 };
