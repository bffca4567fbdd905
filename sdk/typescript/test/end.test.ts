import { expect, test, vi } from 'vitest';
import { shared } from '../src/shell/process.js';
import { callOf, listen, play, headers } from './app.js';
import { handler as nodeHandler } from '../src/adapters/node.js';
import { patience } from './clock.js';
import { nelkap, server } from './stage.js';

test('stop lets running bodies finish, starts no other, and has the server call again', async () => {
  let finish: ((value: number) => void) | undefined;
  const second = vi.fn();
  const w = nelkap.workflow('w', async () => {
    await nelkap.step.run('a', () => new Promise<number>((resolve) => (finish = resolve)));
    await nelkap.step.run('b', second);
  });
  const handler = nelkap.handler({ workflows: [w] });
  const answer = play(handler, callOf('w'));
  await vi.waitUntil(() => finish !== undefined, patience);
  const stopped = nelkap.stop();
  finish?.(1);
  expect(await answer).toMatchObject({ type: 'yielded', seen: 1, excused: true });
  await stopped;
  await nelkap.stop();
  expect(second).not.toHaveBeenCalled();
  expect(await play(handler, callOf('w'))).toMatchObject({ status: 503, code: 'stopping' });
});

test('a call on its way in when the process stops is refused, and stop waits for no other', async () => {
  const fn = vi.fn();
  const handler = nelkap.handler({ workflows: [nelkap.workflow('w', fn)] });
  let digest = (): void => {};
  const held = new Promise<void>((resolve) => (digest = resolve));
  // The manifest's hash is made for the first request.
  const original = crypto.subtle.digest.bind(crypto.subtle);
  const spy = vi.spyOn(crypto.subtle, 'digest').mockImplementation(async (...args) => {
    await held;
    return original(...args);
  });
  const answer = play(handler, callOf('w'));
  await vi.waitUntil(() => spy.mock.calls.length > 0, patience);
  await nelkap.stop();
  digest();
  expect(await answer).toMatchObject({ status: 503, code: 'stopping' });
  spy.mockRestore();
  expect(fn).not.toHaveBeenCalled();
});

test('near the time limit a call yields after its step', async () => {
  const w = nelkap.workflow('w', async () => {
    await nelkap.step.run('a', () => new Promise((resolve) => shared().clock.after(9_000, () => resolve(1))));
    await nelkap.step.run('b', () => 2);
  });
  const answer = await play(nelkap.handler({ workflows: [w], maxDuration: '10s' }), callOf('w'));
  expect(answer).toMatchObject({ type: 'yielded', seen: 1 });
  expect(answer).not.toHaveProperty('stopping');
});

// Rule C8.
test('when the connection is gone the end comes through the API', async () => {
  let finish: ((value: number) => void) | undefined;
  const w = nelkap.workflow('w', () =>
    nelkap.step.run('a', () => new Promise<number>((resolve) => (finish = resolve))),
  );
  const app = await listen(nodeHandler({ workflows: [w], nelkap }));
  const message = callOf('w');
  const controller = new AbortController();
  const call = fetch(app.url, {
    method: 'POST',
    headers,
    body: JSON.stringify(message),
    signal: controller.signal,
  });
  await vi.waitUntil(() => finish !== undefined, patience);
  controller.abort();
  await expect(call).rejects.toThrow();
  await server.until(() => server.paths('/v1/heartbeats').length > 0);
  finish?.(7);
  await server.until(() => server.ends.length > 0);
  expect(server.ends[0]).toMatchObject({ call: message.call.id, end: { type: 'completed', output: 7 } });
  await app.close();
});

// Rule H6.
test('losers of a race are aborted, and given up after their allowance', async () => {
  const aborted = vi.fn();
  let begin: (() => void) | undefined;
  const begun = new Promise<void>((resolve) => (begin = resolve));
  const w = nelkap.workflow('w', () =>
    Promise.race([
      nelkap.step.run('quick', () => begun.then(() => 1)),
      nelkap.step.run('slow', ({ signal }) => {
        begin?.();
        signal.addEventListener('abort', aborted);
        return new Promise<number>(() => {});
      }),
    ]),
  );
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({
    type: 'completed',
    output: 1,
  });
  expect(aborted).toHaveBeenCalled();
});
