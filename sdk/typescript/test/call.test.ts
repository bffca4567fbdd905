import { EventEmitter, once } from 'node:events';
import { expect, test, vi } from 'vitest';
import { NonRetriableError, RetryAfterError, StepError } from '../src/index.js';
import { shared } from '../src/shell/process.js';
import { callOf, play } from './app.js';
import { patience } from './clock.js';
import { faults, reply } from './server.js';
import { apiKey, log, nelkap, server } from './stage.js';

function saved(): any[] {
  return server.paths('/v1/saves').flatMap((seen) => seen.body.saves.flatMap((save: any) => save.items));
}

test('a run goes through its steps and completes', async () => {
  const w = nelkap.workflow('w', async (payload: { n: number }, { run, log: runLog }) => {
    runLog.info('begins', { n: payload.n });
    const one = await nelkap.step.run('one', ({ attempt, idempotencyKey }) => ({
      attempt,
      idempotencyKey,
      at: new Date(0),
    }));
    return { id: run.id, one };
  });
  const message = callOf('w', { run: { payload: { n: 1 } } });
  const answer = await play(nelkap.handler({ workflows: [w] }), message);
  expect(answer).toMatchObject({
    status: 200,
    type: 'completed',
    output: { id: message.run.id, one: { attempt: 1, at: '1970-01-01T00:00:00.000Z' } },
  });
  expect(answer.output.one.idempotencyKey).toMatch(/^nelkap_[0-9a-f]{32}$/);
  expect(log.info).toHaveBeenCalledWith('begins', { run: message.run.id, workflow: 'w', n: 1 });
  expect(server.paths('/v1/saves')[0]?.headers.authorization).toBe(`Bearer ${apiKey}`);
});

// Rule W1.
test('saved steps answer, and their functions do not run', async () => {
  const body = vi.fn(() => 2);
  const w = nelkap.workflow('w', async () => [
    await nelkap.step.run('a', body),
    await nelkap.step.run('b', () => 3),
  ]);
  const entries = [{ entry: 1, kind: 'run', name: 'a', number: 1, status: 'completed', output: 1 }];
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w', { steps: { entries } }));
  expect(answer.output).toEqual([1, 3]);
  expect(body).not.toHaveBeenCalled();
});

test('the first pass gives the same copy as later ones', async () => {
  const w = nelkap.workflow('w', async () => {
    const kept = { v: 1, z: -0, u: undefined as number | undefined, at: new Date(5) };
    const first = await nelkap.step.run('first', () => kept);
    kept.v = 2;
    return { first, negative: Object.is(first.z, -0), has: 'u' in first };
  });
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(answer.output).toEqual({
    first: { v: 1, z: 0, at: '1970-01-01T00:00:00.005Z' },
    negative: false,
    has: false,
  });
});

test('a step that throws is saved as failed with what a workflow branches on', async () => {
  const w = nelkap.workflow('w', async () =>
    nelkap.step
      .run('a', { retries: 0 }, () => {
        throw Object.assign(new TypeError('x', { cause: new Error('deep') }), {
          code: 'ECONNREFUSED',
          status: 503,
        });
      })
      .catch((error: StepError & { code: string }) => ({
        is: error instanceof StepError,
        name: error.name,
        code: error.code,
        step: error.step,
        attempts: error.attempts,
        cause: (error.cause as Error).message,
      })),
  );
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(answer.output).toEqual({
    is: true,
    name: 'TypeError',
    code: 'ECONNREFUSED',
    step: 'a',
    attempts: 1,
    cause: 'deep',
  });
});

// Rule S2.
test('errors say whether and when they are tried again', async () => {
  const w = nelkap.workflow({ name: 'w', retries: 7 }, async () => {
    await Promise.allSettled([
      nelkap.step.run('final', () => Promise.reject(new NonRetriableError('no'))),
      nelkap.step.run('after', () => Promise.reject(new RetryAfterError('busy', '5s'))),
    ]);
  });
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ type: 'suspended' });
  expect(saved()).toMatchObject([
    { name: 'final', retriable: false, retries: 7 },
    { name: 'after', retriable: true, retries: 7, retryAfterMs: 5_000 },
  ]);
});

