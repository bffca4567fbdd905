import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { bytesOf, Encoded, stringify } from '../src/core/text.js';
import { encodeError, plainError, stepError } from '../src/core/thrown.js';
import { encode } from '../src/core/value.js';
import { instant, milliseconds } from '../src/duration.js';
import { StepCutOffError } from '../src/errors.js';

class Money {
  constructor(readonly amount: number) {}
  toJSON(): object {
    return { amount: this.amount, currency: 'EUR' };
  }
}
class Person {
  constructor(readonly first: string) {}
  get shout(): string {
    return this.first.toUpperCase();
  }
}
class Secret {
  readonly #n: number;
  constructor(n: number) {
    this.#n = n;
  }
  same(other: Secret): boolean {
    return this.#n === other.#n;
  }
}

test.each<[unknown, unknown]>([
  [null, null],
  [false, false],
  ['', ''],
  [-0, 0],
  [
    [1, undefined, 2],
    [1, null, 2],
  ],
  [{ a: undefined, b: 1 }, { b: 1 }],
  [new Date(0), '1970-01-01T00:00:00.000Z'],
  [new URL('http://x/'), 'http://x/'],
  [{}, {}],
  [Object.create(null), {}],
  [runInNewContext('({ a: {}, b: [] })'), { a: {}, b: [] }],
  [Object.assign(new Secret(1), { open: 1 }), { open: 1 }],
  [Object.defineProperty([1], 'count', { value: 1 }), [1]],
  [new Money(1), { amount: 1, currency: 'EUR' }],
  [{ ['__proto__']: 1, constructor: 2 }, JSON.parse('{"__proto__":1,"constructor":2}')],
  ['\ud800', '\ud800'],
  [{ '\udc00x': '\udfff\ud800' }, { '\udc00x': '\udfff\ud800' }],
  ['[^\\ud800-\\udfff] C:\\new "\\u0041"', '[^\\ud800-\\udfff] C:\\new "\\u0041"'],
  ['a\0b\u2028é😀', 'a\0b\u2028é😀'],
  [1e21, 1e21],
  [Buffer.from('a'), { type: 'Buffer', data: [97] }],
])('%j comes back as %j', (given, back) => {
  const encoded = encode(given, 'result');
  expect(encoded?.decode()).toEqual(back);
  expect(JSON.parse(stringify({ output: encoded }))).toEqual({ output: back });
});

test('undefined is nothing', () => {
  expect(encode(undefined, 'result')).toBeUndefined();
  expect(stringify({ output: undefined, at: 1 })).toBe('{"at":1}');
});

const cycle: Record<string, unknown> = { list: [] };
(cycle['list'] as unknown[]).push(cycle);

test.each<[string, unknown, RegExp]>([
  ['a bigint', { deep: [1n] }, /^result\.deep\[0\] is a bigint/],
  ['NaN', { 'a b': Number.NaN }, /^result\["a b"\] is NaN/],
  ['Infinity', [Number.POSITIVE_INFINITY], /^result\[0\] is Infinity/],
  ['a function', { f: () => 1 }, /^result\.f is a function/],
  ['a symbol', Symbol('x'), /^result is a symbol/],
  ['a Map', { m: new Map() }, /^result\.m is a Map/],
  ['a Set', new Set(), /^result is a Set/],
  ['bytes', { b: new Uint8Array(2) }, /^result\.b is binary data/],
  ['a cycle', cycle, /^result\.list\[0\] is a cycle/],
  ['an Error', new Error('x'), /^result is an Error/],
  ['a promise', { p: Promise.resolve(1) }, /^result\.p is a promise/],
  ['a Response', new Response('x'), /^result is an object of class Response whose getter/],
  [
    'a getter of a class',
    { who: new Person('x') },
    /^result\.who is an object of class Person whose getter 'shout'/,
  ],
  ['an invalid Date', new Date(Number.NaN), /^result is an invalid Date/],
  [
    'Headers',
    { h: new Headers({ a: '1' }) },
    /^result\.h is an object of class Headers whose items JSON drops/,
  ],
  ['a FormData', new FormData(), /^result is an object of class FormData whose items JSON drops/],
  [
    'a generator',
    (function* () {
      yield 1;
    })(),
    /^result is an object of class .* whose items JSON drops \(give \[\.\.\.it\]\)/,
  ],
  ['an iterator', [1].values(), /^result is an object of class .* whose items JSON drops/],
  [
    'an async generator',
    (async function* () {
      yield 1;
    })(),
    /^result is an object of class .* whose items JSON drops \(give an array of them\)/,
  ],
  [
    'an iterable with members',
    { left: 1, *[Symbol.iterator]() {} },
    /^result is an object of class Object whose items JSON drops/,
  ],
  ['a WeakRef', new WeakRef({}), /^result is an object of class WeakRef that has no members of its own/],
  ['a WeakMap', new WeakMap(), /^result is an object of class WeakMap that has no members of its own/],
  ['a boxed bigint', Object(1n), /^result is an object of class BigInt that has no members of its own/],
  [
    'an object with nothing but private fields',
    { s: new Secret(1) },
    /^result\.s is an object of class Secret that has no members of its own \(give plain data, or a toJSON\)/,
  ],
  [
    'a match of a RegExp',
    /a/.exec('a'),
    /^result is an array that has the member 'groups' beside its items \(give \[\.\.\.it\], or an object\)/,
  ],
  ['an AbortSignal', new AbortController().signal, /^result is an object of class AbortSignal whose getter/],
  [
    'a getter that throws',
    {
      get x() {
        throw new Error('no');
      },
    },
    /^result\.x can't be read/,
  ],
])('%s is refused with its path', (_, value, message) => {
  expect(() => encode(value, 'result')).toThrow(message);
});

