/**
 * A key with the properties of a step's idempotency key: the same for the same parts, another for others. The SDK's own is a digest,
 * which takes as long as it likes; with this one what happens in a run comes in the same order every time.
 */
export function keyOf(...parts: readonly unknown[]): string {
  const text = JSON.stringify(parts);
  return `nelkap_${[1, 2, 3, 4].map((seed) => hash(text, seed)).join('')}`;
}

/** 32 bits of a text (MurmurHash's mixing), as 8 hex digits. */
function hash(text: string, seed: number): string {
  let mixed = Math.imul(seed, 0x9e3779b1);
  for (let at = 0; at < text.length; at++) {
    mixed = Math.imul(mixed ^ text.charCodeAt(at), 0x85ebca6b);
    mixed ^= mixed >>> 13;
  }
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0xc2b2ae35);
  return ((mixed ^ (mixed >>> 16)) >>> 0).toString(16).padStart(8, '0');
}
