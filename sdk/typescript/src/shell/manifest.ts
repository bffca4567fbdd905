import { bytesOf } from '../core/text.js';
import type { Definition } from './definition.js';
import { sha256 } from './key.js';
import { VERSION } from './version.js';

export interface Manifest {
  /** Changes with every deploy that changes a workflow's declaration (D1). */
  readonly hash: string;
  /** The answer to `describe`. */
  readonly text: string;
}

export async function describe(app: string, definitions: Iterable<Definition>): Promise<Manifest> {
  const workflows = [...definitions]
    .sort(byBytes)
    .map(({ name, triggers, cancelOn, retries, timeoutMs, leaseMs, onFailure, onCancel }) => ({
      name,
      triggers,
      cancelOn,
      retries,
      timeoutMs,
      leaseMs,
      onFailure: onFailure !== undefined || undefined,
      onCancel: onCancel !== undefined || undefined,
    }));
  // The hash is of this very text, so it is put into the answer as it is.
  const list = JSON.stringify(workflows);
  const hash = await sha256(list);
  const rest = JSON.stringify({ app, sdk: { language: 'typescript', version: VERSION }, protocol: 1, hash });
  return { hash, text: `${rest.slice(0, -1)},"workflows":${list}}` };
}

const encoder = new TextEncoder();

/** By the bytes of UTF-8, where UTF-16 differs. */
function byBytes(one: Definition, other: Definition): number {
  const [a, b] = [encoder.encode(one.name), encoder.encode(other.name)];
  for (let at = 0; at < Math.min(a.length, b.length); at++) {
    const difference = (a[at] as number) - (b[at] as number);
    if (difference !== 0) return difference;
  }
  return bytesOf(one.name) - bytesOf(other.name);
}
