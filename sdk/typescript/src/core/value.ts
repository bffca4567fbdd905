import { ResultError } from '../errors.js';
import { Encoded } from './text.js';

/** Levels of nesting that a value may have: the protocol's messages have at most 200, with some left for the envelope. */
const DEPTH_MAX = 190;

/**
 * The value as JSON, or undefined for undefined.
 *
 * What JSON can't hold is a ResultError that names its path, never a silent change (S3), with two stated exceptions:
 * `-0` becomes 0, and an array's `undefined` becomes null. An object's members that are undefined are left out.
 */
export function encode(value: unknown, what: string): Encoded | undefined {
  if (value === undefined) return undefined;
  const copied = new Copy().of(value, what, '');
  return copied === undefined ? undefined : new Encoded(JSON.stringify(copied));
}

/** One pass that checks and copies, so that getters and `toJSON` run once and later changes to the value don't count. */
class Copy {
  private readonly open = new Set<object>();

  of(value: unknown, path: string, key: string): unknown {
    switch (typeof value) {
      case 'string':
      case 'boolean':
      case 'undefined':
        return value;
      case 'number':
        if (!Number.isFinite(value)) throw refuse(path, `${value} (give null, or leave it out)`);
        return Object.is(value, -0) ? 0 : value;
      case 'bigint':
        throw refuse(path, 'a bigint (give a string)');
      case 'symbol':
        throw refuse(path, 'a symbol');
      case 'function':
        throw refuse(path, 'a function (give plain data)');
      default:
        return value === null ? null : this.object(value as object, path, key);
    }
  }

  private object(value: object, path: string, key: string): unknown {
    if (this.open.has(value)) throw refuse(path, 'a cycle: the value holds itself');
    if (this.open.size >= DEPTH_MAX) throw refuse(path, `nested more than ${DEPTH_MAX} levels deep`);
    this.open.add(value);
    try {
      const toJSON = read(value, 'toJSON', path);
      if (typeof toJSON === 'function') return this.of(fromToJSON(value, toJSON, path, key), path, key);
      return Array.isArray(value) ? this.items(value, path) : this.members(value, path);
    } finally {
      this.open.delete(value);
    }
  }

  private items(list: readonly unknown[], path: string): unknown[] {
    // Keys that are indexes come first.
    const other = Object.keys(list).at(-1) ?? '0';
    if (!/^\d+$/.test(other))
      throw refuse(
        path,
        `an array that has the member '${other}' beside its items (give [...it], or an object)`,
      );
    return Array.from(list, (item, at) => this.of(item, `${path}[${at}]`, `${at}`));
  }

  private members(value: object, path: string): unknown {
    if (value instanceof String || value instanceof Number || value instanceof Boolean) {
      return this.of(value.valueOf(), path, '');
    }
    const problem = emptied(value);
    if (problem !== undefined) throw refuse(path, problem);
    // Without a prototype, so that a member named `__proto__` is data like any other.
    const copied: Record<string, unknown> = Object.create(null);
    for (const name of Object.keys(value)) {
      const at = `${path}${/^[A-Za-z_$][\w$]*$/.test(name) ? `.${name}` : `[${JSON.stringify(name)}]`}`;
      copied[name] = this.of(read(value, name, at), at, name);
    }
    return copied;
  }
}

function refuse(path: string, problem: string): ResultError {
  return new ResultError(`${path} is ${problem}: JSON can't hold it`);
}

function read(value: object, name: string, path: string): unknown {
  try {
    return (value as Record<string, unknown>)[name];
  } catch (error) {
    throw new ResultError(`${path} can't be read: its getter threw`, { cause: error });
  }
}

function fromToJSON(value: object, toJSON: Function, path: string, key: string): unknown {
  if (value instanceof Date && Number.isNaN(value.getTime())) throw refuse(path, 'an invalid Date');
  try {
    return toJSON.call(value, key);
  } catch (error) {
    throw new ResultError(`${path} can't be read: its toJSON threw`, { cause: error });
  }
}

/** Says what JSON would drop without a word; undefined for objects whose data is in their own members. */
function emptied(value: object): string | undefined {
  if (value instanceof Map) return 'a Map (give Object.fromEntries(map))';
  if (value instanceof Set) return 'a Set (give [...set])';
  if (value instanceof Error) return 'an Error (throw it, or give its message)';
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return 'binary data (give base64 text)';
  if (value instanceof RegExp) return 'a RegExp (give its source)';
  if (typeof (value as { then?: unknown }).then === 'function') return 'a promise (await it)';
  if (Symbol.iterator in value) return `${anObject(value)} whose items JSON drops (give [...it])`;
  if (Symbol.asyncIterator in value)
    return `${anObject(value)} whose items JSON drops (give an array of them)`;
  return hiddenGetter(value) ?? withoutMembers(value);
}

/** A class's object with nothing that JSON reads: its data is in private fields, or in the runtime. */
function withoutMembers(value: object): string | undefined {
  const prototype: unknown = Object.getPrototypeOf(value);
  const isPlain = prototype === null || Object.getPrototypeOf(prototype) === null; // of whichever realm
  if (isPlain || Object.keys(value).length > 0) return undefined;
  return `${anObject(value)} that has no members of its own (give plain data, or a toJSON)`;
}

/** A class's getter: JSON reads own members only, so what it shows would be lost. */
function hiddenGetter(value: object): string | undefined {
  let prototype: unknown = Object.getPrototypeOf(value);
  while (typeof prototype === 'object' && prototype !== null) {
    const parent: unknown = Object.getPrototypeOf(prototype);
    if (parent === null) return undefined; // Object.prototype, of whichever realm
    for (const [name, property] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
      if (property.get !== undefined && !Object.hasOwn(value, name)) {
        return `${anObject(value)} whose getter '${name}' JSON drops (give plain data, or a toJSON)`;
      }
    }
    prototype = parent;
  }
  return undefined;
}

function anObject(value: object): string {
  const name: unknown = (value as { constructor?: { name?: unknown } }).constructor?.name;
  return `an object of class ${typeof name === 'string' && name !== '' ? name : 'without a name'}`;
}
