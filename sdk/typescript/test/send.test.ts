import { AsyncLocalStorage } from 'node:async_hooks';
import { expect, test, vi } from 'vitest';
import type { SavedHandle } from '../src/index.js';
import { Nelkap, RunCancelledError, RunFailedError, RunSkippedError, TimeoutError } from '../src/index.js';
import { base32, idempotencyKey, typeId } from '../src/shell/key.js';
import { shared } from '../src/shell/process.js';
import { callOf, play } from './app.js';
import { manualClock, patience } from './clock.js';
import { type Fault, faults, reply } from './server.js';
import { log, nelkap, server } from './stage.js';

const runId = /^run_[0-7][0-9a-hjkmnp-tv-z]{25}$/;
const eventId = /^evt_[0-7][0-9a-hjkmnp-tv-z]{25}$/;

test('run starts a run of the workflow in its app, with an id of its own', async () => {
  const w = nelkap.workflow('w', async (x: string) => x);
  const run = await nelkap.run(w, 'o_1', { key: 'k', keyFor: '1h' });
  expect(run).toMatchObject({ id: expect.stringMatching(runId), workflow: 'w', created: true });
  expect(JSON.parse(JSON.stringify(run))).toEqual({ id: run.id, workflow: 'w', created: true });
  expect(server.seen[0]?.body).toEqual({
    id: run.id,
    workflow: 'w',
    app: 'shop',
    payload: 'o_1',
    key: 'k',
    keyForMs: 3_600_000,
  });
});

// Rule K4.
test('a run whose key has another payload says so, also once it is saved', async () => {
  const w = nelkap.workflow('w', async (_: number) => {});
  server.fault('/v1/runs', (response) => {
    reply(response, 200, { id: 'run_1', workflow: 'w', created: false, payloadDiffers: true });
    return true;
  });
  const run = await nelkap.run(w, 2, { key: 'k' });
  expect(run.payloadDiffers).toBe(true);
  const saved: SavedHandle = run.toJSON();
  expect(saved).toEqual({ id: 'run_1', workflow: 'w', created: false, payloadDiffers: true });
});

// Rule K6.
test('a lost answer finds the same run: the id is drawn before the first try', async () => {
  const w = nelkap.workflow('w', async () => {});
  server.fault('/v1/runs', faults.halfAnswer, faults.status(503), faults.status(429), faults.closed);
  const run = await nelkap.run(w);
  const ids = server.paths('/v1/runs').map((seen) => seen.body.id);
  expect(ids).toEqual([run.id, run.id, run.id, run.id, run.id]);
});

// Rule K6.
test.each<[string, string, object, () => Promise<unknown>]>([
  ['emit', '/v1/events', { created: true }, () => nelkap.emit({ event: 'e', payload: 1 })],
  ['cancel', '/v1/runs/run_1/cancel', { id: 'run_1' }, () => nelkap.cancel('run_1')],
  ['schedules.pause', '/v1/schedules/s/pause', { id: 's' }, () => nelkap.schedules.pause('s')],
])('%s is tried again where its request is swallowed', async (_, path, answer, act) => {
  server.fault(path, faults.swallowed, (response) => {
    reply(response, 200, answer);
    return true;
  });
  expect(await act()).toMatchObject(answer);
});

test.each([
  [429, '2', 2_000, 3_000],
  [503, '2', 2_000, 3_000],
  [503, '3600', 5_000, 6_000],
  [503, 'soon', 80, 1_900],
  [502, '4', 80, 3_900],
])(
  'a send that meets %d with Retry-After %s pauses for %d ms at least',
  async (status, after, least, most) => {
    const { clock } = shared();
    const pauses: number[] = [];
    shared().clock = { ...clock, after: (ms, then) => (pauses.push(ms), clock.after(ms, then)) };
    server.fault('/v1/events', (response) => {
      response.setHeader('retry-after', after);
      return faults.status(status)(response, undefined as never);
    });
    await nelkap.emit({ event: 'e', payload: 1 });
    shared().clock = clock;
    expect(server.paths('/v1/events')).toHaveLength(2);
    // The others bound the requests.
    expect(pauses.filter((ms) => ms < 15_000).map((ms) => ms >= least && ms < most)).toEqual([true]);
  },
);

