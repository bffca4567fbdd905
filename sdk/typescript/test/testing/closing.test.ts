import { expect, test, vi } from 'vitest';
import { type Failure, nelkap, NonRetriableError } from '../../src/index.js';
import { CrashError, crashEverywhere, hang, marks, testRun } from '../../src/testing/index.js';

const { step } = nelkap;
const outside = marks();

const declined = (): never => {
  throw new NonRetriableError('declined');
};

/** Takes what it has to give back when the charge fails. */
const order = nelkap.workflow(
  {
    name: 'order',
    onFailure: async ({ error, payload }: Failure<string>) => {
      await step.run('tell', () => outside.leave(`tell ${payload} ${error.message}`));
    },
    onCancel: async ({ steps }) => {
      await step.run('tell', () => outside.leave(`cancelled after ${steps.length}`));
    },
  },
  async (id: string) => {
    const hold = await step.run('take', () => `hold ${id}`);
    await step.undo('give back', ({ idempotencyKey }) =>
      outside.leave(`give back ${hold}`, { idempotencyKey }),
    );
    await step.waitForEvent('paid', { event: 'paid', timeout: '1h' });
    await step.run('charge', declined);
  },
);

test('a run that fails is undone, and then its handler is called', async () => {
  outside.clear();
  const run = await (await testRun(order, 'o_1')).end();
  expect(run.status).toBe('failed');
  expect(run.error?.message).toBe('declined');
  expect(outside.list.map(({ mark, step: by }) => [mark, by])).toEqual([
    ['give back hold o_1', 'give back'],
    ['tell o_1 declined', 'onFailure: tell'],
  ]);
  expect(run.steps.map(({ kind, name, number, status }) => `${kind} ${name} ${number} ${status}`)).toEqual([
    'run take 1 completed',
    'undo give back 1 completed',
    'event paid 1 completed',
    'run charge 1 failed',
    'run give back 2 completed',
    'run onFailure: tell 1 completed',
  ]);
});

test('a run that is cancelled is undone, and so is one that times out', async () => {
  outside.clear();
  const run = await testRun(order, 'o_1');
  expect(run.status).toBe('waiting');
  await run.cancel();
  expect(run.status).toBe('cancelled');
  expect(outside.list.map(({ mark }) => mark)).toEqual(['give back hold o_1', 'cancelled after 2']);
  const error = vi.fn();
  const slow = nelkap.workflow(
    { name: 'slow', timeout: '10m', onFailure: (failure) => error(failure.error.name) },
    () => step.sleep('nap', '1h'),
  );
  const late = await (await testRun(slow)).end();
  expect(late.status).toBe('failed');
  expect(error).toHaveBeenCalledExactlyOnceWith('TimeoutError');
});

test('a body in flight ends before the run is undone', async () => {
  outside.clear();
  const w = nelkap.workflow('w', async () => {
    await step.undo('first', () => outside.leave('undone'));
    await step.run('a', hang);
  });
  const run = await testRun(w);
  expect(run.status).toBe('running');
  await run.cancel();
  expect(outside.count()).toBe(0);
  await run.skip('30s');
  expect(run.status).toBe('cancelled');
  expect(outside.count('undone')).toBe(1);
});

test('undos and handlers are tried again, can be faked, and may fail for good', async () => {
  let tries = 0;
  const w = nelkap.workflow(
    {
      name: 'w',
      retries: 1,
      onFailure: async () => {
        await step.sleep('nap', '1h');
        throw new Error('not now');
      },
    },
    async () => {
      await step.undo('a', () => outside.leave('never'));
      await step.undo('b', () => {
        tries += 1;
        throw new Error('no');
      });
      throw new NonRetriableError('why');
    },
  );
  const faked = vi.fn();
  outside.clear();
  const run = await (await testRun(w, undefined, { steps: { a: faked } })).end();
  expect(run).toMatchObject({ status: 'failed', error: { message: 'why' } });
  expect(tries).toBe(2);
  expect(faked).toHaveBeenCalledOnce();
  expect(outside.count()).toBe(0);
  expect(run.steps.at(-1)).toMatchObject({ kind: 'sleep', name: 'onFailure: nap' });
});

test('the children of a run that ends are cancelled', async () => {
  const child = nelkap.workflow('child', () => step.sleep('nap', '1d'));
  const w = nelkap.workflow('w', async () => {
    await step.undo('x', () => {});
    await step.invoke('child', child);
  });
  const run = await (await testRun(w)).cancel();
  expect(run.status).toBe('cancelled');
  expect(run.others.map(({ status }) => status)).toEqual(['cancelled']);
});

