import { type Clock, shared } from '../src/shell/process.js';

/** So many of the clock's milliseconds pass in one: pauses of seconds cost a test nothing, and their order stays. */
const SPEED = 20;

/** Puts a fast clock under the SDK; what comes back puts the real one in again. */
export function fastClock(): () => void {
  const startedAt = Date.now();
  const fast: Clock = {
    now: () => startedAt + (Date.now() - startedAt) * SPEED,
    after(ms, then) {
      const timer = setTimeout(then, ms / SPEED);
      return () => clearTimeout(timer);
    },
  };
  return put(fast);
}

function put(clock: Clock): () => void {
  const process = shared();
  const before = process.clock;
  process.clock = clock;
  return () => {
    process.clock = before;
  };
}

export interface ManualClock extends Clock {
  /** Lets time pass to the next timer, once everything has come to rest; false where there is none. */
  pass(): Promise<boolean>;
  /** Sets it back, as an administrator does. Timers take no notice. */
  setBack(ms: number): void;
  /** Puts the clock before it in again. */
  remove(): void;
}

/** Puts a clock under the SDK that stands still between its timers. */
export function manualClock(): ManualClock {
  let now = Date.now();
  let back = 0;
  const timers = new Map<object, { at: number; fire: () => void }>();
  const clock: Clock = {
    now: () => now - back,
    after(ms, then) {
      const id = {};
      timers.set(id, { at: now + Math.max(0, ms), fire: then });
      return () => void timers.delete(id);
    },
  };
  const remove = put(clock);
  const pass = async (): Promise<boolean> => {
    await atRest();
    const [next] = [...timers].sort(([, a], [, b]) => a.at - b.at);
    if (next === undefined) return false;
    const [id, { at, fire }] = next;
    timers.delete(id);
    now = at;
    fire();
    return true;
  };
  return { ...clock, pass, setBack: (ms) => void (back += ms), remove };
}

/** Enough turns for whatever waits for no timer and no socket. */
async function atRest(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
}

/** For `vi.waitUntil`: how long a signal may take on a machine that is busy with other things. */
export const patience: { timeout: number } = { timeout: 30_000 };