test('emit sends one event or several, each with an id', async () => {
  const one = await nelkap.emit({ event: 'order.paid', payload: 'o_1' });
  expect(one).toMatchObject({ id: expect.stringMatching(eventId), event: 'order.paid', created: true });
  const several = await nelkap.emit([
    { event: 'a', payload: 1, id: 'mine' },
    { event: 'b', payload: undefined },
  ]);
  expect(several.map((each) => each.id)).toEqual(['mine', expect.stringMatching(eventId)]);
  expect(await nelkap.emit([])).toEqual([]);
});

test('a refusal is an error with code, status and what to do', async () => {
  server.fault('/v1/runs', (response) => {
    reply(
      response,
      422,
      { status: 422, code: 'app_ambiguous', detail: 'say which app' },
      'application/problem+json',
    );
    return true;
  });
  const ref = nelkap.ref('elsewhere', { app: 'billing' });
  await expect(nelkap.run(ref, 1)).rejects.toMatchObject({
    name: 'NelkapError',
    code: 'app_ambiguous',
    status: 422,
    message: 'say which app',
  });
  expect(server.seen[0]?.body).toMatchObject({ workflow: 'elsewhere', app: 'billing' });
});

test.each([
  [faults.html, 'unexpected_answer', /instead of JSON/],
  [faults.redirect, 'redirected', /redirects to \/login/],
])('an answer that is not ours says so', async (fault, code, message) => {
  server.fault('/v1/events', fault);
  await expect(nelkap.emit({ event: 'e', payload: 1 })).rejects.toMatchObject({
    code,
    message: expect.stringMatching(message),
  });
});

test('an app in the place of the server says so', async () => {
  const answer = nelkap.handler({ workflows: [] });
  const fetch = (url: unknown, init: unknown) => answer(new Request(url as string, init as RequestInit));
  const lost = new Nelkap({ url: 'http://shop.test/api/nelkap', fetch });
  const says = {
    code: 'unexpected_answer',
    message: expect.stringMatching(/with an app instead of JSON: is NELKAP_URL the/),
  };
  await expect(lost.emit({ event: 'e', payload: 1 })).rejects.toMatchObject(says);
  await expect(lost.get('run_1')).rejects.toMatchObject(says);
});

test('a server that is not there is named, after a while', async () => {
  const away = new Nelkap({ url: 'http://127.0.0.1:9' });
  await expect(away.emit({ event: 'e', payload: 1 })).rejects.toMatchObject({
    code: 'unreachable',
    message: /NELKAP_URL/,
  });
});