// Rule S3.
test('a result that JSON cannot hold fails its step at once and names the path', async () => {
  const w = nelkap.workflow('w', () => nelkap.step.run('a', () => ({ deep: [1n] }) as never));
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(answer).toMatchObject({ type: 'failed', retriable: false, error: { name: 'ResultError' } });
  expect(saved()).toMatchObject([{ op: 'failed', retriable: false, error: { name: 'ResultError' } }]);
  expect(answer.error.message).toBe(
    "The step 'a' ran, but its result can't be saved: result.deep[0] is a bigint (give a string): JSON can't hold it",
  );
});

test('an output that JSON cannot hold fails its run at once', async () => {
  const w = nelkap.workflow('w', () => ({ big: 1n }) as never);
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(answer).toMatchObject({ type: 'failed', retriable: false, error: { name: 'ResultError' } });
});

// Rule S3.
test('a result over the limit fails its step without being sent', async () => {
  const w = nelkap.workflow('w', () => nelkap.step.run('a', () => 'x'.repeat(5_000_000)));
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(answer.error).toMatchObject({ name: 'ResultTooLargeError' });
  expect(saved()).toMatchObject([{ op: 'failed', retriable: false }]);
});

// Rule S3.
test('an output over the limit fails its run at once, and is not answered', async () => {
  const w = nelkap.workflow('w', () => 'é'.repeat(2_100_000));
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(answer).toMatchObject({
    type: 'failed',
    retriable: false,
    error: {
      name: 'ResultTooLargeError',
      message:
        "The workflow's output can't be saved: it has 4200002 bytes, more than 4194304. Store it elsewhere, and return where it is.",
    },
  });
  expect(answer).not.toHaveProperty('output');
});

test('large results travel beside, and small ones do not wait for them', async () => {
  const w = nelkap.workflow(
    'w',
    async (size: number) => (await nelkap.step.run('a', () => 'x'.repeat(size))).length,
  );
  const handler = nelkap.handler({ workflows: [w] });
  let large: (() => void) | undefined;
  server.fault('/v1/saves', (response, seen) => {
    if (JSON.stringify(seen.body).length < 1_000_000) return false;
    large = () => response.socket?.destroy();
    return true;
  });
  const first = play(handler, callOf('w', { run: { payload: 2_000_000 } }));
  await server.until(() => large !== undefined);
  expect(await play(handler, callOf('w', { run: { payload: 2 } }))).toMatchObject({
    type: 'completed',
    output: 2,
  });
  large?.();
  expect(await first).toMatchObject({ type: 'completed', output: 2_000_000 });
});

test('a timeout fails the attempt and aborts its signal', async () => {
  const aborted = vi.fn();
  const w = nelkap.workflow('w', () =>
    nelkap.step.run('slow', { timeout: '10s' }, ({ signal }) => {
      signal.addEventListener('abort', () => aborted((signal.reason as Error).name));
      return new Promise<void>(() => {});
    }),
  );
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ type: 'suspended' });
  expect(saved()).toMatchObject([{ op: 'failed', retriable: true, error: { name: 'TimeoutError' } }]);
  expect(aborted).toHaveBeenCalledWith('TimeoutError');
});

test.each([
  ['a closed socket', faults.closed],
  ['half an answer', faults.halfAnswer],
  ['503', faults.status(503)],
  ['429', faults.status(429)],
  ['500', faults.status(500)],
  ['an HTML page', faults.html],
  ['a redirect', faults.redirect],
])('a save that meets %s is sent again, and the step runs once', async (_, fault) => {
  const body = vi.fn(() => 1);
  const w = nelkap.workflow('w', () => nelkap.step.run('a', body));
  server.fault('/v1/saves', fault, fault);
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({
    type: 'completed',
    output: 1,
  });
  expect(body).toHaveBeenCalledTimes(1);
  const tries = server.paths('/v1/saves').map((seen) => seen.body.saves);
  expect(tries).toHaveLength(3);
  expect(tries[1]).toEqual(tries[0]);
});

