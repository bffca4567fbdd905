import { expect, test } from 'vitest';
import { idempotencyKey } from '../src/shell/key.js';
import { callOf, play } from './app.js';
import { nelkap, server } from './stage.js';

// S8: a workflow that moves from one language to the other keeps its keys. The Go SDK's test has the same list.
test.each([
  ['run_01h455vb4pex5vsknk084sn02q', 1, 'refund', 2, 'nelkap_cd5f2c0d27946eb7082955b5f15d59e1'],
  ['run_1', 0, 'refund', 1, 'nelkap_b088e75e0dc16a257984c7d7fd600786'],
  ['run_1', 0, 'a<b>&c', 1, 'nelkap_c02896e46f4b84ee064500bad2951efc'],
  ['run_1', 0, '"quoted" \\ slash / ', 1, 'nelkap_af26198ac45645fa8990fd0b63926e62'],
  ['run_1', 0, '\b\f\n\r\t', 1, 'nelkap_cb6d6a00fc4aed321b91a6777765ed6a'],
  ['run_1', 0, '\u0000\u0001\u001f\u007f', 1, 'nelkap_f9e191c0f153dcb018338c60900fae33'],
  ['run_1', 0, '\u2028\u2029', 1, 'nelkap_a75e9d9e6b9b9fc6019fb2267c8b3e49'],
  ['run_1', 0, 'é 😀 日本', 1, 'nelkap_aa9f6267e57cbfc1dc12e30d236589ca'],
  ['run_1', 0, '__proto__', 1, 'nelkap_0d6c2d57ece9fb584562aab007c652b0'],
])('the key of root %s, restart %i, step %j number %i is that of the Go SDK', async (...row) => {
  const [root, restart, name, number, key] = row;
  expect(await idempotencyKey({ root, restart } as never, { name, number })).toBe(key);
});

// S8: an attempt after a throw or a cut has the same key, and another step or another run has another.
test('the key of a step stays the same from attempt to attempt', async () => {
  const keys: string[] = [];
  const w = nelkap.workflow('w', async () => {
    for (const name of ['a', 'a', 'b']) {
      await nelkap.step.run(name, ({ idempotencyKey: key }) => void keys.push(key));
    }
  });
  const handler = nelkap.handler({ workflows: [w] });
  const first = callOf('w');
  await play(handler, first);
  await play(handler, callOf('w', { run: { id: first.run.id, root: first.run.root } }));
  await play(handler, callOf('w'));
  expect(keys.slice(3, 6)).toEqual(keys.slice(0, 3));
  expect(new Set(keys).size).toBe(6);
});

// C9: nobody vouches for an unsigned call, so that it may send saves, and what they hold, to this machine alone.
test.each(['http://example.com', 'http://10.0.0.1:6355', 'https://localhost.example.com'])(
  'an unsigned call may not send its saves to %s',
  async (url) => {
    const body = nelkap.workflow('w', () => nelkap.step.run('a', () => 1));
    const answer = await play(nelkap.handler({ workflows: [body] }), callOf('w', { url }));
    expect(answer).toMatchObject({ status: 400, code: 'bad_request' });
    expect(server.seen).toEqual([]);
  },
);
