import type { RunMessage, StepName } from '../core/message.js';

const encoder = new TextEncoder();

/** Lower-case hex SHA-256 of the text's UTF-8. */
export async function sha256(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', encoder.encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** A step's idempotency key (S8). Both SDKs make the same one. */
export async function idempotencyKey(run: RunMessage, step: StepName): Promise<string> {
  const digest = await sha256(JSON.stringify([run.root, run.restart, step.name, step.number]));
  return `nelkap_${digest.slice(0, 32)}`;
}

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';

/** A TypeID: the prefix and a version 7 UUID in Crockford's base 32, so that ids sort by time (K6). */
export function typeId(prefix: string, now: number): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  let time = now;
  for (let at = 5; at >= 0; at--) {
    bytes[at] = time % 256;
    time = Math.floor(time / 256);
  }
  bytes[6] = ((bytes[6] as number) & 0x0f) | 0x70;
  bytes[8] = ((bytes[8] as number) & 0x3f) | 0x80;
  return `${prefix}_${base32(bytes)}`;
}

/** 16 bytes as 26 letters of 5 bits, after two bits of zero. */
export function base32(bytes: Uint8Array): string {
  let text = '';
  let bits = 0;
  let count = 2;
  for (const byte of bytes) {
    bits = (bits << 8) | byte;
    count += 8;
    for (; count >= 5; count -= 5) text += ALPHABET[(bits >> (count - 5)) & 31];
    bits &= (1 << count) - 1;
  }
  return text;
}