// Rule H1.
const absent = undefined;
const refused = (): never => {
  throw new Error('not supported here');
};
test.each<[Record<string, unknown>]>([
  [{}],
  [{ setImmediate: absent }],
  [{ setImmediate: absent, MessageChannel: absent }],
  [{ setImmediate: refused, MessageChannel: refused }], // as in edge functions of `next dev`
])('the code comes to rest on a host with %o', async (globals) => {
  for (const [name, value] of Object.entries(globals)) vi.stubGlobal(name, value);
  vi.resetModules();
  const copy = await import('../src/index.js');
  const mine = new copy.Nelkap({ url: server.url, apiKey });
  const w = mine.workflow('w', () => Promise.all(['a', 'b'].map((name) => mine.step.run(name, () => name))));
  const answer = play(mine.handler({ workflows: [w] }), callOf('w'));
  expect(await answer).toMatchObject({ type: 'completed', output: ['a', 'b'] });
  vi.unstubAllGlobals();
});

// Rule C1.
test('while a save fails the call is named', async () => {
  const w = nelkap.workflow('w', () => nelkap.step.run('a', () => 1));
  server.fault('/v1/saves', faults.closed, faults.closed, faults.closed, faults.closed);
  const message = callOf('w');
  await play(nelkap.handler({ workflows: [w] }), message);
  const beats = server.paths('/v1/heartbeats');
  expect(beats.length).toBeGreaterThan(0);
  expect(beats[0]?.body).toMatchObject({
    process: server.paths('/v1/saves')[0]?.body.process,
    calls: [{ call: message.call.id }],
    waitMs: 5_000,
  });
});

// Rule C11.
test('without contact the answer carries what is unsaved, and the end goes on trying', async () => {
  const w = nelkap.workflow('w', () => nelkap.step.run('a', () => 1));
  server.fault('/v1/saves', ...Array.from({ length: 200 }, () => faults.closed));
  const message = callOf('w', { call: { leaseMs: 60_000 } });
  const answer = await play(nelkap.handler({ workflows: [w] }), message);
  expect(answer).toMatchObject({ type: 'yielded', unsaved: [{ op: 'completed', name: 'a', output: 1 }] });
  await server.until(() => server.ends.length > 0);
  expect(server.ends[0]).toMatchObject({
    call: message.call.id,
    end: { type: 'yielded', unsaved: [{ name: 'a' }] },
  });
});

test('an item that the server can not read fails its run alone', async () => {
  const w = nelkap.workflow('w', () => nelkap.step.run('a', () => 1));
  server.fault('/v1/saves', faults.status(400));
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(answer).toMatchObject({ type: 'failed', retriable: false, error: { name: 'ProtocolError' } });
});

test.each([
  [400, /^The server and the SDK disagree: not now\. Use versions of both that fit each other\.$/],
  [
    413,
    /disagree: a save of \d+ bytes was refused with 413 \(let what stands between them take 8323072\)\. Use/,
  ],
])('a save that is refused with %i fails its run with a sentence', async (status, message) => {
  const w = nelkap.workflow('w', () => nelkap.step.run('a', () => 1));
  server.fault('/v1/saves', (response) => {
    const problem = { status, code: `http_${status}`, detail: 'not now.' };
    reply(response, status, problem, 'application/problem+json');
    return true;
  });
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(answer.error.message).toMatch(message);
});

/** A promise that stays open until its signal is aborted. */
function untilAborted(signal: AbortSignal): Promise<Error> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(signal.reason as Error)));
}

// Rules W10, H7.
test('a superseded call stops: its signal is aborted, and no catch takes it for a failure', async () => {
  const [caught, started, aborted] = [vi.fn(), vi.fn(), vi.fn()];
  const w = nelkap.workflow('w', async () => {
    try {
      await nelkap.step.run('a', async ({ signal }) => {
        started();
        const reason = await untilAborted(signal);
        aborted(reason.name);
        throw reason;
      });
    } catch {
      caught();
    }
  });
  const message = callOf('w');
  const answer = play(nelkap.handler({ workflows: [w] }), message);
  await vi.waitUntil(() => started.mock.calls.length > 0, patience);
  server.tell({ call: message.call.id, status: 'superseded' });
  expect(await answer).toMatchObject({ type: 'over' });
  await vi.waitUntil(() => aborted.mock.calls.length > 0, patience);
  expect(aborted).toHaveBeenCalledWith('AbortError');
  await new Promise(setImmediate);
  expect(caught).not.toHaveBeenCalled();
  expect(saved()).toEqual([]);
});

