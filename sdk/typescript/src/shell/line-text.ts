import type { Written } from '../core/log-lines.js';
import type { Level } from '../core/message.js';
import { bytesOf, cutBytes, Encoded } from '../core/text.js';
import { encodeError } from '../core/thrown.js';
import { encode } from '../core/value.js';

/** What a line's message and its fields have each, in UTF-8 (protocol, section 6). */
const PART_BYTES_MAX = 8 * 1024;

/** A line as it travels. Whatever its parts are, it never throws: a line of the log must not fail a run. */
export function written(at: string, level: Level, message: unknown, fields: unknown): Written {
  const line = { at, level, message: cutBytes(textOf(message), PART_BYTES_MAX) };
  if (fields === undefined || fields === null) return line;
  return { ...line, fields: fieldsOf(fields) };
}

function textOf(message: unknown): string {
  try {
    return String(message);
  } catch {
    return 'a message that has no text';
  }
}

function fieldsOf(fields: unknown): Encoded {
  try {
    const text = encode(plain(fields), 'fields')?.text ?? '';
    if (!text.startsWith('{')) return dropped('fields is no object');
    const bytes = text.length * 3 > PART_BYTES_MAX ? bytesOf(text) : 0;
    return bytes > PART_BYTES_MAX
      ? dropped(`${bytes} bytes, more than ${PART_BYTES_MAX}`)
      : new Encoded(text);
  } catch (error) {
    return dropped(error instanceof Error ? error.message : 'fields can not be read');
  }
}

/** Errors are what logs are for, and JSON would empty them. */
function plain(fields: unknown): unknown {
  if (typeof fields !== 'object' || fields === null) return fields;
  if (!Object.values(fields).some((value) => value instanceof Error)) return fields;
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [
      name,
      value instanceof Error ? encodeError(value).decode() : (value as unknown),
    ]),
  );
}

function dropped(why: string): Encoded {
  return new Encoded(JSON.stringify({ dropped: cutBytes(textOf(why), 1_024) }));
}