test('a run that begins again has a new payload, new keys and no saved steps', async () => {
  const keys = new Set<string>();
  const w = nelkap.workflow('w', async (page: number) => {
    await step.run('read', ({ idempotencyKey }) => void keys.add(idempotencyKey));
    await step.run('tell', () => nelkap.emit({ event: 'page', payload: page }));
    await step.sleep('nap', '1h');
    if (page < 3) await step.restart(page + 1);
    return page;
  });
  const run = await (await testRun(w, 1)).end();
  expect(run).toMatchObject({ status: 'completed', output: 3, payload: 3 });
  expect(run.steps).toHaveLength(3);
  expect(keys.size).toBe(3);
  expect(run.events.map(({ payload }) => payload)).toEqual([1, 2, 3]);
});

test('the lines of a run are there once, however often its code is shown again', async () => {
  const logger = { debug: vi.fn(), info: vi.fn(), warn: vi.fn(), error: vi.fn() };
  const w = nelkap.workflow('w', async (_payload, { log }) => {
    log.info('begins', { n: 1 });
    await step.run('a', (context) => {
      context.log.warn('inside', { bad: 1n });
      if (context.attempt === 1) throw new Error('no');
    });
    log.info('goes on');
    await step.sleep('nap', '1h');
    log.info('ends');
  });
  const run = await (await testRun(w, undefined, { logger })).end();
  expect(run.logs.map(({ message, step: by, attempt }) => [message, by, attempt])).toEqual([
    ['begins', null, 1],
    ['inside', 'a', 1],
    ['inside', 'a', 2],
    ['goes on', null, 1],
    ['ends', null, 1],
  ]);
  expect(run.logs[0]).toMatchObject({ level: 'info', fields: { n: 1 }, at: expect.any(Date) });
  expect(run.logs[1]?.fields).toEqual({ dropped: expect.stringContaining('fields.bad') });
  // The wait's call and the one after a pause show code again that is known to have written its line, or may have.
  expect(logger.info.mock.calls.map(([message]) => message)).toEqual(['begins', 'begins', 'goes on', 'ends']);
});

test('a logger that throws fails no run of the kit either', async () => {
  const full = (): never => {
    throw new Error('full');
  };
  const logger = { debug: full, info: full, warn: full, error: full };
  const w = nelkap.workflow('w', (_payload, { log }) => log.info('begins'));
  const run = await testRun(w, undefined, { logger });
  expect(run.status).toBe('completed');
  expect(run.logs).toHaveLength(1);
});

test('a closing is cut off everywhere, and all that it does is done once', async () => {
  const report = await crashEverywhere(order, 'o_1', { marks: outside, mayEnd: ['failed'] }).catch((e) => e);
  // The handler's step has no key: a cut right after its mark leaves it twice.
  expect(report).toBeInstanceOf(CrashError);
  expect(report.message).toMatch(/just after it had left the mark 'tell o_1 declined'/);
  const safe = nelkap.workflow(
    {
      name: 'safe',
      onCancel: () => step.run('tell', ({ idempotencyKey }) => outside.leave('told', { idempotencyKey })),
    },
    async () => {
      await step.undo('give back', ({ idempotencyKey }) => outside.leave('given back', { idempotencyKey }));
      await step.run('take', ({ idempotencyKey }) => outside.leave('taken', { idempotencyKey }));
      await step.sleep('nap', '1d');
    },
  );
  const found = await crashEverywhere(safe, undefined, {
    marks: outside,
    events: [{ cancel: true }],
    timings: ['in time'],
    check: (run) => {
      expect(run.status).toBe('cancelled');
      expect([outside.count('taken'), outside.count('given back'), outside.count('told')]).toEqual([1, 1, 1]);
    },
  });
  // Two calls: their starts, bodies, marks and saves, and what comes of each.
  expect(found.cuts).toBeGreaterThan(12);
});

test('a cancellation may come in every way', async () => {
  const w = nelkap.workflow('w', async () => {
    await step.undo('x', ({ idempotencyKey }) => outside.leave('undone', { idempotencyKey }));
    await step.waitForEvent('e', { event: 'e', timeout: '1h' });
  });
  const ways = new Map<string, string>();
  await crashEverywhere(w, undefined, {
    marks: outside,
    events: [{ cancel: true }],
    check: (run, { name }) => {
      if (name.endsWith('uncut')) ways.set(name, `${run.status}, ${outside.count('undone')} undone`);
    },
  });
  expect(Object.fromEntries(ways)).toEqual({
    'in time, uncut': 'cancelled, 1 undone',
    'early, uncut': 'cancelled, 0 undone',
    'late, uncut': 'cancelled, 1 undone',
    'twice, uncut': 'cancelled, 1 undone',
  });
});
