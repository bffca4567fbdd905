import { expect, test, vi } from 'vitest';
import { shared } from '../src/shell/process.js';
import { callOf, listen, play, headers } from './app.js';
import { handler as nodeHandler } from '../src/adapters/node.js';
import { patience } from './clock.js';
import { faults } from './server.js';
import { log, nelkap, server } from './stage.js';

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

// Rule C11. By the lease alone, the answer would come after hours.
test.each(['the time limit is near', 'the process stops'])(
  'a result that can not be saved travels in the answer when %s',
  async (when) => {
    server.fault('/v1/saves', ...Array.from({ length: 1_000 }, () => faults.closed));
    const w = nelkap.workflow('w', () => nelkap.step.run('a', () => 1));
    const stops = when === 'the process stops';
    const handler = nelkap.handler({ workflows: [w], maxDuration: stops ? '1h' : '20s' });
    const answer = play(handler, callOf('w', { call: { leaseMs: 86_400_000 } }));
    await server.until(() => server.paths('/v1/saves').length > 0);
    if (stops) await nelkap.stop();
    expect(await answer).toMatchObject({
      type: 'yielded',
      excused: true,
      unsaved: [{ name: 'a', output: 1 }],
    });
  },
);

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

test('steps that nobody awaited are named in the log when the code has ended', async () => {
  const w = nelkap.workflow('w', async () => {
    await nelkap.step.run('paid', () => 1);
    void nelkap.step.run('notify', () => 2);
    void nelkap.step.invoke('report', nelkap.ref('report'));
    void nelkap.step.sleep('nap', '1h');
    void nelkap.step.waitForEvent('approved', { event: 'e' });
    return 'done';
  });
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  const message = (name: string): string => `step '${name}' was asked for and not awaited: it did not run`;
  expect(log.warn.mock.calls.map(([said]) => said)).toEqual([message('notify'), message('report')]);
  expect(answer).toMatchObject({
    type: 'completed',
    output: 'done',
    logs: [
      { level: 'warn', message: message('notify'), step: { name: 'notify', number: 1 }, attempt: 1 },
      { level: 'warn', message: message('report'), step: { name: 'report', number: 1 }, attempt: 1 },
    ],
  });
});

test('so are one that failed beside the code and one that did not stop, and no loser of step.race', async () => {
  const w = nelkap.workflow('w', async () => {
    void nelkap.step.run('failed', () => Promise.reject(new Error('not now')));
    void nelkap.step.run('deaf', () => new Promise<number>(() => {}));
    const loser = nelkap.step.run('loser', () => new Promise<number>(() => {}));
    await nelkap.step.race([loser, nelkap.step.run('quick', () => 1)]);
    await nelkap.step.run('next', () => 2);
  });
  await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(log.warn.mock.calls.map(([said]) => said)).toEqual([
    "step 'failed' was asked for and not awaited: it failed, and is not tried again",
    "step 'deaf' went on when the code had ended: its result is not saved",
  ]);
});

test('code that fails has no more to say', async () => {
  const w = nelkap.workflow('w', async () => {
    void nelkap.step.run('notify', () => 2);
    throw new Error('no');
  });
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ type: 'failed' });
  expect(log.warn).not.toHaveBeenCalled();
});
