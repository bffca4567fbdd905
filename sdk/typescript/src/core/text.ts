/**
 * JSON text of a user's value or error, made once (F3, F4). It is put into messages as it is, so that its bytes never
 * change between the step's end and the store.
 */
export class Encoded {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
  /** A fresh copy of the value: nobody else holds it. */
  decode(): unknown {
    return JSON.parse(this.text);
  }
  /** What `JSON.stringify` sees, for whoever has no need of the exact bytes. */
  toJSON(): unknown {
    return this.decode();
  }
}

/** Marks texts across copies of this module: where a bundler loads the SDK twice, one copy sends what the other has encoded. */
const mark: symbol = Symbol.for('nelkap.encoded.v1');
Object.defineProperty(Encoded.prototype, mark, { value: true });

/** JSON text of a message: plain objects, arrays and leaves, with `Encoded` parts as they are. Undefined members are left out. */
export function stringify(part: unknown): string {
  if (Array.isArray(part)) return `[${part.map(stringify).join(',')}]`;
  if (typeof part !== 'object' || part === null) return JSON.stringify(part);
  if (mark in part) return (part as Encoded).text;
  const members: string[] = [];
  for (const [key, member] of Object.entries(part)) {
    if (member !== undefined) members.push(`${JSON.stringify(key)}:${stringify(member)}`);
  }
  return `{${members.join(',')}}`;
}

const encoder = new TextEncoder();

/** Bytes of the text in UTF-8. A lone surrogate counts as the replacement character that the encoder makes of it. */
export function bytesOf(text: string): number {
  return encoder.encode(text).length;
}

/** At most so many bytes of UTF-8, cut on whole characters. */
export function cutBytes(text: string, bytes: number): string {
  if (text.length * 3 <= bytes) return text;
  return text.slice(0, encoder.encodeInto(text, new Uint8Array(bytes)).read);
}

/** At most `length` UTF-16 units, cut on whole characters (G2). */
export function cut(text: string, length: number): string {
  if (text.length <= length) return text;
  const last = text.charCodeAt(length - 1);
  const splits = last >= 0xd800 && last <= 0xdbff;
  return text.slice(0, splits ? length - 1 : length);
}
