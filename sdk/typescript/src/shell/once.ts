import { NonRetriableError } from '../errors.js';
import { checkBytes, type Definition } from './definition.js';

/** Keys of runs and claims have up to 512 bytes of UTF-8. */
const KEY_BYTES_MAX = 512;

/** A key or an id that names one thing, or a TypeError that says what is wrong with it. */
export function checkKey(key: unknown, what: string, bytesMax: number = KEY_BYTES_MAX): string {
  if (typeof key !== 'string' || key === '')
    throw new TypeError(`${what} is no text: give one that is not empty`);
  return checkBytes(key, what, bytesMax, ', such as a hash');
}

export function optionalKey(key: unknown, what: string, bytesMax?: number): string | undefined {
  return key === undefined ? undefined : checkKey(key, what, bytesMax);
}

/** The key that a workflow's `once` makes of the payload (K4); undefined without it. */
export function onceKey({ name, once }: Definition, payload: unknown): string | undefined {
  if (once === undefined) return undefined;
  try {
    return checkKey(once(payload), `the key that 'once' of workflow '${name}' gave`);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new NonRetriableError(`'once' of workflow '${name}' gave no key for this payload: ${why}`, {
      cause,
    });
  }
}
