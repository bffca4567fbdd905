import { expect, test, vi } from 'vitest';
import { NonRetriableError } from '../src/index.js';
import { callOf, play } from './app.js';
import { log, nelkap, server } from './stage.js';

type Handler = (request: Request) => Promise<Response>;

/** Calls a run as a server does, each call with what is saved by then, until it has ended. At most `callsMax` calls. */
async function playOn(handler: Handler, workflow: string, callsMax = 10): Promise<any> {
  const first = callOf(workflow);
  let entries: any[] = [];
  let retrying: any[] = [];
  for (let calls = 1; calls <= callsMax; calls++) {
    const message = callOf(workflow, { run: first.run, steps: { entries, next: null, retrying } });
    server.entries.set(message.call.id, [...entries]);
    const answer = await play(handler, message);
    if (answer.type !== 'suspended') return { ...answer, calls };
    entries = server.entries.get(message.call.id) ?? [];
    retrying = answer.waits.map(({ retry }: any) => ({ ...retry, attempt: 1, retryInMs: 0 }));
  }
  throw new Error(`the run did not end in ${callsMax} calls`);
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
  expect(await playOn(nelkap.handler({ workflows: [w] }), 'w')).toMatchObject({ output: 50, calls: 2 });
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

test('a new version with a step before a saved one runs the new step alone', async () => {
  const [a, x] = [vi.fn(() => 'new'), vi.fn(() => 'x')];
  const w = nelkap.workflow('w', async () => [await nelkap.step.run('x', x), await nelkap.step.run('a', a)]);
  const entries = [{ entry: 1, kind: 'run', name: 'a', number: 1, status: 'completed', output: 'old' }];
  const message = callOf('w', { steps: { entries } });
  server.entries.set(message.call.id, [...entries]);
  expect(await play(nelkap.handler({ workflows: [w] }), message)).toMatchObject({ output: ['x', 'old'] });
  expect([x.mock.calls.length, a.mock.calls.length]).toEqual([1, 0]);
});
