import { expect, test, vi } from 'vitest';
import { Nelkap } from '../src/index.js';
import { shared } from '../src/shell/process.js';
import { callOf, play } from './app.js';
import { manualClock, patience } from './clock.js';
import { faults, reply } from './server.js';
import { apiKey, log, nelkap, server } from './stage.js';

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

// Rule C7.
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

// Rule C7.
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

// Rule C7.
test('a clock that is set back silences no call', async () => {
  const { clock } = shared();
  const { handler, finish, started } = held();
  const answer = play(handler, callOf('w'));
  await started(1);
  await server.until(() => named().length > 0);
  shared().clock = { ...clock, now: () => clock.now() - 3_600_000 };
  const before = named().length;
  await server.until(() => named().length > before);
  shared().clock = clock;
  finish[0]?.(1);
  await answer;
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

test('an app that can save nothing says so once, and where it tried', async () => {
  const w = nelkap.workflow('w', () => nelkap.step.run('a', () => 1));
  server.fault('/v1/saves', faults.html, faults.html, faults.html);
  await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(log.warn.mock.calls).toEqual([
    [
      "the server can't be reached; trying again",
      { url: server.url, error: expect.stringMatching(/: is NELKAP_URL the address of a Nelkap server\?$/) },
    ],
  ]);
  expect(log.info.mock.calls).toEqual([['the server can be reached again', { url: server.url }]]);
});

// Rule C1.
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

// Rule C1. Nobody would take it back that it is to be named at once, nor let go of what the call holds.
test.each<[string, object, (call: string) => string]>([
  ['a save', {}, () => '/v1/saves'],
  ['a page of steps', { steps: { entries: [], next: 1 } }, (call) => `/v1/calls/${call}/steps`],
])('a call that is over before %s of it fails is not kept', async (_, parts, pathOf) => {
  const { handler, finish, started } = held();
  const lasting = play(handler, callOf('w'));
  await started(1);
  const [destination] = shared().destinations.values();
  const message = callOf('w', parts);
  const path = pathOf(message.call.id);
  let fail = (): unknown => undefined;
  server.fault(path, ({ socket }) => Boolean((fail = () => socket?.destroy())));
  const answer = play(handler, message);
  if (path === '/v1/saves') await started(2).then(() => finish[1]?.(1));
  await server.until(() => server.paths(path).length > 0);
  server.tell({ call: message.call.id, status: 'superseded' });
  expect(await answer).toMatchObject({ type: 'over' });
  fail();
  finish[0]?.(1);
  expect(await lasting).toMatchObject({ type: 'completed' });
  expect(destination?.urgent.size).toBe(0);
});

// Rule C7.
test('two copies of the SDK in one process share its id, saver and poll', async () => {
  vi.resetModules();
  const copy = await import('../src/index.js');
  expect(copy.Nelkap).not.toBe(Nelkap);
  const other = new copy.Nelkap({ url: server.url, apiKey });
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
  expect(new Set(server.seen.map((seen) => seen.body?.process)).size).toBe(1);
  await started(1);
  finish[0]?.(1);
  await mine;
});

// Rule C7: a call that its process names no more is cut.
test('clients that poll apart are two processes to the server', async () => {
  const { handler, finish, started } = held();
  const other = new Nelkap({ url: server.url, apiKey: 'o'.repeat(32), logger: log });
  const w = other.workflow('w', () => other.step.run('a', () => new Promise((then) => finish.push(then))));
  const messages = [callOf('w'), callOf('w')];
  const answers = [play(handler, messages[0]), play(other.handler({ workflows: [w] }), messages[1])];
  await started(2);
  await server.until(() => new Set(named().flat()).size === 2);
  const names = server
    .paths('/v1/heartbeats')
    .map(({ body }) => [body.process, body.calls.map((each: any) => each.call)]);
  const processes = new Set(names.map(([process]) => process));
  expect(processes.size).toBe(2);
  for (const process of processes)
    expect(new Set(names.filter(([each]) => each === process).flatMap(([, calls]) => calls)).size).toBe(1);
  for (const each of finish) each(1);
  await Promise.all(answers);
});

// Rule F4: the saver is that of the copy which played first.
test('what one copy of the SDK encodes is sent by the other as it is', async () => {
  vi.resetModules();
  const copy = await import('../src/index.js');
  const other = new copy.Nelkap({ url: server.url, apiKey });
  const { handler, finish, started } = held();
  const child = other.workflow('child', (id: string) => id);
  const w = other.workflow('w', async () => {
    await nelkap.step.run('b', () => nelkap.emit({ event: 'e', payload: 'p' }));
    await nelkap.step.run('c', () => Promise.reject(new copy.NonRetriableError('no'))).catch(() => {});
    await nelkap.step.invoke('d', child, 'o_1');
  });
  const mine = play(handler, callOf('w'));
  await started(1);
  const suspended = await play(other.handler({ workflows: [w] }), callOf('w'));
  expect(suspended.register).toMatchObject([{ name: 'd', payload: 'o_1' }]);
  expect(server.paths('/v1/events')[0]?.body.payload).toBe('p');
  const items = server.paths('/v1/saves').flatMap((seen) => seen.body.saves[0].items);
  expect(items).toMatchObject([
    { name: 'b', output: { event: 'e', created: true } },
    { name: 'c', error: { name: 'NonRetriableError', message: 'no' } },
  ]);
  finish[0]?.(1);
  await mine;
});

test('a refusal that the other copy of the SDK reads is known as what it is', async () => {
  vi.resetModules();
  const copy = await import('../src/index.js');
  const other = new copy.Nelkap({ url: server.url, apiKey });
  const { handler, finish, started } = held();
  const mine = play(handler, callOf('w'));
  await started(1);
  const message = callOf('w', { steps: { entries: [], next: 1, retrying: [] } });
  server.fault(`/v1/calls/${message.call.id}/steps`, (response) => {
    reply(response, 409, { status: 409, code: 'superseded', detail: 'a newer call has begun' });
    return true;
  });
  const w = other.workflow('w', () => 1);
  expect(await play(other.handler({ workflows: [w] }), message)).toMatchObject({ type: 'over' });
  expect(server.paths('/v1/calls')).toHaveLength(1);
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

// Rule N3.
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

type Network = (signal: AbortSignal) => Promise<Response>;
const refuses: Network = () => Promise.reject(new Error('refused'));
const swallows: Network = (signal) =>
  new Promise((_, fail) => signal.addEventListener('abort', () => fail(new Error('aborted'))));

/**
 * Plays a call of one step while the server is away, and lets its end through once it is answered. Time passes from timer to
 * timer, so that what comes back says to the millisecond when the answer came.
 */
async function playAway(meets: Network, call: object, bodyMs: number, backMs = 0): Promise<any> {
  const clock = manualClock();
  const saves: string[] = [];
  let answer: any;
  const network = (url: string, { body, signal }: RequestInit): Promise<Response> => {
    if (url.endsWith('/v1/saves') && saves.push(url) === 1) clock.setBack(backMs);
    if (answer === undefined || !url.endsWith('/v1/ends')) return meets(signal as AbortSignal);
    const ends = JSON.parse(String(body)).ends.map((end: any) => ({ call: end.call, status: 'accepted' }));
    return Promise.resolve(Response.json({ time: new Date().toISOString(), ends }));
  };
  const away = new Nelkap({ url: 'http://127.0.0.1:9', fetch: network as typeof fetch });
  const body = vi.fn(() => new Promise<void>((resolve) => clock.after(bodyMs, resolve)));
  const w = away.workflow('w', () => away.step.run('a', body));
  const startedAt = clock.now();
  void play(away.handler({ workflows: [w] }), callOf('w', { call })).then((got) => {
    answer = { ...got, tookMs: Math.round(clock.now() + backMs - startedAt), saves: saves.length };
  });
  await vi.waitUntil(() => body.mock.calls.length > 0, patience);
  for (let isOpen = true; isOpen; isOpen = shared().destinations.size > 0 && (await clock.pass()));
  expect(shared().destinations.size).toBe(0);
  clock.remove();
  return answer;
}

const carried = { type: 'yielded', excused: true, unsaved: [{ name: 'a' }] };

// A lease of 5 s leaves 3.33 s for tries. What is swallowed is known to have failed only later, so they count from its sending.
test('silence is counted from the first save that was swallowed', async () => {
  const answer = await playAway(swallows, { leaseMs: 5_000, heartbeatMs: 1_665 }, 0);
  expect(answer).toMatchObject({ ...carried, tookMs: 3_330 });
  expect(answer.saves).toBeGreaterThan(1);
});

// Rule C11.
// Else a result that is ready before the lease ends would be lost with it.
test('silence during a long body counts', async () => {
  const answer = await playAway(refuses, {}, 270_000);
  expect(answer).toMatchObject({ ...carried, tookMs: 270_000, saves: 1 });
});

// Rule C11.
test('silence is counted though the clock is set back', async () => {
  expect(await playAway(refuses, {}, 0, 3_600_000)).toMatchObject({ ...carried, tookMs: 60_000 });
});

// Rule C10.
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
