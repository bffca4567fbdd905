import { expect, test, vi } from 'vitest';
import { Nelkap, NonRetriableError, type Workflow } from '../src/index.js';
import { callOf, play, requestOf } from './app.js';
import { apiKey, log, nelkap, server } from './stage.js';

type Handler = (request: Request) => Promise<Response>;

/**
 * Calls a run as a server does, each call with what is saved by then, until it has ended. A wait ends, as `ends` has it by its
 * name, when the run suspends: one for each call, the last that was registered first. At most ten calls.
 */
async function playOn(handler: Handler, workflow: string, ends: Record<string, object> = {}): Promise<any> {
  const first = callOf(workflow);
  let entries: any[] = [];
  let retrying: any[] = [];
  let waiting: any[] = [];
  for (let calls = 1; calls <= 10; calls++) {
    const message = callOf(workflow, { run: first.run, steps: { entries, next: null, retrying, waiting } });
    server.entries.set(message.call.id, [...entries]);
    const answer = await play(handler, message);
    entries = server.entries.get(message.call.id) ?? [];
    if (answer.type !== 'suspended') return { ...answer, calls, entries };
    retrying = answer.waits.flatMap(({ retry }: any) =>
      retry === undefined ? [] : [{ ...retry, attempt: 1, retryInMs: 0 }],
    );
    waiting = [...waiting, ...(answer.register ?? [])];
    if (retrying.length > 0 || waiting.length === 0) continue;
    const { kind, name, number } = waiting.pop();
    const entry = entries.length + 1;
    entries = [...entries, { entry, kind, name, number, status: 'completed', ...ends[name] }];
  }
  throw new Error('the run did not end in 10 calls');
}

/** Plays a run whole, and again from each of its entries; each time the output must be the same. */
async function playFromEverywhere(handler: Handler, workflow: string): Promise<any> {
  const whole = callOf(workflow);
  const answer = await play(handler, whole);
  const history = server.entries.get(whole.call.id) ?? [];
  for (let length = 1; length <= history.length; length++) {
    const again = callOf(workflow, { run: whole.run, steps: { entries: history.slice(0, length) } });
    server.entries.set(again.call.id, history.slice(0, length));
    const { type, output, error } = await play(handler, again);
    expect({ type, output, error }, `from entry ${length}`).toEqual({
      type: answer.type,
      output: answer.output,
      error: answer.error,
    });
  }
  return { ...answer, history };
}

test('a sibling that finishes first starts none of the others again', async () => {
  const bodies: string[] = [];
  let letGo: (() => void) | undefined;
  const slow = new Promise<void>((resolve) => (letGo = resolve));
  const w = nelkap.workflow('w', () =>
    Promise.all([
      nelkap.step.run('quick', () => bodies.push('quick')),
      ...[1, 2, 3].map((n) => nelkap.step.run(`slow ${n}`, () => (bodies.push(`slow ${n}`), slow))),
    ]),
  );
  const answer = play(nelkap.handler({ workflows: [w] }), callOf('w'));
  await server.until(() => server.paths('/v1/saves').length > 0);
  letGo?.();
  expect(await answer).toMatchObject({ type: 'completed' });
  expect(bodies).toEqual(['quick', 'slow 1', 'slow 2', 'slow 3']);
});

test('the last of twenty steps that end at once wakes the code, whichever it is', async () => {
  const body = vi.fn((n: number) => n);
  const w = nelkap.workflow('w', async () => {
    const all = await Promise.all(
      Array.from({ length: 20 }, (_, n) => nelkap.step.run(`s${n}`, () => body(n))),
    );
    return all.reduce((sum, n) => sum + n, 0);
  });
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ output: 190 });
  expect(body).toHaveBeenCalledTimes(20);
});

test('of fifty steps at once, those that throw run once more and the others do not', async () => {
  const attempts = new Map<number, number>();
  const w = nelkap.workflow('w', async () => {
    const all = await Promise.all(
      Array.from({ length: 50 }, (_, n) =>
        nelkap.step.run(`s${n}`, () => {
          attempts.set(n, (attempts.get(n) ?? 0) + 1);
          if (n % 5 === 0 && attempts.get(n) === 1) throw new Error('once more');
          return n;
        }),
      ),
    );
    return all.length;
  });
  expect(await playOn(nelkap.handler({ workflows: [w] }), 'w')).toMatchObject({ output: 50 });
  expect([...attempts].map(([n, tries]) => tries - (n % 5 === 0 ? 1 : 0))).toEqual(Array(50).fill(1));
});