// Rule Z1.
test('a cancelled run aborts its signals, saves what returns, and yields', async () => {
  const [started, second] = [vi.fn(), vi.fn()];
  const w = nelkap.workflow('w', async (_: unknown, { signal: whole }) => {
    await nelkap.step.run('a', async ({ signal }) => {
      started();
      await untilAborted(signal);
      return whole.aborted;
    });
    await nelkap.step.run('b', second);
  });
  const message = callOf('w');
  const answer = play(nelkap.handler({ workflows: [w] }), message);
  await vi.waitUntil(() => started.mock.calls.length > 0, patience);
  server.tell({ call: message.call.id, status: 'ending', ending: { reason: 'cancelled' } });
  expect(await answer).toMatchObject({ type: 'yielded', seen: 1 });
  expect(saved()).toMatchObject([{ name: 'a', output: true }]);
  expect(second).not.toHaveBeenCalled();
});

// Rule C4.
test('a call that is signed long ago binds before it plays', async () => {
  const w = nelkap.workflow('w', () => nelkap.step.run('a', () => 1));
  const sentAt = new Date(shared().clock.now() - 60_000).toISOString();
  await play(nelkap.handler({ workflows: [w] }), callOf('w', { call: { sentAt } }));
  expect(server.paths('/v1/saves')[0]?.body.saves[0].items).toEqual([]);
});

test("with clocks an hour apart, what is old is told by the server's", async () => {
  const w = nelkap.workflow('w', () => nelkap.step.run('a', () => 1));
  const handler = nelkap.handler({ workflows: [w] });
  const hour = 3_600_000;
  const ahead = (response: any, seen: any): boolean => {
    const saves = seen.body.saves.map(({ call, items }: any) => {
      return { call, status: 'accepted', items: items.map(() => ({ status: 'saved', entry: 1 })) };
    });
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ time: new Date(shared().clock.now() + hour).toISOString(), saves }));
    return true;
  };
  server.fault('/v1/saves', ahead, ahead, ahead, ahead);
  const savesOf = async (ms: number): Promise<number> => {
    const before = server.paths('/v1/saves').length;
    const sentAt = new Date(shared().clock.now() + ms).toISOString();
    expect(await play(handler, callOf('w', { call: { sentAt } }))).toMatchObject({ type: 'completed' });
    return server.paths('/v1/saves').length - before;
  };
  // C4: the first answer shows the server's clock; a call that binds first saves twice.
  expect([await savesOf(0), await savesOf(hour), await savesOf(hour - 60_000)]).toEqual([1, 1, 2]);
  shared().offsets.clear();
});

// Rule H5.
test('all pages are read before a body runs, and a failed page is tried again', async () => {
  const w = nelkap.workflow('w', async () => [
    await nelkap.step.run('a', () => 0),
    await nelkap.step.run('b', () => 2),
  ]);
  const message = callOf('w', { steps: { entries: [], next: 0 } });
  const path = `/v1/calls/${message.call.id}/steps`;
  server.fault(path, faults.closed, (response, seen) => {
    expect(seen.headers).toMatchObject({ 'nelkap-token': message.call.token });
    const entries = [{ entry: 1, kind: 'run', name: 'a', number: 1, status: 'completed', output: 1 }];
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ entries, next: null }));
    return true;
  });
  expect(await play(nelkap.handler({ workflows: [w] }), message)).toMatchObject({
    type: 'completed',
    output: [1, 2],
  });
});

// Rule H5.
test('a page that never comes is a cut', async () => {
  const w = nelkap.workflow('w', () => nelkap.step.run('a', () => 1));
  const message = callOf('w', { steps: { entries: [], next: 0 } });
  const answer = await play(nelkap.handler({ workflows: [w] }), message);
  expect(answer).toMatchObject({ status: 500, code: 'internal' });
});

test('the payload goes through its schema, and a misfit fails the run with the paths', async () => {
  const { z } = await import('zod');
  const payload = z.object({ id: z.string(), lines: z.array(z.object({ n: z.number() })) });
  const w = nelkap.workflow({ name: 'w', payload }, async (order) => order.id);
  const handler = nelkap.handler({ workflows: [w] });
  const good = callOf('w', { run: { payload: { id: 'x', lines: [] } } });
  expect(await play(handler, good)).toMatchObject({ type: 'completed', output: 'x' });
  const bad = callOf('w', { run: { payload: { id: 'x', lines: [{ n: 'one' }] } } });
  const answer = await play(handler, bad);
  expect(answer).toMatchObject({ type: 'failed', retriable: false, error: { name: 'PayloadError' } });
  expect(answer.error.message).toContain('payload.lines[0].n');
  expect(answer.error.fields.issues[0].path).toBe('payload.lines[0].n');
});