test.each<[string, Error, string]>([
  ['a failure', new TypeError('unknown scheme'), 'unknown scheme'],
  [
    'its cause',
    new TypeError('fetch failed', { cause: new Error('self-signed certificate') }),
    'self-signed',
  ],
  [
    'the code of several',
    new TypeError('fetch failed', { cause: Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' }) }),
    'ECONNREFUSED',
  ],
])('where no answer comes, %s is told', async (_, failure, why) => {
  const away = new Nelkap({ url: 'https://nelkap.example', fetch: () => Promise.reject(failure) });
  await expect(away.emit({ event: 'e', payload: 1 })).rejects.toMatchObject({
    code: 'unreachable',
    message: expect.stringMatching(
      `^no Nelkap server answers at https://nelkap.example \\(${why}.*\\): start one`,
    ),
  });
});

test('a payload that JSON can not hold is refused before anything is sent', async () => {
  const w = nelkap.workflow('w', async (_: any) => {});
  await expect(nelkap.run(w, 5n)).rejects.toThrow(/payload is a bigint/);
  await expect(nelkap.emit([{ event: 'e', payload: [() => 1] }])).rejects.toThrow(
    /\[0\]\.payload\[0\] is a function/,
  );
  expect(server.seen).toEqual([]);
});

// Rule K1.
test('in a step, sends carry their call and their place', async () => {
  const child = nelkap.workflow('child', async () => {});
  const w = nelkap.workflow('w', () =>
    nelkap.step.run('send', async ({ nelkap: bound }) => {
      await nelkap.run(child);
      await bound.run(child);
      await bound.emit([
        { event: 'a', payload: 1 },
        { event: 'a', payload: 2 },
        { event: 'b', payload: 3 },
      ]);
      await nelkap.emit({ event: 'a', payload: 4 });
    }),
  );
  const message = callOf('w');
  expect(await play(nelkap.handler({ workflows: [w] }), message)).toMatchObject({ type: 'completed' });
  const sends = [...server.paths('/v1/runs'), ...server.paths('/v1/events')].flatMap((seen) => seen.body);
  expect(sends.map((each: any) => [each.workflow ?? each.event, each.send.place, each.id])).toEqual([
    ['child', 1, undefined],
    ['child', 2, undefined],
    ['a', 1, undefined],
    ['a', 2, undefined],
    ['b', 1, undefined],
    ['a', 3, undefined],
  ]);
  expect(sends[0].send).toMatchObject({
    call: message.call.id,
    token: message.call.token,
    step: { name: 'send', number: 1 },
  });
  expect(log.warn).not.toHaveBeenCalled();
});

// Rules K1, K2.
test("in a step, the client of its run's context sends as the step's", async () => {
  const w = nelkap.workflow('w', async (_: unknown, { nelkap: bound }) => {
    await bound.step.run('send', () => bound.emit({ event: 'e', payload: 1 }));
  });
  await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  const [sent] = server.paths('/v1/events');
  expect(sent?.body).toMatchObject({ send: { step: { name: 'send', number: 1 }, place: 1 } });
  expect(log.warn).not.toHaveBeenCalled();
});

// Rule K1.
test('two unkeyed sends of one name at once fail the step, even where it catches', async () => {
  const w = nelkap.workflow('w', () =>
    nelkap.step.run('send', () =>
      Promise.allSettled([1, 2].map((n) => nelkap.emit({ event: 'e', payload: n }))).then(() => 1),
    ),
  );
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(answer).toMatchObject({
    type: 'failed',
    retriable: false,
    error: { message: expect.stringContaining('give each an id or a key') },
  });
});

test('sends with ids, and sends of different names, may overlap', async () => {
  const w = nelkap.workflow('w', () =>
    nelkap.step.run('send', async () => {
      await Promise.all([1, 2].map((n) => nelkap.emit({ event: 'e', payload: n, id: `${n}` })));
      await Promise.all(['f', 'g'].map((event) => nelkap.emit({ event, payload: 1 })));
    }),
  );
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ type: 'completed' });
});

test.each(['superseded', 'ended'])(
  'a send that is told %s ends the playing, and the code never sees it',
  async (code) => {
    const caught = vi.fn();
    server.fault('/v1/events', faults.status(409));
    server.faults.set('/v1/events', [
      (response) => {
        reply(response, 409, { status: 409, code, detail: 'no' }, 'application/problem+json');
        return true;
      },
    ]);
    const w = nelkap.workflow('w', () =>
      nelkap.step.run('send', () => nelkap.emit({ event: 'e', payload: 1 }).catch(caught)).catch(caught),
    );
    expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ type: 'over' });
    expect(caught).not.toHaveBeenCalled();
  },
);

test('outside steps a send acts every time and says so once, with its place', async () => {
  const w = nelkap.workflow('w', async () => {
    for (const n of [1, 2]) await nelkap.emit({ event: 'e', payload: n });
  });
  await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(server.paths('/v1/events').map((seen) => seen.body.send)).toEqual([undefined, undefined]);
  expect(log.warn).toHaveBeenCalledTimes(1);
  expect(log.warn.mock.calls[0]?.[0]).toMatch(
    /nelkap\.emit\('e'\) outside a step in workflow 'w' at .*send\.test\.ts:\d+/,
  );
});

// Rule K2.
test('a send after its step ended acts as outside, with a warning', async () => {
  let bound: Nelkap | undefined;
  const w = nelkap.workflow('w', async () => {
    await nelkap.step.run('a', (context) => {
      bound = context.nelkap;
    });
    await bound?.emit({ event: 'late', payload: 1 });
  });
  await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(server.paths('/v1/events')[0]?.body).toMatchObject({ id: expect.stringMatching(eventId) });
  expect(log.warn).toHaveBeenCalledWith(expect.stringMatching(/after its step 'a'/));
});