test('failed steps that are settled, or awaited late, fail nothing on any later call', async () => {
  const fail = (): Promise<never> => Promise.reject(new NonRetriableError('no'));
  const w = nelkap.workflow('w', async () => {
    const late = nelkap.step.run('late', fail);
    const [settled] = await Promise.allSettled([nelkap.step.run('settled', fail)]);
    const any = await Promise.any([nelkap.step.run('fails', fail), nelkap.step.run('works', () => 1)]);
    await nelkap.step.run('between', () => 1);
    return [settled.status, any, await late.catch((error: Error) => error.message)];
  });
  const answer = await playFromEverywhere(nelkap.handler({ workflows: [w] }), 'w');
  expect(answer.output).toEqual(['rejected', 1, 'no']);
  expect(answer.history).toHaveLength(5);
});

test('an error whose stack names the files of an older version takes nobody off their path', async () => {
  const w = nelkap.workflow('w', async () => {
    const stack = await nelkap.step
      .run('charge', () => Promise.reject(new NonRetriableError('no')))
      .catch((error: Error) => error.stack);
    return nelkap.step.run('note', () => stack);
  });
  const stack = 'Error: no\n    at charge (/old/version/pay.ts:1:1)';
  const failed = { entry: 1, kind: 'run', name: 'charge', number: 1, status: 'failed', attempts: 1 };
  const entries = [{ ...failed, error: { name: 'Error', message: 'no', stack } }];
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w', { steps: { entries } }));
  expect(answer).toMatchObject({ type: 'completed', output: stack });
});

test('names that look like numbered ones each have their own result', async () => {
  const names = ['a', 'a', 'a', 'a:1', 'a#2', 'a:2', 'a 2'];
  const w = nelkap.workflow('w', async () => {
    const results: number[] = [];
    for (const [n, name] of names.entries()) results.push(await nelkap.step.run(name, () => n));
    return results;
  });
  const answer = await playFromEverywhere(nelkap.handler({ workflows: [w] }), 'w');
  expect(answer.output).toEqual([0, 1, 2, 3, 4, 5, 6]);
});

test.each<[unknown]>([[{}], [[]], [null], [undefined], [false], [0], [''], ['x'.repeat(1_000_000)]])(
  'a workflow may return %j, and nothing is logged of it',
  async (value) => {
    const w = nelkap.workflow('w', async () => {
      const kept = await nelkap.step.run('a', () => value);
      expect(kept).toEqual(value);
      return value;
    });
    const answer = await playFromEverywhere(nelkap.handler({ workflows: [w] }), 'w');
    expect(answer).toMatchObject({ type: 'completed' });
    expect('output' in answer && answer.output).toEqual(value === undefined ? false : value);
    for (const write of [log.error, log.warn]) expect(write).not.toHaveBeenCalled();
  },
);

test('no catch, finally or settling takes the pause of a step for its failure', async () => {
  const [refund, cleanUp, went] = [vi.fn(), vi.fn(), vi.fn()];
  const w = nelkap.workflow('w', async () => {
    const flaky = () =>
      nelkap.step.run('flaky', ({ attempt }) => {
        if (attempt === 1) throw new Error('once more');
        return 1;
      });
    try {
      const [one] = await Promise.allSettled([flaky()]);
      went(one.status);
    } catch {
      await nelkap.step.run('refund', refund);
    } finally {
      cleanUp();
    }
  });
  const handler = nelkap.handler({ workflows: [w] });
  expect(await play(handler, callOf('w'))).toMatchObject({ type: 'suspended' });
  await new Promise(setImmediate);
  for (const each of [refund, cleanUp, went]) expect(each).not.toHaveBeenCalled();
  expect(await playOn(handler, 'w')).toMatchObject({ type: 'completed', calls: 2 });
  expect(went).toHaveBeenCalledWith('fulfilled');
  expect(refund).not.toHaveBeenCalled();
});

test('a step in catch cleans up once, and the run fails with what was thrown first', async () => {
  const released: number[] = [];
  const w = nelkap.workflow('w', async () => {
    try {
      await nelkap.step.run('charge', () => Promise.reject(new NonRetriableError('no money')));
    } catch (error) {
      await nelkap.step.run('release', () => released.push(1));
      throw error;
    }
  });
  const answer = await playFromEverywhere(nelkap.handler({ workflows: [w] }), 'w');
  expect(answer).toMatchObject({ type: 'failed', retriable: false, error: { message: 'no money' } });
  // Played whole, and again from the entry of charge; from that of release it is saved.
  expect(released).toHaveLength(2);
});

test('what cannot be written as JSON may be logged, and a logger that fails harms no run', async () => {
  log.warn.mockImplementationOnce(() => {
    throw new TypeError('Converting circular structure to JSON');
  });
  const circular: Record<string, unknown> = { n: 1n };
  circular['self'] = circular;
  const w = nelkap.workflow('w', async (_: unknown, context) => {
    context.log.info('circular', circular);
    return nelkap.step.run('a', ({ log: own }) => {
      own.warn('huge', { text: 'x'.repeat(2_000_000), circular });
      return 1;
    });
  });
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ output: 1 });
  expect(log.info).toHaveBeenCalledWith('circular', expect.objectContaining({ n: 1n }));
});