test('nesting has a limit, and the same object twice is no cycle', () => {
  let deep: unknown = 1;
  for (let level = 0; level < 150; level++) deep = [deep];
  expect(encode(deep, 'result')).toBeDefined();
  for (let level = 0; level < 100_000; level++) deep = [deep];
  expect(() => encode(deep, 'result')).toThrow(/levels deep/);
  const one = { a: 1 };
  expect(encode([one, one], 'result')?.text).toBe('[{"a":1},{"a":1}]');
});

test('errors keep name, message, stack, causes and plain fields', () => {
  const error = Object.assign(new TypeError('x', { cause: new Error('why', { cause: 'text' }) }), {
    code: 'E',
    n: 1n,
  });
  const wire = encodeError(error).decode() as any;
  expect(wire).toMatchObject({ name: 'TypeError', message: 'x', fields: { code: 'E' } });
  expect(wire.cause).toMatchObject({ message: 'why', cause: { name: 'Error', message: 'text' } });
  const back = stepError(wire, 'charge', 3) as unknown as Error & { code: string };
  expect(back).toMatchObject({ name: 'TypeError', message: 'x', step: 'charge', attempts: 3, code: 'E' });
  expect(back.stack).toBe(error.stack);
  expect((back.cause as Error).message).toBe('why');
});

test('a chain of causes that meets itself is cut', () => {
  const error = new Error('a');
  error.cause = new Error('b', { cause: error });
  expect(JSON.stringify(encodeError(error).decode())).not.toContain('"cause":{"name":"Error","message":"a"');
  let deep = new Error('0');
  for (let at = 1; at < 100; at++) deep = new Error(`${at}`, { cause: deep });
  let depth = 0;
  for (let each = encodeError(deep).decode() as any; each !== undefined; each = each.cause) depth++;
  expect(depth).toBe(8);
});

test('an error of several keeps the first of them as its cause', async () => {
  const failed = await Promise.any([
    Promise.reject(new TypeError('a')),
    Promise.reject(new Error('b')),
  ]).catch((error: unknown) => error);
  expect(encodeError(failed).decode()).toMatchObject({
    name: 'AggregateError',
    cause: { name: 'TypeError', message: 'a' },
  });
  expect(encodeError(new AggregateError([])).decode()).not.toHaveProperty('cause');
  const own = new AggregateError([new Error('first')], 'x', { cause: new Error('why') });
  expect(encodeError(own).decode()).toMatchObject({ cause: { message: 'why' } });
});

const hostile = new Proxy(
  {},
  {
    get() {
      throw new Error('no');
    },
    ownKeys() {
      throw new Error('no');
    },
    getPrototypeOf() {
      throw new Error('no');
    },
  },
);