test('what fails unawaited, late or settled is no unhandled rejection', async () => {
  const fail = () => Promise.reject(new NonRetriableError('no'));
  const w = nelkap.workflow('w', async () => {
    const late = nelkap.step.run('late', fail);
    void nelkap.step.run('never', fail);
    await Promise.allSettled([nelkap.step.run('settled', fail)]);
    await nelkap.step.run('between', () => 1);
    return late.catch((error: Error) => error.message);
  });
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ output: 'no' });
});

function deferred(): { promise: Promise<void>; resolve: () => void } {
  let resolve = (): void => {};
  const promise = new Promise<void>((settle) => (resolve = settle));
  return { promise, resolve: () => resolve() };
}

// Rule S1.
test('two steps of one name are told apart, or the run stops', async () => {
  const orderly = nelkap.workflow('orderly', () =>
    Promise.all(
      ['x', 'y'].map(
        async (each) =>
          `${await nelkap.step.run('load', () => each)} ${await nelkap.step.run('save', () => each)}`,
      ),
    ),
  );
  const running = deferred();
  const stray = nelkap.workflow('stray', () =>
    Promise.all([
      nelkap.step.run('load', () => {
        running.resolve();
        return new Promise((resolve) => shared().clock.after(2_000, () => resolve(1)));
      }),
      running.promise.then(() => nelkap.step.run('load', () => 2)),
    ]),
  );
  const handler = nelkap.handler({ workflows: [orderly, stray] });
  expect(await play(handler, callOf('orderly'))).toMatchObject({ output: ['x x', 'y y'] });
  const answer = await play(handler, callOf('stray'));
  expect(answer).toMatchObject({ type: 'failed', retriable: false, error: { name: 'StepNameError' } });
});

test.each(['__proto__', 'constructor', 'toString', 'a/b', '../x', '😀', 'a\0b', 'a:1'])(
  'the name %j is as good as any',
  async (name) => {
    const w = nelkap.workflow(name, async () => [
      await nelkap.step.run(name, () => 1),
      await nelkap.step.run(name, () => 2),
    ]);
    expect(await play(nelkap.handler({ workflows: [w] }), callOf(name))).toMatchObject({ output: [1, 2] });
  },
);

test.each(['', 'x'.repeat(257), '\ud800'])('the name %j is refused', async (name) => {
  expect(() => nelkap.workflow(name, () => 1)).toThrow(TypeError);
  const w = nelkap.workflow('w', () => nelkap.step.run(name, () => 1).catch((error: Error) => error.name));
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ output: 'TypeError' });
});