test('a logger that fails harms no send, and no answer', async () => {
  const fails = (): never => {
    throw new TypeError('the disk is full');
  };
  const logger = { debug: fails, info: fails, warn: fails, error: fails };
  const mine = new Nelkap({ url: server.url, apiKey, logger });
  const w = mine.workflow('w', async () => (await mine.emit({ event: 'e', payload: 1 })).event);
  const handler = mine.handler({ workflows: [w] });
  expect(await play(handler, callOf('w'))).toMatchObject({ type: 'completed', output: 'e' });
  const misled = new Nelkap({ signingKey: 'too short', logger }).handler({ workflows: [w] });
  const signed = { 'webhook-id': 'm_1', 'webhook-timestamp': '1', 'webhook-signature': 'v1,AA==' };
  expect((await misled(requestOf(callOf('w'), signed))).status).toBe(500);
});

test('a new version with a step before a saved one runs the new step alone', async () => {
  const [a, x] = [vi.fn(() => 'new'), vi.fn(() => 'x')];
  const w = nelkap.workflow('w', async () => [await nelkap.step.run('x', x), await nelkap.step.run('a', a)]);
  const entries = [{ entry: 1, kind: 'run', name: 'a', number: 1, status: 'completed', output: 'old' }];
  const message = callOf('w', { steps: { entries } });
  server.entries.set(message.call.id, [...entries]);
  expect(await play(nelkap.handler({ workflows: [w] }), message)).toMatchObject({ output: ['x', 'old'] });
  expect([x.mock.calls.length, a.mock.calls.length]).toEqual([1, 0]);
});

test('steps of every kind have the same winners on each call, however they are combined', async () => {
  const child = nelkap.ref<Workflow<number, string>>('child');
  const seen: unknown[] = [];
  const w = nelkap.workflow('w', async (_: unknown, { step }) => {
    const trace: unknown[] = [];
    const saw = (what: unknown): void => void trace.push(what);
    const nap = step.sleep('nap', '1h').then(() => saw('nap'));
    const event = step.waitForEvent('event', { event: 'e' });
    saw(await Promise.race([nap, event.then((found) => found?.payload), step.run('a', () => 'a')]));
    saw(await step.race([step.invoke('child', child, 1), step.sleep('limit', '1d')]));
    saw(await step.any([step.invoke('fails', child, 2), step.run('b', () => 'b')]));
    const settled = await Promise.allSettled([event, step.invoke('fails too', child, 3)]);
    saw(settled.map(({ status }) => status));
    await nap;
    saw(await step.claim('mine', 'k'));
    seen.push(trace);
    return trace;
  });
  const failed = { status: 'failed', error: { name: 'Error', message: 'no' } };
  const ends = {
    event: { output: { id: 'evt_1', event: 'e', payload: 'p', createdAt: 'x' } },
    child: { output: 'c' },
    fails: failed,
    'fails too': failed,
  };
  const handler = nelkap.handler({ workflows: [w] });
  const whole = await playOn(handler, 'w', ends);
  expect(whole).toMatchObject({ type: 'completed' });
  expect(whole.output).toEqual(
    ['a', undefined, 'b', ['fulfilled', 'rejected'], 'nap', true].map((each) => each ?? null),
  );
  for (let length = 0; length <= whole.entries.length; length++) {
    const again = callOf('w', { steps: { entries: whole.entries.slice(0, length) } });
    server.entries.set(again.call.id, whole.entries.slice(0, length));
    const answer = await play(handler, again);
    if (answer.type === 'completed') expect(answer.output, `from entry ${length}`).toEqual(whole.output);
    else expect(answer.type).toBe('suspended');
  }
  expect(new Set(seen.map((trace) => JSON.stringify(trace))).size).toBe(1);
});

test('a wait or a child whose time is over leads to what the code does then, and nothing is logged of it', async () => {
  const child = nelkap.ref<Workflow<number, string>>('child');
  const w = nelkap.workflow('w', async (_: unknown, { step }) => {
    const event = await step.waitForEvent('event', { event: 'e', timeout: '1s' });
    if (event === null) await step.run('fallback', () => 1);
    try {
      return await step.invoke('child', child, 1, { timeout: '1s' });
    } catch (error) {
      return step.run('instead', () => (error as Error).name);
    }
  });
  const timedOut = { status: 'failed', error: { name: 'TimeoutError', message: 'too long' } };
  const answer = await playOn(nelkap.handler({ workflows: [w] }), 'w', {
    event: { output: null },
    child: timedOut,
  });
  expect(answer).toMatchObject({ type: 'completed', output: 'TimeoutError' });
  expect(answer.entries.map(({ name }: any) => name)).toEqual(['event', 'fallback', 'child', 'instead']);
  for (const write of [log.error, log.warn]) expect(write).not.toHaveBeenCalled();
});