/** Plays a call until its step `b` runs, then has it superseded. */
async function superseded(code: (hold: () => Promise<void>) => Promise<void>): Promise<void> {
  const started = vi.fn();
  const w = nelkap.workflow('w', () =>
    code(() => {
      started();
      return new Promise<void>(() => {});
    }),
  );
  const message = callOf('w');
  const answer = play(nelkap.handler({ workflows: [w] }), message);
  await vi.waitUntil(() => started.mock.calls.length > 0, patience);
  server.tell({ call: message.call.id, status: 'superseded' });
  expect(await answer).toMatchObject({ type: 'over' });
}

// Rule K2.
test('what a settled step has left behind sends on when its call is superseded', async () => {
  let tick = (): Promise<unknown> => Promise.resolve();
  await superseded(async (hold) => {
    await nelkap.step.run('a', () => {
      tick = AsyncLocalStorage.bind(() => nelkap.emit({ event: 'tick', payload: 1 }));
    });
    await nelkap.step.run('b', hold);
  });
  await tick();
  expect(server.paths('/v1/events').map((seen) => seen.body)).toMatchObject([
    { event: 'tick', id: expect.any(String) },
  ]);
  expect(log.warn.mock.calls).toEqual([[expect.stringMatching(/emit\('tick'\) came after its step 'a'/)]]);
});

// Rules K2, H7.
test('code that was under way when its call was superseded sends nothing more, also once it has settled, and says so once', async () => {
  const ticks: (() => Promise<unknown>)[] = [];
  let settle = (): void => {};
  await superseded(async (hold) => {
    ticks.push(AsyncLocalStorage.bind(() => nelkap.emit({ event: 'tick', payload: 1 })));
    await nelkap.step.run('b', () => {
      ticks.push(AsyncLocalStorage.bind(() => nelkap.emit({ event: 'tick', payload: 2 })));
      return Promise.race([hold(), new Promise<void>((resolve) => (settle = resolve))]);
    });
  });
  settle();
  await new Promise(setImmediate);
  const sent = vi.fn();
  for (const tick of ticks) void tick().then(sent, sent);
  await new Promise(setImmediate);
  expect(sent).not.toHaveBeenCalled();
  expect(server.paths('/v1/events')).toEqual([]);
  expect(log.warn.mock.calls).toEqual([
    [
      "nelkap.emit('tick') came with the context of a call that is over, and is not sent: " +
        'make what outlives a call, such as an interval or a pool, outside workflows and steps',
    ],
  ]);
});

function run(parts: object): object {
  return {
    id: 'run_1',
    workflow: 'w',
    status: 'running',
    endedAt: null,
    output: undefined,
    error: null,
    ...parts,
  };
}

test('result waits for the end and gives the output', async () => {
  const ended = { status: 'completed', endedAt: 'x', output: { ok: true } };
  for (const state of [run({}), run(ended)]) {
    server.fault('/v1/runs/run_1', (response) => {
      reply(response, 200, state);
      return true;
    });
  }
  const w = nelkap.workflow('w', async () => ({ ok: true }));
  expect(await nelkap.result({ id: 'run_1', workflow: 'w', created: true }, w)).toEqual({ ok: true });
  expect(server.seen.map((seen) => seen.path)).toEqual([
    '/v1/runs/run_1?waitMs=30000',
    '/v1/runs/run_1?waitMs=30000',
  ]);
});

test.each<[string, object, new (...args: any[]) => Error, RegExp]>([
  ['failed', { error: { name: 'TypeError', message: 'no card' } }, RunFailedError, /failed: no card/],
  ['cancelled', {}, RunCancelledError, /was cancelled/],
  [
    'skipped',
    { error: { name: 'RunSkippedError', message: 'the run was skipped', fields: { owner: 'run_0' } } },
    RunSkippedError,
    /run_0 owns its key/,
  ],
])('result of a %s run throws what became of it', async (status, parts, type, message) => {
  server.fault('/v1/runs/run_1', (response) => {
    reply(response, 200, run({ status, endedAt: 'x', ...parts }));
    return true;
  });
  const error = await nelkap.result('run_1').catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(type);
  expect((error as Error).message).toMatch(message);
});

