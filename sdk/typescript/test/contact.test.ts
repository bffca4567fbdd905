import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { Nelkap } from '../src/index.js';
import { shared } from '../src/shell/process.js';
import { callOf, play } from './app.js';
import { fastClock, patience } from './clock.js';
import { FakeServer, faults } from './server.js';

let server: FakeServer;
let nelkap: Nelkap;
let realClock: () => void;

beforeAll(() => {
  realClock = fastClock();
});
afterAll(() => realClock());
beforeEach(async () => {
  vi.stubEnv('NELKAP_DEV', '1');
  server = await new FakeServer().start();
  nelkap = new Nelkap({ url: server.url });
});
afterEach(async () => {
  await server.stop();
  vi.unstubAllEnvs();
});

/** A workflow with one step whose body ends when the test says so. */
function held(): {
  handler: (request: Request) => Promise<Response>;
  finish: ((value: number) => void)[];
  started: (count: number) => Promise<unknown>;
} {
  const finish: ((value: number) => void)[] = [];
  const w = nelkap.workflow('w', () =>
    nelkap.step.run('a', () => new Promise<number>((resolve) => finish.push(resolve))),
  );
  const started = (count: number) => vi.waitUntil(() => finish.length >= count, patience);
  return { handler: nelkap.handler({ workflows: [w] }), finish, started };
}

function named(): string[][] {
  return server.paths('/v1/heartbeats').map((seen) => seen.body.calls.map((each: any) => each.call));
}

test('a short call is never named, and opens no poll', async () => {
  const { clock } = shared();
  // However slow the machine, no time passes.
  shared().clock = { now: () => 0, after: () => () => {} };
  const w = nelkap.workflow('w', () => nelkap.step.run('a', () => 1));
  await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  shared().clock = clock;
  expect(named()).toEqual([]);
  expect(shared().destinations.size).toBe(0);
});

test('a call that lasts is named, with others that come later', async () => {
  const { handler, finish, started } = held();
  const first = callOf('w');
  const second = callOf('w');
  const answers = [play(handler, first)];
  await server.until(() => named().length > 0);
  answers.push(play(handler, second));
  await server.until(() => named().some((calls) => calls.length === 2));
  expect(named()[0]).toEqual([first.call.id]);
  expect(named().at(-1)).toEqual([first.call.id, second.call.id]);
  await started(2);
  for (const each of finish) each(1);
  expect((await Promise.all(answers)).map((answer) => answer.type)).toEqual(['completed', 'completed']);
});

test('polls that fail are repeated', async () => {
  const { handler, finish, started } = held();
  server.fault('/v1/heartbeats', faults.closed, faults.status(503), faults.html, faults.halfAnswer);
  const answer = play(handler, callOf('w'));
  await server.until(() => named().length >= 5);
  await started(1);
  finish[0]?.(1);
  expect(await answer).toMatchObject({ type: 'completed' });
});

test('the question whether a call is still played is answered by the next poll', async () => {
  const { handler, finish, started } = held();
  const message = callOf('w');
  const answer = play(handler, message);
  await server.until(() => named().length > 0);
  const before = named().length;
  server.tell({ call: message.call.id, status: 'named?' });
  await server.until(() => named().length > before);
  expect(named().at(-1)).toEqual([message.call.id]);
  await started(1);
  finish[0]?.(1);
  expect(await answer).toMatchObject({ type: 'completed' });
});

test('news reaches its call alone', async () => {
  const { handler, finish, started } = held();
  const messages = [callOf('w'), callOf('w')];
  const answers = messages.map((message) => play(handler, message));
  await server.until(() => named().some((calls) => calls.length === 2));
  await started(2);
  server.tell({ call: messages[0].call.id, status: 'ended' });
  expect(await answers[0]).toMatchObject({ type: 'over' });
  for (const each of finish) each(2);
  expect(await answers[1]).toMatchObject({ type: 'completed', output: 2 });
});

test('news of a call that is played twice reaches the playing that it names, which is named no more', async () => {
  const { handler, finish, started } = held();
  const message = callOf('w');
  const answers = [play(handler, message)];
  await started(1);
  answers.push(play(handler, message));
  await started(2);
  const nonces = (): string[][] =>
    server.paths('/v1/heartbeats').map((seen) => seen.body.calls.map((each: any) => each.nonce));
  await server.until(() => nonces().some((each) => each.length === 2));
  const [first, second] = nonces().find((each) => each.length === 2) as [string, string];
  expect(second).not.toBe(first);
  server.tell({ call: message.call.id, nonce: first, status: 'superseded' });
  expect(await answers[0]).toMatchObject({ type: 'over', nonce: first });
  const before = nonces().length;
  server.tell({ call: message.call.id, nonce: second, status: 'named?' });
  await server.until(() => nonces().length > before);
  // The first one's body still runs.
  expect(nonces().slice(before)).toEqual(
    nonces()
      .slice(before)
      .map(() => [second]),
  );
  for (const each of finish) each(2);
  expect(await answers[1]).toMatchObject({ type: 'completed', output: 2, nonce: second });
});

