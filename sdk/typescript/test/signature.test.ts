import { Webhook } from 'standardwebhooks';
import { expect, test, vi } from 'vitest';
import { Settings } from '../src/shell/settings.js';
import { keyBytes, verify } from '../src/shell/signature.js';

const key = `whsec_${Buffer.from('k'.repeat(32)).toString('base64')}`;
const other = `whsec_${Buffer.from('o'.repeat(32)).toString('base64')}`;
const text = 't'.repeat(32);
const now = 1_700_000_000_000;
const encoder = new TextEncoder();

function sign(
  body: string | Uint8Array,
  by: string[] = [key],
  at = now,
): { id: string; timestamp: string; signature: string; body: Uint8Array } {
  const bytes = typeof body === 'string' ? encoder.encode(body) : body;
  const seconds = new Date(Math.floor(at / 1_000) * 1_000);
  // The reference library signs texts: its own check of bytes that are no UTF-8 is not needed here.
  const signature = by
    .map((each) => new Webhook(each).sign('msg_1', seconds, Buffer.from(bytes).toString()))
    .join(' ');
  return { id: 'msg_1', timestamp: String(Math.floor(at / 1_000)), signature, body: bytes };
}

test.each(['{}', '', '{"a":"😀é&<>\u2028"}', '\ufeff{}', '{\r\n}', '{"n":1.0,"n":1e21}'])(
  'the body %j is checked as it is',
  async (body) => {
    const signed = sign(body);
    expect(await verify(signed, [key], now)).toBe('valid');
    const changed = { ...signed, body: encoder.encode(`${body} `) };
    expect(await verify(changed, [key], now)).toBe('bad_signature');
  },
);

test('a published vector is valid', async () => {
  const signed = {
    id: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
    timestamp: '1614265330',
    signature: 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    body: encoder.encode('{"test": 2432232314}'),
  };
  expect(await verify(signed, ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'], 1_614_265_330_000)).toBe('valid');
});

test.each<[string, (signature: string) => string]>([
  ['empty', () => ''],
  ['only a version', () => 'v1,'],
  ['one byte', () => `v1,${Buffer.from([1]).toString('base64')}`],
  [
    'cut',
    (signature) => `v1,${Buffer.from(signature.slice(3), 'base64').subarray(0, 31).toString('base64')}`,
  ],
  [
    'too long',
    (signature) =>
      `v1,${Buffer.concat([Buffer.from(signature.slice(3), 'base64'), Buffer.from([0])]).toString('base64')}`,
  ],
  ['of another version', (signature) => signature.replace('v1,', 'v2,')],
  ['no base64', () => 'v1,!!!'],
  ['hex', (signature) => `v1,${Buffer.from(signature.slice(3), 'base64').toString('hex')}`],
])('a signature that is %s is bad', async (_, change) => {
  const signed = sign('{}');
  expect(await verify({ ...signed, signature: change(signed.signature) }, [key], now)).toBe('bad_signature');
});

test.each([
  [-10, 'clock_differs'],
  [-4, 'valid'],
  [4, 'valid'],
  [10, 'clock_differs'],
])('a clock %i minutes off is %s', async (minutes, verdict) => {
  expect(await verify(sign('{}', [key], now + minutes * 60_000), [key], now)).toBe(verdict);
});

test('a timestamp that is no number of seconds is refused, even when signed', async () => {
  const signed = sign('{}');
  expect(await verify({ ...signed, timestamp: 'soon' }, [key], now)).toBe('bad_signature');
});

test('what is missing is unsigned', async () => {
  const signed = sign('{}');
  for (const part of ['id', 'timestamp', 'signature']) {
    expect(await verify({ ...signed, [part]: undefined }, [key], now)).toBe('unsigned');
  }
});

test('keys change without a gap, and a removed one counts no more', async () => {
  const old = sign('{}', [key]);
  const both = sign('{}', [key, other]);
  const next = sign('{}', [other]);
  for (const signed of [old, both, next]) expect(await verify(signed, [other, key], now)).toBe('valid');
  expect(await verify(both, [other], now)).toBe('valid');
  expect(await verify(old, [other], now)).toBe('bad_signature');
  expect(await verify(old, [], now)).toBe('bad_signature');
});

test('both keys come from the options, else from the environment', () => {
  vi.stubEnv('NELKAP_SIGNING_KEY', 'a');
  vi.stubEnv('NELKAP_SIGNING_KEY_PREVIOUS', 'b');
  expect(new Settings({}).signingKeys).toEqual(['a', 'b']);
  expect(new Settings({ signingKey: 'c' }).signingKeys).toEqual(['c', 'b']);
  expect(new Settings({ signingKey: 'c', signingKeyPrevious: 'd' }).signingKeys).toEqual(['c', 'd']);
  vi.unstubAllEnvs();
  expect(new Settings({}).signingKeys).toEqual([]);
});

test('a key is base64 after whsec_, else the bytes of its text', async () => {
  expect(keyBytes(key)).toEqual(new Uint8Array(Buffer.from('k'.repeat(32))));
  expect(keyBytes(text)).toEqual(new Uint8Array(Buffer.from(text)));
  expect(() => keyBytes('short')).toThrow(/5 bytes/);
  expect(() => keyBytes('whsec_???')).toThrow(/no base64/);
  expect(() => keyBytes('whsec_AAAA')).toThrow(/at least 24/);
});