test('result gives up after its timeout, or when its signal says so', async () => {
  const hold = () => true;
  server.fault('/v1/runs/run_1', hold, hold);
  await expect(nelkap.result('run_1', undefined, { timeout: '2s' })).rejects.toBeInstanceOf(TimeoutError);
  await expect(
    nelkap.result('run_1', undefined, { signal: AbortSignal.abort(new Error('enough')) }),
  ).rejects.toThrow('enough');
});

test('result outlives a restart that comes late in a wait', async () => {
  const clock = manualClock();
  const begunAt = clock.now();
  let asked = 0;
  const answer = async (): Promise<Response> => {
    // What the server holds a wait for is no failure, and uses up none of the patience.
    if (++asked === 1) await new Promise<void>((then) => clock.after(29_000, then));
    if (clock.now() - begunAt < 50_000) throw new TypeError('fetch failed');
    return Response.json(run({ status: 'completed', endedAt: 'x', output: 7 }));
  };
  let isOver = false;
  const result = new Nelkap({ url: 'http://server.test', fetch: answer })
    .result('run_1')
    .finally(() => (isOver = true));
  const expected = expect(result).resolves.toBe(7);
  // oxlint-disable-next-line no-unmodified-loop-condition
  while (!isOver && (await clock.pass()));
  clock.remove();
  await expected;
});

test('result in a step gives up with its attempt', async () => {
  server.fault('/v1/runs/run_1', faults.swallowed);
  const caught = new Promise((resolve) => {
    const wait = () => nelkap.result('run_1').catch((error: unknown) => resolve(error));
    const w = nelkap.workflow('w', () => nelkap.step.run('wait', { timeout: '1s', retries: 0 }, wait));
    void play(nelkap.handler({ workflows: [w] }), callOf('w'));
  });
  expect(await caught).toMatchObject({
    name: 'TimeoutError',
    message: expect.stringContaining("step 'wait'"),
  });
});

test('result in a workflow warns that it holds the call open', async () => {
  server.fault('/v1/runs/run_1', (response) => {
    reply(response, 200, run({ status: 'completed', endedAt: 'x', output: 3 }));
    return true;
  });
  const w = nelkap.workflow('w', () => nelkap.step.run('wait', () => nelkap.result<number>('run_1')));
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ output: 3 });
  expect(log.warn).toHaveBeenCalledWith(expect.stringContaining('holds the call open'), { run: 'run_1' });
});

test('get, cancel and replay go to the run', async () => {
  for (const path of ['', '/cancel', '/replay']) {
    server.fault(`/v1/runs/run_1${path}`, (response) => {
      reply(response, 200, run({ id: path === '/replay' ? 'run_2' : 'run_1' }));
      return true;
    });
  }
  expect(await nelkap.get('run_1')).toMatchObject({ status: 'running' });
  expect(await nelkap.cancel('run_1')).toMatchObject({ id: 'run_1' });
  expect(await nelkap.replay('run_1')).toMatchObject({ id: 'run_2', created: true });
  await expect(nelkap.get('')).rejects.toThrow(TypeError);
});

test('a replay says what it takes over, and a try again is the same request', async () => {
  const bodies: unknown[] = [];
  const answers = [503, 201].map(
    (status): Fault =>
      (response, seen) => {
        bodies.push(seen.body);
        reply(response, status, run({ id: 'run_2' }));
        return true;
      },
  );
  server.fault('/v1/runs/run_1/replay', ...answers);
  await nelkap.replay('run_1', { from: 'email', payload: { total: 7 }, keepKeys: false, events: 'new' });
  expect(bodies).toHaveLength(2);
  expect(bodies[1]).toEqual(bodies[0]);
  expect(bodies[0]).toEqual({
    id: expect.stringMatching(/^run_/),
    from: 'email',
    payload: { total: 7 },
    keepKeys: false,
    events: 'new',
  });
  await expect(nelkap.replay('run_1', { from: '' })).rejects.toThrow(TypeError);
});

test.each([
  ['00000000000000000000000000000000', '00000000000000000000000000'],
  ['0000000000000000000000000000000a', '0000000000000000000000000a'],
  ['00000000000000000000000000000020', '00000000000000000000000010'],
  ['ffffffffffffffffffffffffffffffff', '7zzzzzzzzzzzzzzzzzzzzzzzzz'],
  ['01890a5dac96774bbcceb302099a8057', '01h455vb4pex5vsknk084sn02q'],
])('the TypeID of %s is %s', (hex, text) => {
  expect(base32(Buffer.from(hex, 'hex'))).toBe(text);
});