test.each(['superseded', 'ended'])('a call that was told %s is named no more', async (status) => {
  const { handler, finish, started } = held();
  const messages = [callOf('w'), callOf('w')];
  const [told, other] = messages.map((message) => message.call.id);
  const answers = messages.map((message) => play(handler, message));
  await started(2);
  await server.until(() => named().some((calls) => calls.length === 2));
  server.tell({ call: told, status });
  expect(await answers[0]).toMatchObject({ type: 'over' });
  const before = named().length;
  server.tell({ call: other, status: 'named?' });
  await server.until(() => named().length > before);
  expect(named().slice(before).flat()).not.toContain(told);
  for (const each of finish) each(2);
  expect(await answers[1]).toMatchObject({ type: 'completed' });
});

test('two copies of the SDK in one process share its id, saver and poll', async () => {
  vi.resetModules();
  const copy = await import('../src/index.js');
  expect(copy.Nelkap).not.toBe(Nelkap);
  const other = new copy.Nelkap({ url: server.url });
  const { handler, finish, started } = held();
  const w = other.workflow('w', async () => {
    // The context is found by either copy, and an error of one is known to the other.
    return nelkap.step
      .run('a', () => Promise.reject(new copy.NonRetriableError('no')))
      .catch((error: Error) => error.message);
  });
  const mine = play(handler, callOf('w'));
  await server.until(() => named().length > 0);
  const message = callOf('w');
  expect(await play(other.handler({ workflows: [w] }), message)).toMatchObject({
    type: 'completed',
    output: 'no',
  });
  expect(server.paths('/v1/saves')[0]?.body.saves[0].items).toMatchObject([{ retriable: false }]);
  expect(new Set(server.seen.map((seen) => seen.body?.process))).toEqual(new Set([shared().id]));
  await started(1);
  finish[0]?.(1);
  await mine;
});

test('many runs at once share requests, and one bad run harms no other', async () => {
  const w = nelkap.workflow('w', (n: number) => nelkap.step.run('a', () => n));
  const handler = nelkap.handler({ workflows: [w] });
  server.fault('/v1/saves', faults.closed, faults.closed);
  server.outcomes.push({ status: 'invalid', detail: 'this one is bad' });
  const answers = await Promise.all(
    Array.from({ length: 51 }, (_, n) => play(handler, callOf('w', { run: { payload: n } }))),
  );
  expect(answers.filter((answer) => answer.type === 'completed')).toHaveLength(50);
  expect(answers.filter((answer) => answer.type === 'failed')).toHaveLength(1);
  expect(server.paths('/v1/saves').length).toBeLessThan(20);
});

test('a refused request is taken apart, until the bad save stands alone', async () => {
  const w = nelkap.workflow('w', (n: number) => nelkap.step.run('a', () => n));
  const handler = nelkap.handler({ workflows: [w] });
  const refuseBad = Array.from({ length: 30 }, () => (response: any, seen: any) => {
    const isBad = seen.body.saves.some((save: any) => save.items.some((item: any) => item.output === 3));
    return isBad && faults.status(400)(response, seen);
  });
  server.fault('/v1/saves', ...refuseBad);
  const answers = await Promise.all(
    Array.from({ length: 8 }, (_, n) => play(handler, callOf('w', { run: { payload: n } }))),
  );
  expect(answers.map((answer) => answer.type)).toEqual(
    Array.from({ length: 8 }, (_, n) => (n === 3 ? 'failed' : 'completed')),
  );
});

test('an end that is told later is sent again', async () => {
  const w = nelkap.workflow('w', () => nelkap.step.run('a', () => 1));
  server.fault('/v1/saves', ...Array.from({ length: 60 }, () => faults.closed));
  server.fault('/v1/ends', faults.closed, (response, seen) => {
    const ends = seen.body.ends.map((end: any) => ({ call: end.call, status: 'later' }));
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ time: new Date().toISOString(), ends }));
    return true;
  });
  await play(nelkap.handler({ workflows: [w] }), callOf('w', { call: { leaseMs: 20_000 } }));
  await server.until(() => server.ends.length > 0);
  expect(server.paths('/v1/ends').map((seen) => seen.body.ends)).toEqual([
    server.ends,
    server.ends,
    server.ends,
  ]);
  await vi.waitUntil(() => shared().destinations.size === 0, patience);
});
