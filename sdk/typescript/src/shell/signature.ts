/** Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature` over `id.timestamp.body`. */

/** A timestamp more than this off, in either direction, is refused. */
export const CLOCK_MS_MAX: number = 5 * 60_000;
/** Signatures of one header that are looked at. */
const SIGNATURES_MAX = 16;
const DIGEST_BYTES = 32;
const TEXT_KEY_BYTES_MIN = 32;
const ENCODED_KEY_BYTES_MIN = 24;

export interface Signed {
  id: string | undefined;
  timestamp: string | undefined;
  signature: string | undefined;
  body: Uint8Array;
}

export type Verdict = 'valid' | 'unsigned' | 'bad_signature' | 'clock_differs';

const encoder = new TextEncoder();

/** Checks the signature over the raw bytes, then the clock. Any of the keys may have signed. */
export async function verify(signed: Signed, keys: readonly string[], nowMs: number): Promise<Verdict> {
  const { id, timestamp, signature, body } = signed;
  if (id === undefined || timestamp === undefined || signature === undefined) return 'unsigned';
  const content = join(encoder.encode(`${id}.${timestamp}.`), body);
  const given = signatures(signature);
  let isValid = false;
  for (const key of keys) {
    const digest = await hmac(keyBytes(key), content);
    for (const each of given) if (equal(each, digest)) isValid = true;
  }
  if (!isValid) return 'bad_signature';
  if (!/^\d{1,12}$/.test(timestamp)) return 'clock_differs';
  return Math.abs(Number(timestamp) * 1_000 - nowMs) > CLOCK_MS_MAX ? 'clock_differs' : 'valid';
}

/** A key that starts with `whsec_` is base64 after it; any other key is the bytes of its text. */
export function keyBytes(key: string): Uint8Array<ArrayBuffer> {
  if (!key.startsWith('whsec_')) {
    const bytes = encoder.encode(key);
    if (bytes.length >= TEXT_KEY_BYTES_MIN) return bytes;
    throw new RangeError(
      `the signing key has ${bytes.length} bytes: use at least ${TEXT_KEY_BYTES_MIN}, or whsec_ and base64`,
    );
  }
  const bytes = base64(key.slice('whsec_'.length));
  if (bytes !== undefined && bytes.length >= ENCODED_KEY_BYTES_MIN) return bytes;
  throw new RangeError(
    `the signing key is no base64 of at least ${ENCODED_KEY_BYTES_MIN} bytes after whsec_`,
  );
}

async function hmac(key: Uint8Array<ArrayBuffer>, content: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const imported = await crypto.subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, [
    'sign',
  ]);
  return new Uint8Array(await crypto.subtle.sign('HMAC', imported, content));
}

function join(one: Uint8Array, other: Uint8Array): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(one.length + other.length);
  joined.set(one);
  joined.set(other, one.length);
  return joined;
}

function signatures(header: string): Uint8Array[] {
  const found: Uint8Array[] = [];
  for (const part of header.split(' ').slice(0, SIGNATURES_MAX)) {
    const [, encoded] = /^v1,(.+)$/.exec(part) ?? [];
    const bytes = encoded === undefined ? undefined : base64(encoded);
    if (bytes !== undefined) found.push(bytes);
  }
  return found;
}

function base64(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  } catch {
    return undefined;
  }
}

/** Whole digests, in constant time: how much of a signature fits must not show, and a short one never fits. */
function equal(given: Uint8Array, digest: Uint8Array): boolean {
  let difference = given.length ^ DIGEST_BYTES;
  for (let at = 0; at < DIGEST_BYTES; at++) difference |= (given[at] ?? 0) ^ (digest[at] as number);
  return difference === 0;
}
