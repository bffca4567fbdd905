import type { Clock } from './process.js';

const FIRST_PAUSE_MS = 100;

/** Growing pauses, each up to a fifth shorter than its nominal length so that many processes spread out. */
export function pauseMs(fails: number, mostMs: number): number {
  const nominal = Math.min(mostMs, FIRST_PAUSE_MS * 2 ** Math.min(fails, 20));
  return nominal * (1 - Math.random() / 5);
}

/** Settles after `ms`, or at once when the signal is aborted. */
export function pause(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = (): void => {
      cancel();
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const cancel = clock.after(ms, done);
    signal?.addEventListener('abort', done);
  });
}