test('steps outside a workflow, and steps in steps, say what to do', async () => {
  await expect(nelkap.step.run('x', () => 1)).rejects.toThrow(/outside a workflow/);
  const w = nelkap.workflow('w', () =>
    nelkap.step.run('outer', () => nelkap.step.run('inner', () => 1).catch((error: Error) => error.message)),
  );
  expect((await play(nelkap.handler({ workflows: [w] }), callOf('w'))).output).toMatch(/can't hold steps/);
});

// Rule K2.
test('runs in one process keep their own context through timers and emitters', async () => {
  const w = nelkap.workflow('w', async (n: number, context) => {
    const emitter = new EventEmitter();
    const gone = once(emitter, 'go');
    setTimeout(() => emitter.emit('go'), 3 - n);
    await gone;
    const own = await nelkap.step.run(`own ${n}`, () => n);
    const bound = await context.step.run(`bound ${n}`, () => n * 10);
    return [own, bound, context.run.id];
  });
  const handler = nelkap.handler({ workflows: [w] });
  const messages = [0, 1, 2].map((n) => callOf('w', { run: { payload: n } }));
  const answers = await Promise.all(messages.map((message) => play(handler, message)));
  expect(answers.map((answer) => answer.output)).toEqual(
    messages.map((message, n) => [n, n * 10, message.run.id]),
  );
});

// Rule S7.
test('cut anywhere, a history leads to the same end, and only what was not saved runs', async () => {
  const bodies: string[] = [];
  const act = <T>(name: string, value: T): Promise<T> =>
    nelkap.step.run<unknown>(name, () => {
      bodies.push(name);
      if (value instanceof Error) throw value;
      return value;
    }) as Promise<T>;
  const w = nelkap.workflow('w', async () => {
    const first = await act('first', 1);
    const all = await Promise.all([act('a', 'a'), act('a', 'b'), act('c', 3)]);
    const caught = await act<unknown>('fails', new NonRetriableError('no')).catch(
      (error: Error) => error.message,
    );
    const winner = await Promise.race([act('x', 'x'), act('y', 'y')]);
    return [first, all, caught, winner, await act('last', null)];
  });
  const handler = nelkap.handler({ workflows: [w] });
  const whole = callOf('w');
  const { output } = await play(handler, whole);
  const history = server.entries.get(whole.call.id) ?? [];
  expect(output).toEqual([1, ['a', 'b', 3], 'no', 'x', null]);
  expect(history).toHaveLength(8);
  for (let length = 0; length <= history.length; length++) {
    bodies.length = 0;
    const again = callOf('w', { steps: { entries: history.slice(0, length) } });
    server.entries.set(again.call.id, history.slice(0, length));
    expect((await play(handler, again)).output, `cut after ${length}`).toEqual(output);
    expect(bodies).toHaveLength(history.length - length);
  }
});

test('a webhook starts a workflow with its request', async () => {
  const w = nelkap.workflow({ name: 'w', on: { webhook: 'shop' } }, async ({ body, json }, { event }) => [
    body,
    json,
    event?.event,
  ]);
  const payload = {
    webhook: 'shop',
    method: 'POST',
    query: {},
    headers: {},
    body: '{"n":1}',
    json: { n: 1 },
  };
  const event = { id: 'evt_1', event: 'webhook.shop', payload, createdAt: '2026-01-01T00:00:00.000Z' };
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w', { run: { payload, event } }));
  expect(answer).toMatchObject({ type: 'completed', output: ['{"n":1}', { n: 1 }, 'webhook.shop'] });
});

test.each(['', 5, undefined, 'x'.repeat(249)])('the webhook %j is refused', (webhook) => {
  const on = { webhook: webhook as string };
  expect(() => nelkap.workflow({ name: 'w', on }, () => 1)).toThrow(TypeError);
});

test('options that there are not are refused, by whatever calls', async () => {
  const w = nelkap.workflow('w', async () => {});
  const any = nelkap as any;
  for (const [option, on] of [
    ['iff', { event: 'e', iff: '1' }],
    ['iff', { webhook: 'e', iff: '1' }],
    ['if', { schedule: '@daily', if: '1' }],
  ] as const) {
    expect(() => any.workflow({ name: 'x', on }, () => 1)).toThrow(`option '${option}'`);
  }
  expect(() => any.workflow({ name: 'x', onec: () => 1 }, () => 1)).toThrow(/option 'onec'/);
  expect(() => any.workflow({ name: 'x', on: { event: 'e', webhook: 'e' } }, () => 1)).toThrow(
    /option 'event'/,
  );
  await expect(any.run(w, 1, { dealy: 5 })).rejects.toThrow(/option 'dealy'/);
  await expect(any.emit({ event: 'e', payload: 1, ta: 'x' })).rejects.toThrow(/option 'ta'/);
  const steps = nelkap.workflow('steps', () =>
    any.step.run('a', { chekc: () => 1 }, () => 1).catch((error: Error) => error.message),
  );
  const answer = await play(nelkap.handler({ workflows: [steps] }), callOf('steps'));
  expect(answer.output).toMatch(/option 'chekc'/);
});

// Rule K2.
test('a step that took too long sends nothing more', async () => {
  const late = vi.fn();
  let go: (() => void) | undefined;
  const w = nelkap.workflow('w', async () => {
    const slow = nelkap.step.run('slow', { timeout: '5s', retries: 0 }, async ({ nelkap: bound }) => {
      await new Promise<void>((resolve) => (go = resolve));
      await bound.emit({ event: 'e', payload: 1 }).catch(late);
    });
    await slow.catch(() => {});
    go?.();
    await new Promise(setImmediate);
  });
  await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(late).toHaveBeenCalledWith(expect.objectContaining({ code: 'abandoned' }));
  expect(server.paths('/v1/events')).toEqual([]);
});
