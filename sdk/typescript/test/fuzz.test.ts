import fc from 'fast-check';
import { Webhook } from 'standardwebhooks';
import { expect, test } from 'vitest';
import { bytesOf, cut, stringify } from '../src/core/text.js';
import { encodeError, plainError, stepError } from '../src/core/thrown.js';
import { encode } from '../src/core/value.js';
import { instant, milliseconds } from '../src/duration.js';
import { isLoopbackHost, parseRequest } from '../src/shell/request.js';
import { Refusal } from '../src/shell/refusal.js';
import { keyBytes, verify } from '../src/shell/signature.js';

/** What comes from outside, drawn at random: whatever it is, there is an answer that says what is wrong. */

const encoder = new TextEncoder();
const texts = fc.string({ unit: 'binary' });
/** Values as a body may hold them, with the odd member names and lone surrogates that JSON allows. */
const values = fc.jsonValue({ maxDepth: 5 });
/** Something where a message has a text, a number, a list or an object. */
const anything = fc.oneof(values, texts, fc.double(), fc.constant(undefined));

test('a request is read or refused, whatever its bytes are', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.uint8Array(),
        fc.json().map((text) => encoder.encode(text)),
      ),
      (body) => {
        try {
          expect(['describe', 'call', 'verify']).toContain(parseRequest(body).type);
        } catch (error) {
          expect(error).toBeInstanceOf(Refusal);
          expect((error as Refusal).status).toBe(400);
        }
      },
    ),
    { numRuns: 2_000 },
  );
});

test('a call that is read has all that the SDK relies on', () => {
  const call = fc.record({
    type: fc.constantFrom('call', 'call', 'describe', 'verify'),
    run: fc.oneof(
      fc.record({ id: anything, workflow: anything, root: anything, event: anything, attempt: anything }),
      anything,
    ),
    call: fc.oneof(
      fc.record({ id: anything, token: anything, leaseMs: anything, heartbeatMs: anything, cuts: anything }),
      anything,
    ),
    steps: fc.oneof(
      fc.record({ entries: anything, next: anything, retrying: anything, waiting: anything }),
      anything,
    ),
    limitMs: fc.oneof(fc.constant(5_000), anything),
    ending: fc.oneof(fc.constant(undefined), anything),
    url: anything,
  });
  const whole = fc.record({
    type: fc.constantFrom('call', 'verify'),
    limitMs: fc.constant(5_000),
    run: fc.record({
      id: fc.constant('run_1'),
      workflow: fc.constant('w'),
      root: fc.constant('run_1'),
      event: anything,
      attempt: anything,
    }),
    call: fc.record({
      id: fc.constant('call_1'),
      token: fc.constant('t'),
      leaseMs: fc.constant(1),
      heartbeatMs: fc.constant(1),
      cuts: anything,
    }),
    steps: fc.record({
      entries: fc.array(anything),
      next: anything,
      retrying: fc.array(anything),
      waiting: anything,
    }),
  });
  fc.assert(
    fc.property(fc.oneof(call, whole), (message) => {
      let parsed: ReturnType<typeof parseRequest>;
      try {
        parsed = parseRequest(encoder.encode(JSON.stringify(message)));
      } catch (error) {
        expect(error).toBeInstanceOf(Refusal);
        return;
      }
      if (parsed.type === 'describe') return;
      const request = parsed.type === 'verify' ? parsed.call : parsed;
      for (const text of [
        request.run.id,
        request.run.workflow,
        request.run.root,
        request.call.id,
        request.call.token,
      ]) {
        expect(text).toMatch(/^[^]+$/);
      }
      expect(Array.isArray(request.steps.entries)).toBe(true);
      expect(Array.isArray(request.steps.waiting)).toBe(true);
      expect(request.call.heartbeatMs).toBeGreaterThan(0);
    }),
    { numRuns: 2_000 },
  );
});

test('a value that is saved comes back the same, and is written the same again', () => {
  fc.assert(
    fc.property(values, (value) => {
      const encoded = encode(value, 'result');
      expect(encoded?.decode()).toEqual(JSON.parse(JSON.stringify(value)));
      expect(encode(encoded?.decode(), 'result')?.text).toBe(encoded?.text);
      expect(JSON.parse(stringify({ output: encoded, is: [encoded] }))).toEqual({
        output: encoded?.decode(),
        is: [encoded?.decode()],
      });
    }),
    { numRuns: 2_000 },
  );
});