test.each([
  ['x', 'x'],
  [null, 'null'],
  [undefined, 'undefined'],
  [5n, '5'],
  [{ a: 1 }, '{"a":1}'],
  [Symbol('s'), 'Symbol(s)'],
])('thrown %s is an error with its text', (thrown, message) => {
  expect(encodeError(thrown).decode()).toEqual({ name: 'Error', message });
});

test('what can not be read is an error all the same', () => {
  expect(encodeError(hostile).decode()).toEqual({
    name: 'Error',
    message: 'a value that has no text was thrown',
  });
  const broken = new Error('x');
  Object.defineProperty(broken, 'message', {
    get: () => {
      throw new Error('no');
    },
  });
  Object.defineProperty(broken, 'code', {
    enumerable: true,
    get: () => {
      throw new Error('no');
    },
  });
  expect(encodeError(broken).decode()).toMatchObject({ name: 'Error', message: '' });
});

test.each([60_000, 70_000, 8 * 1024, 4 * 1024, 700])('a long error is cut on whole characters (%i)', (at) => {
  const error = new Error(`${'a'.repeat(at - 1)}${'😀'.repeat(40_000)}`);
  const encoded = encodeError(error);
  expect(bytesOf(encoded.text)).toBeLessThanOrEqual(64 * 1024);
  const { message } = encoded.decode() as { message: string };
  expect(message.replace(/😀/gu, '')).toMatch(/^a+$/);
});

test('a saved error can not set what an error is made of', () => {
  const wire = JSON.parse(
    '{"name":"X","message":"m","fields":{"__proto__":{"bad":1},"step":"other","toString":1,"ok":2}}',
  );
  const error = stepError(wire, 'mine', 1) as unknown as Error & { ok: number; bad?: number; step: string };
  expect([error.ok, error.bad, error.step, String(error)]).toEqual([2, undefined, 'mine', 'X: m']);
  expect(stepError({ name: 'StepCutOffError', message: 'm' }, 's', 1)).toBeInstanceOf(StepCutOffError);
  expect(plainError(undefined)).toMatchObject({ name: 'Error', message: '' });
  expect(stringify([new Encoded('"\\ud800"')])).toBe('["\\ud800"]');
});

test.each<[any, number]>([
  [5, 5],
  ['5ms', 5],
  ['5s', 5_000],
  ['1.5h', 5_400_000],
  ['3 days', 259_200_000],
  ['1 minute', 60_000],
  ['2 hours', 7_200_000],
  ['2w', 1_209_600_000],
  [{ days: 1, hours: 2, milliseconds: 3 }, 93_600_003],
])('%j are milliseconds', (given, ms) => {
  expect(milliseconds(given, 'it')).toBe(ms);
});

test.each<[any]>([
  ['5'],
  ['5 minuts'],
  ['-5s'],
  [Number.NaN],
  [Number.POSITIVE_INFINITY],
  [{ dais: 1 }],
  [null],
  [''],
  [{ toString: 1 }],
  [{}],
  [{ days: undefined }],
  [new Date(5)],
  [
    new (class Duration {
      get days() {
        return 3;
      }
    })(),
  ], // as Temporal's
])('%j is no duration', (given) => {
  expect(() => milliseconds(given, 'it')).toThrow(/^it is no duration/);
});

test('a negative duration says so', () => {
  expect(() => milliseconds(-1, 'it')).toThrow('it is negative: give 0 or more');
});

test.each<[any, string]>([
  ['2027-01-31', '2027-01-31T00:00:00.000Z'],
  ['2027-01-31T09:00+01:00', '2027-01-31T08:00:00.000Z'],
  [new Date(5), '1970-01-01T00:00:00.005Z'],
])('%j is an instant', (given, text) => {
  expect(instant(given, 'it')).toBe(text);
});

test.each<[any]>([
  ['tomorrow'],
  ['2027-01-31T09:00'], // nine o'clock where?
  ['2027-13-01'],
  ['2027-02-30'],
  ['2027-02-29T09:00Z'],
  [''],
  [1_800_000_000_000],
  [null],
  [new Date(Number.NaN)],
])('%j is no instant', (given) => {
  expect(() => instant(given, 'it')).toThrow(/^it is no time: give a Date, or a text such as/);
});
