import { milliseconds } from '../duration.js';
import { isRetryAfter } from '../errors.js';
import { shared } from './process.js';

/** What a RetryAfterError asks for; undefined for any other error, or where it asks for nonsense. */
export function retryAfterMs(error: unknown): number | undefined {
  if (!isRetryAfter(error)) return undefined;
  const { retryAfter } = error;
  try {
    if (!(retryAfter instanceof Date)) return milliseconds(retryAfter, 'retryAfter');
    const ms = retryAfter.getTime() - shared().clock.now();
    return Number.isNaN(ms) ? undefined : Math.max(0, ms);
  } catch {
    return undefined;
  }
}