test('ids sort by time', () => {
  const ids = [1, 2 ** 33, 2 ** 41].map((now) => typeId('run', now));
  expect([...ids].sort()).toEqual(ids);
});

test('the environment is read when it is needed', async () => {
  const early = new Nelkap();
  vi.stubEnv('NELKAP_URL', server.url);
  vi.stubEnv('NELKAP_API_KEY', 'key');
  vi.stubEnv('NELKAP_APP', 'late');
  await early.run(early.workflow('w', async () => {}));
  expect(server.seen[0]).toMatchObject({ body: { app: 'late' }, headers: { authorization: 'Bearer key' } });
});

// The same vectors hold in every SDK: SHA-256 of the compact JSON of root, restart, name and number.
test.each([
  [{ root: 'run_x', restart: 0 }, { name: 'a', number: 1 }, 'nelkap_1e2cc67f706910eab736786070485ca1'],
  [
    { root: 'run_x', restart: 1 },
    { name: 'é<&>\u2028😀', number: 2 },
    'nelkap_660f53c48a52243043bfddc53db56d0b',
  ],
])('the idempotency key of %j and %j is %s', async (run, step, key) => {
  expect(await idempotencyKey(run as never, step)).toBe(key);
});

test('runs and events may be put off to a time', async () => {
  const w = nelkap.workflow('w', async () => {});
  const now = shared().clock.now();
  await nelkap.run(w, undefined, { key: 'k', keyFor: '1d', delay: '5m' });
  await nelkap.run(w, undefined, { at: new Date(now) });
  await nelkap.emit({ event: 'e', payload: 1, at: '2027-01-31T09:00:00Z' });
  expect(server.paths('/v1/runs').map((seen) => seen.body)).toMatchObject([
    { key: 'k', keyForMs: 86_400_000, delayMs: 300_000 },
    { at: new Date(now).toISOString() },
  ]);
  expect(server.paths('/v1/events')[0]?.body).toMatchObject({ at: '2027-01-31T09:00:00.000Z' });
});

test.each<[object, string]>([
  [{ at: new Date(0), delay: 1 }, "the run of workflow 'w' has both 'at' and 'delay': give one of them"],
  [{ at: 'soon' }, "at of the run of workflow 'w' is no time"],
  [{ delay: -1 }, "delay of the run of workflow 'w' is negative"],
  [{ key: 'k', keyFor: 'x' }, "keyFor of the run of workflow 'w' is no duration"],
  [{ key: '' }, "the key of the run of workflow 'w' is no text: give one that is not empty"],
  [{ key: 'ü'.repeat(257) }, "the key of the run of workflow 'w' has 514 bytes: give one of at most 512"],
  [{ key: 'k\ud83d' }, "the key of the run of workflow 'w' has half a character in it: give whole ones"],
  [{ keyFor: '1d' }, "the run of workflow 'w' has 'keyFor' without 'key': give both"],
])('a run with the options %j is refused', async (options, text) => {
  await expect(nelkap.run(nelkap.ref('w'), 1, options)).rejects.toThrow(text);
  expect(server.seen).toEqual([]);
});

test.each([
  ['', "the id of event 'e' is no text: give one that is not empty"],
  ['ü'.repeat(129), "the id of event 'e' has 258 bytes: give one of at most 256"],
  ['k\ud83d', "the id of event 'e' has half a character in it: give whole ones"],
])('an event with the id %j is refused', async (id, text) => {
  await expect(nelkap.emit([{ event: 'e', payload: 1, id }])).rejects.toThrow(text);
  expect(server.seen).toEqual([]);
});

test.each<any>([null, 'order.paid', { payload: 1 }, [{}]])(
  'no event, such as %j, is refused',
  async (given) => {
    await expect(nelkap.emit(given)).rejects.toThrow('an event needs a name: give a text that is not empty');
    expect(server.seen).toEqual([]);
  },
);

test('an event at a time that is none is refused', async () => {
  await expect(nelkap.emit({ event: 'e', payload: 1, at: 'soon' })).rejects.toThrow(
    "at of event 'e' is no time",
  );
});