test('anything at all is saved or refused with its path', () => {
  fc.assert(
    fc.property(
      fc.anything({
        withBigInt: true,
        withDate: true,
        withMap: true,
        withSet: true,
        withTypedArray: true,
        withNullPrototype: true,
        withSparseArray: true,
      }),
      (value) => {
        try {
          const encoded = encode(value, 'result');
          if (encoded !== undefined) JSON.parse(encoded.text);
        } catch (error) {
          expect((error as Error).name).toBe('ResultError');
          expect((error as Error).message).toMatch(/^result/);
        }
      },
    ),
    { numRuns: 2_000 },
  );
});

test('whatever is thrown can be saved within its size, and what is saved can be thrown', () => {
  const thrown = fc.oneof(
    fc.anything(),
    fc
      .record({ name: anything, message: anything, stack: anything, cause: anything, own: anything })
      .map((fields) => Object.assign(new Error('m'), fields)),
    texts.map((message) => new Error(message.repeat(5_000))),
  );
  fc.assert(
    fc.property(thrown, (error) => {
      const encoded = encodeError(error);
      expect(bytesOf(encoded.text)).toBeLessThanOrEqual(64 * 1024);
      expect(plainError(encoded.decode())).toBeInstanceOf(Error);
    }),
    { numRuns: 200 },
  );
  fc.assert(
    fc.property(anything, (saved) => {
      expect(plainError(saved)).toBeInstanceOf(Error);
      const error = stepError(saved, 'charge', 2);
      expect([error.step, error.attempts]).toEqual(['charge', 2]);
    }),
    { numRuns: 2_000 },
  );
});

test('a signature counts only for the bytes that were signed', async () => {
  const key = `whsec_${Buffer.from('k'.repeat(32)).toString('base64')}`;
  const at = 1_700_000_000;
  const signed = new Webhook(key).sign('msg_1', new Date(at * 1_000), '{}');
  await fc.assert(
    fc.asyncProperty(
      fc.oneof(fc.constant('msg_1'), texts),
      fc.oneof(fc.constant(String(at)), texts),
      fc.oneof(
        fc.constant(signed),
        texts.map((text) => `${text} ${signed}`),
        texts,
      ),
      fc.oneof(fc.constant(encoder.encode('{}')), fc.uint8Array()),
      async (id, timestamp, signature, body) => {
        const verdict = await verify({ id, timestamp, signature, body }, [key], at * 1_000);
        const isSame = id === 'msg_1' && timestamp === String(at) && new TextDecoder().decode(body) === '{}';
        if (!isSame || !signature.includes(signed)) expect(verdict).not.toBe('valid');
        if (isSame && signature === signed) expect(verdict).toBe('valid');
      },
    ),
    { numRuns: 1_000 },
  );
});

test('a signing key that is refused is not shown', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        texts,
        texts.map((text) => `whsec_${text}`),
      ),
      (key) => {
        try {
          expect(keyBytes(key).length).toBeGreaterThanOrEqual(24);
        } catch (error) {
          expect(error).toBeInstanceOf(RangeError);
          if (key.length > 8) expect((error as Error).message).not.toContain(key);
        }
      },
    ),
    { numRuns: 1_000 },
  );
});

test('a duration is whole milliseconds or refused, an instant is one of RFC 3339 or refused, a text is cut on whole characters, and only this machine is loopback', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        texts,
        fc.double(),
        fc.tuple(fc.double(), fc.constantFrom('ms', 's', 'm', ' days', 'x')).map((parts) => parts.join('')),
      ),
      (duration) => {
        try {
          expect(Number.isSafeInteger(milliseconds(duration as '1s', 'timeout'))).toBe(true);
        } catch (error) {
          expect(error).toBeInstanceOf(RangeError);
        }
      },
    ),
    { numRuns: 2_000 },
  );
  fc.assert(
    fc.property(fc.oneof(texts, fc.date(), fc.date().map(String), anything), (time) => {
      try {
        expect(instant(time as Date, 'at')).toMatch(/^[+-]?\d{4,6}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
      }
    }),
    { numRuns: 2_000 },
  );
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme' }), fc.nat(40), (text, length) => {
      const short = cut(text, length);
      expect(text.startsWith(short) && short.length <= length).toBe(true);
      expect(() => encodeURIComponent(short)).not.toThrow(); // it does for half a character
    }),
  );
  fc.assert(
    fc.property(fc.domain(), fc.ipV4(), (domain, ip) => {
      expect(isLoopbackHost(domain)).toBe(false);
      expect(isLoopbackHost(`${ip}:80`)).toBe(ip.startsWith('127.'));
    }),
  );
});
