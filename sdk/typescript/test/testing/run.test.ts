import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { nelkap, NonRetriableError, RetryAfterError, type Workflow } from '../../src/index.js';
import { hang, testRun } from '../../src/testing/index.js';

const { step } = nelkap;
const order = { id: 'o_1', total: 5 };
type Order = typeof order;
const warn = vi.fn();

beforeEach(() => void vi.spyOn(console, 'warn').mockImplementation(warn.mockReset()));
afterEach(() => void vi.restoreAllMocks());

const hours = 3_600_000;

test('a run is played to its end, with fakes in place of steps', async () => {
  const charge = vi.fn();
  const w = nelkap.workflow('w', async (of: Order, { run, event }) => {
    const { id } = await step.run('charge', () => (charge(), { id: 'real' }));
    const at = await step.run('at', () => new Date(0));
    return { id, at, of, run: run.workflow, key: run.key, event: event?.event };
  });
  const fake = vi.fn((_: unknown, __: unknown) => ({ id: 'ch_1' }));
  const run = await testRun(w, order, { steps: { charge: fake }, key: 'k', event: 'order.paid' });
  expect(run).toMatchObject({
    status: 'completed',
    error: null,
    calls: 1,
    waitingFor: [],
    workflow: 'w',
    payload: order,
  });
  expect(run.output).toEqual({
    id: 'ch_1',
    at: '1970-01-01T00:00:00.000Z',
    of: order,
    run: 'w',
    key: 'k',
    event: 'order.paid',
  });
  expect(run.steps).toEqual([
    {
      name: 'charge',
      number: 1,
      kind: 'run',
      status: 'completed',
      output: { id: 'ch_1' },
      error: null,
      attempts: 1,
    },
    {
      name: 'at',
      number: 1,
      kind: 'run',
      status: 'completed',
      output: '1970-01-01T00:00:00.000Z',
      error: null,
      attempts: 1,
    },
  ]);
  expect(fake.mock.calls[0]).toMatchObject([
    { attempt: 1, idempotencyKey: expect.stringMatching(/^nelkap_/) },
    { name: 'charge', number: 1 },
  ]);
  expect(charge).not.toHaveBeenCalled();
});

test('a run waits for time and events, and goes on with them', async () => {
  const w = nelkap.workflow('w', async (of: Order) => {
    await step.sleep('cool off', '3 days');
    const approved = await step.waitForEvent('approved', {
      event: 'order.approved',
      match: { 'payload.id': of.id },
      timeout: '7d',
    });
    return approved?.payload ?? 'given up';
  });
  const now = '2027-01-01T00:00:00.000Z';
  const run = await testRun(w, order, { now });
  expect(run.status).toBe('waiting');
  expect(run.waitingFor).toEqual([
    { kind: 'sleep', name: 'cool off', number: 1, until: new Date('2027-01-04T00:00:00Z') },
  ]);
  await run.skip('2 days');
  expect(run).toMatchObject({ status: 'waiting', calls: 1, now: new Date('2027-01-03T00:00:00Z') });
  await run.skip('1 day');
  expect(run.waitingFor).toEqual([
    {
      kind: 'event',
      name: 'approved',
      number: 1,
      events: ['order.approved'],
      until: new Date('2027-01-11T00:00:00Z'),
    },
  ]);
  expect(run.steps).toMatchObject([
    { name: 'cool off', status: 'completed' },
    { name: 'approved', status: 'waiting' },
  ]);
  await run.emit({ event: 'order.approved', payload: { id: 'another' } });
  expect(run.status).toBe('waiting');
  await run.emit({ event: 'order.approved', payload: { id: 'o_1' } });
  expect(run).toMatchObject({ status: 'completed', output: { id: 'o_1' } });
  const late = await (await testRun(w, order)).end();
  expect(late.output).toBe('given up');
  const early = await testRun(w, order);
  await early.emit({ event: 'order.approved', payload: { id: 'o_1' } });
  expect(await early.skip()).toMatchObject({ output: { id: 'o_1' } });
  const given = await testRun(w, order, { events: [{ event: 'order.approved', payload: { id: 'o_1' } }] });
  expect(given.events).toEqual([]);
  expect(await given.skip()).toMatchObject({ status: 'completed' });
  await expect(
    (await testRun(nelkap.workflow('x', () => step.waitForEvent('e', { event: 'e' })))).end(),
  ).rejects.toThrow(
    "the run of 'x' waits for the event 'e' ('e'), which no time brings: give it in `events`, or with emit or post",
  );
});

test('the example of the README does what it says', async () => {
  const sendInvoice = nelkap.workflow('send invoice', async (_: string) => {
    const id = await step.run('invoice id', () => crypto.randomUUID());
    await step.run('invoice', () => Promise.reject(new Error('the real one')));
    return id;
  });
  const fulfillOrder = nelkap.workflow({ name: 'fulfill order', once: (of) => of.id }, async (of: Order) => {
    const approved = await step.waitForEvent('approved', {
      event: 'order.approved',
      match: { 'payload.id': of.id },
      timeout: '7d',
    });
    if (approved === null) return 'given up';
    await step.sleep('cool off', '3 days');
    await step.invoke('send invoice', sendInvoice, of.id);
    return 'done';
  });
  const run = await testRun(fulfillOrder, order, { steps: { invoice: () => 'in_1' } });
  expect(run).toMatchObject({ status: 'waiting', waitingFor: [{ kind: 'event', name: 'approved' }] });
  await run.emit({ event: 'order.approved', payload: { id: 'o_1' } });
  await run.skip('3 days');
  expect(run.output).toBe('done');
  expect(run.steps.map(({ name, kind }) => [name, kind])).toEqual([
    ['approved', 'event'],
    ['cool off', 'sleep'],
    ['send invoice', 'invoke'],
  ]);
});

test('pauses of retries pass in virtual time, as the server makes them', async () => {
  const at: number[] = [];
  const w = nelkap.workflow({ name: 'w', retries: 3 }, async () => {
    const early = await step.run('after', ({ attempt }) => {
      if (attempt === 1) throw new RetryAfterError('busy', '1h');
      return attempt;
    });
    const failed = await step
      .run('throws', { retries: 2 }, ({ log }) => {
        log.info('tries');
        throw new TypeError('no');
      })
      .catch((error: Error & { attempts: number }) => [error.name, error.message, error.attempts]);
    const final = await step
      .run('final', () => Promise.reject(new NonRetriableError('never')))
      .catch(() => 'caught');
    at.push(at.length);
    if (at.length < 3) throw new Error('code outside steps');
    return [early, failed, final];
  });
  const startedAt = performance.now();
  const run = await testRun(w, undefined, { now: new Date(0) });
  expect(run.output).toEqual([2, ['TypeError', 'no', 3], 'caught']);
  expect(run.now.getTime()).toBe(hours + 1_000 + 2_000 + 1_000 + 2_000);
  expect(
    run.steps.map(({ name, status, attempts, error }) => [name, status, attempts, error?.message]),
  ).toEqual([
    ['after', 'completed', 2, undefined],
    ['throws', 'failed', 3, 'no'],
    ['final', 'failed', 1, 'never'],
  ]);
  expect(performance.now() - startedAt).toBeLessThan(30_000);
  const fails = await testRun(
    nelkap.workflow({ name: 'f', retries: 1 }, () => {
      throw new RangeError('no');
    }),
  );
  expect(fails).toMatchObject({ status: 'failed', error: { name: 'RangeError', message: 'no' }, calls: 2 });
});

test('children are played, faked, or refused where nothing is known of them', async () => {
  const child = nelkap.workflow('child', async (n: number) => {
    await step.sleep('nap', '1h');
    return step.run('double', () => n * 2);
  });
  const ref = nelkap.ref<Workflow<number, number>>('child');
  const calls = (of: Workflow<number, number>) =>
    nelkap.workflow('w', () =>
      step.invoke('double', of, 4).catch((error: Error) => [error.name, error.message]),
    );
  const run = await testRun(calls(child));
  expect(run).toMatchObject({
    status: 'waiting',
    waitingFor: [{ kind: 'invoke', name: 'double', until: null }],
  });
  expect(run.others).toMatchObject([{ workflow: 'child', status: 'waiting' }]);
  expect(await run.skip('1h')).toMatchObject({ output: 8 });
  expect(await testRun(calls(ref), undefined, { workflows: { child: (n: number) => n * 3 } })).toMatchObject({
    output: 12,
  });
  expect((await (await testRun(calls(ref), undefined, { workflows: { child } })).end()).output).toBe(8);
  const fails = (): never => {
    throw new TypeError('no');
  };
  expect(await testRun(calls(ref), undefined, { workflows: { child: fails } })).toMatchObject({
    output: ['TypeError', 'no'],
  });
  await expect(testRun(calls(ref))).rejects.toThrow(
    "the step 'double' invokes 'child', of which the kit has a reference only",
  );
  await expect(testRun(ref as Workflow, 1)).rejects.toThrow("workflow 'child' is a reference");
});

test('what the kit does not play is said, and can be faked', async () => {
  const w = nelkap.workflow('w', () =>
    step.run('plan', { retries: 0 }, async () => {
      const { id } = await nelkap.schedules.put('s_1', { workflow: nelkap.ref('w'), schedule: '@daily' });
      return id;
    }),
  );
  expect((await testRun(w)).error?.message).toBe(
    'the kit does not play PUT /v1/schedules/s_1: give the step a fake',
  );
  expect((await testRun(w, undefined, { steps: { plan: () => 's_1' } })).output).toBe('s_1');
});

test('a child that takes too long is cancelled', async () => {
  const child = nelkap.workflow('child', () => step.sleep('nap', '1d'));
  const w = nelkap.workflow('w', () =>
    step.invoke('child', child, undefined, { timeout: '1h' }).catch((error: Error) => error.name),
  );
  const run = await testRun(w);
  await run.skip('1h');
  expect(run.output).toBe('TimeoutError');
  expect(run.others).toMatchObject([{ status: 'cancelled' }]);
});

test('keys have one owner, which may be another run', async () => {
  const claims = nelkap.workflow('claims', () => step.claim('one', 'k'));
  expect(await testRun(claims)).toMatchObject({ output: true });
  expect(await testRun(claims, undefined, { claimed: ['k'] })).toMatchObject({ output: false });
  const once = nelkap.workflow({ name: 'once', once: () => 'k' }, () => 'ran');
  const run = await testRun(once);
  expect(run).toMatchObject({ status: 'completed', output: 'ran', steps: [] });
  expect(await testRun(once, undefined, { claimed: ['k'] })).toMatchObject({
    status: 'skipped',
    output: undefined,
  });
  expect(await run.replay()).toMatchObject({ status: 'completed', output: 'ran' });
  const parent = nelkap.workflow('parent', () =>
    step.invoke('child', once).catch((error: Error & { owner: string }) => [error.name, error.owner]),
  );
  expect(await testRun(parent, undefined, { claimed: ['k'] })).toMatchObject({
    output: ['RunSkippedError', 'run_other'],
  });
});

test('a key is freed when its owner has failed, or after its time', async () => {
  const claims = (until: 'failed' | '1d', fails: boolean) =>
    nelkap.workflow({ name: 'claims', retries: 0 }, async () => {
      const mine = await step.claim('one', 'k', { until });
      if (mine && fails) throw new Error('no');
      return mine;
    });
  const w = nelkap.workflow('w', async (child: string) => {
    const one = nelkap.ref<Workflow<void, boolean>>(child);
    const first = await step.invoke('first', one).catch(() => 'failed');
    await step.sleep('wait', '1h');
    const second = await step.invoke('second', one).catch(() => 'failed');
    await step.sleep('wait on', '1d');
    return [first, second, await step.invoke('third', one).catch(() => 'failed')];
  });
  const workflows = {
    'until it failed': claims('failed', true),
    'until failed, not failing': claims('failed', false),
    'for a day': claims('1d', false),
  };
  const outputs = Object.entries(workflows).map(async ([name, claim]) => {
    const run = await testRun(w, name, { workflows: { [name]: claim } });
    return (await run.end()).output;
  });
  expect(await Promise.all(outputs)).toEqual([
    ['failed', 'failed', 'failed'],
    [true, false, false],
    [true, false, true],
  ]);
});

test('a callback is posted to once', async () => {
  const sent: string[] = [];
  const w = nelkap.workflow('w', async () => {
    const approval = await step.callback<{ by: string }>('approval', { timeout: '1d' });
    await step.run('mail', () => sent.push(approval.url));
    return approval.wait();
  });
  const run = await testRun(w);
  expect(run.waitingFor).toMatchObject([{ kind: 'callback', name: 'approval' }]);
  await run.post(sent[0] as string, { by: 'me' });
  expect(run.output).toEqual({ by: 'me' });
  await expect(run.post('approval', {})).rejects.toThrow("no callback 'approval' is open");
  expect(await (await testRun(w)).end()).toMatchObject({ status: 'completed', output: null });
});

test('a cancelled run ends, and its steps are told', async () => {
  const aborted = vi.fn();
  const waits = await testRun(nelkap.workflow('waits', () => step.sleep('s', '1d')));
  expect(await waits.cancel()).toMatchObject({ status: 'cancelled', waitingFor: [] });
  const w = nelkap.workflow('w', () =>
    step.run(
      'a',
      ({ signal }) =>
        new Promise((_, reject) =>
          signal.addEventListener('abort', () => (aborted(), reject(signal.reason))),
        ),
    ),
  );
  const hangs = async (context: { signal: AbortSignal }): Promise<void> => {
    context.signal.addEventListener('abort', aborted);
    await hang();
  };
  const run = await testRun(w, undefined, { steps: { a: hangs } });
  expect(run).toMatchObject({ status: 'running', waitingFor: [{ kind: 'run', name: 'a' }] });
  await run.cancel();
  expect(aborted).toHaveBeenCalledTimes(1);
  expect(await run.skip('30s')).toMatchObject({ status: 'cancelled' });
  const self = nelkap.workflow('self', async (_: unknown, { run: { id } }) => {
    await step.run('cancel', async () => void (await nelkap.cancel(id)));
    await step.run('never', () => 1);
  });
  expect(await testRun(self)).toMatchObject({ status: 'cancelled' });
  const on = nelkap.workflow(
    { name: 'on', cancelOn: { event: 'order.cancelled', if: 'payload.id == "o_1"' } },
    () => step.sleep('s', '1d'),
  );
  const cancelled = await testRun(on);
  await cancelled.emit({ event: 'order.cancelled', payload: { id: 'o_2' } });
  expect(cancelled.status).toBe('waiting');
  expect(await cancelled.emit({ event: 'order.cancelled', payload: { id: 'o_1' } })).toMatchObject({
    status: 'cancelled',
  });
});

test('timeouts of steps, waits and runs pass in virtual time', async () => {
  const slow = nelkap.workflow('slow', () =>
    step.run('a', { timeout: '30s', retries: 1 }, () => 1).catch((error: Error) => error.message),
  );
  const run = await testRun(slow, undefined, { steps: { a: hang }, now: new Date(0) });
  await run.skip('29s');
  expect(run.status).toBe('running');
  await run.end();
  expect(run.output).toBe("step 'a' took longer than its timeout of 30000 ms");
  expect(run.now.getTime()).toBe(61_000);
  expect(run.step('a')).toMatchObject({ status: 'failed', attempts: 2 });

  const race = nelkap.workflow('race', () =>
    step.race([step.run('a', () => 'a'), step.sleep('limit', '3 days').then(() => 'too long')]),
  );
  const raced = await testRun(race, undefined, { steps: { a: hang } });
  expect(await raced.end()).toMatchObject({ status: 'completed', output: 'too long' });

  const limited = nelkap.workflow({ name: 'limited', timeout: '2h' }, () =>
    step.waitForEvent('e', { event: 'e' }),
  );
  const over = await (await testRun(limited)).end();
  expect(over).toMatchObject({
    status: 'failed',
    error: { name: 'TimeoutError', message: 'the run did not end within its timeout' },
  });
});

test('what a step starts and emits is deduplicated by its place, its key or its id', async () => {
  const other = nelkap.workflow('other', (n: number) => n);
  const w = nelkap.workflow('w', async () => {
    const sent = await step.run('sends', async ({ attempt }) => {
      const runs = [
        await nelkap.run(other, 1),
        await nelkap.run(other, 2),
        await nelkap.run(other, 3, { key: 'k' }),
      ];
      const events = await nelkap.emit([
        { event: 'a', payload: 1 },
        { event: 'a', payload: 2 },
        { event: 'b', payload: 1, id: 'x' },
      ]);
      if (attempt < 3) throw new Error('once more');
      return [...runs, ...events].map(({ created }) => created);
    });
    return [
      sent,
      await step.run('again', async () => (await nelkap.run(other, 4, { key: 'k' })).payloadDiffers),
    ];
  });
  const run = await testRun(w);
  expect(run.output).toEqual([[false, false, false, false, false, false], true]);
  expect(run.others.map(({ payload, output }) => [payload, output])).toEqual([
    [1, 1],
    [2, 2],
    [3, 3],
  ]);
  expect(run.events.map(({ event, payload, id }) => [event, payload, id.slice(0, 1)])).toEqual([
    ['a', 1, 'e'],
    ['a', 2, 'e'],
    ['b', 1, 'x'],
  ]);
  const swaps = nelkap.workflow('swaps', () =>
    step
      .run('sends', async ({ attempt }) => {
        for (const payload of attempt === 1 ? [1, 2] : [2, 1]) await nelkap.emit({ event: 'a', payload });
        throw new Error('once more');
      })
      .catch((error: Error) => error.message),
  );
  expect((await testRun(swaps)).output).toContain('give each an id or a key');
});

test('a replay runs every step again, or those from a step on', async () => {
  const body = vi.fn((name: string) => name);
  const check = vi.fn(() => undefined as string | undefined);
  const w = nelkap.workflow('w', async (n: number) => [
    n,
    await step.run('a', () => body('a')),
    await step.run('b', { check }, ({ idempotencyKey }) => (body('b'), idempotencyKey)),
  ]);
  const run = await testRun(w, 1);
  expect(check).not.toHaveBeenCalled();
  const whole = await run.replay({ payload: 2 });
  expect(whole.output?.[0]).toBe(2);
  expect(whole.output?.[2]).not.toBe(run.output?.[2]);
  expect(check).toHaveBeenCalledTimes(1);
  body.mockClear();
  const from = await run.replay({ from: 'b' });
  expect(from.output).toEqual(run.output);
  expect(body.mock.calls).toEqual([['b']]);
  check.mockReturnValueOnce('found');
  expect((await run.replay()).output?.[2]).toBe('found');
  await expect(run.replay({ from: 'c' })).rejects.toThrow("the run has no saved step 'c' to replay from");
});

test('a check can be faked, and a payload is checked by the schema', async () => {
  const w = nelkap.workflow(
    { name: 'w', payload: z.object({ id: z.string(), n: z.number().default(3) }) },
    async ({ id, n }) =>
      step.run('a', { check: () => 'real' as string | undefined }, ({ attempt }) => {
        if (attempt === 1) throw new Error('once more');
        return `${id} ${n}`;
      }),
  );
  expect(await testRun(w, { id: 'x' })).toMatchObject({ output: 'real' });
  expect(await testRun(w, { id: 'x' }, { steps: { a: { check: () => undefined } } })).toMatchObject({
    output: 'x 3',
  });
  expect(await testRun(w, { id: 5 } as never)).toMatchObject({
    status: 'failed',
    error: { name: 'PayloadError' },
  });
  await expect(
    testRun(
      nelkap.workflow('x', async (n: unknown) => n),
      1n,
    ),
  ).rejects.toThrow('payload is a bigint');
});

test.each([
  ['payload.total > 4 && payload.id in ["o_1", "o_2"]', true],
  ["payload.id.startsWith('o_') && event.event == 'e' && !(payload.total != 5)", true],
  ['has(payload.note) || payload.list[1].n <= -1.5', true],
  [
    'payload["id"].contains("_") && payload.id.endsWith("1") && payload.total >= 5 && payload.total < 6e0',
    true,
  ],
  ['payload.missing == 1', false],
  ['payload.missing == 1 || true', true],
  ['payload.id > 4', false],
  ['payload.total', false],
  ['payload.nothing == null && payload.list == [{"n": 1}]', null],
  ['event.createdAt > timestamp("2026-01-01T00:00:00Z")', null],
  ['payload.total + 1 > 5', null],
  ['payload.list.exists(x, x.n > 0)', null],
  ['payload.total > ', null],
  ['payload.id == "a\\n"', null],
  ['payload.total > 0x10', null],
])('the filter %s gives %s', async (filter, gives) => {
  const w = nelkap.workflow(
    'w',
    async () => (await step.waitForEvent('e', { event: 'e', if: filter })) !== null,
  );
  const event = {
    event: 'e',
    payload: { id: 'o_1', total: 5, nothing: null, list: [{ n: 1 }, { n: -1.5 }] },
  };
  const tried = testRun(w).then((run) => run.emit(event));
  if (gives === null) {
    await expect(tried).rejects.toThrow(`the wait 'e': the kit does not evaluate the filter "${filter}"`);
    const own = await testRun(w, undefined, {
      events: [event],
      filters: { [filter]: ({ payload }) => (payload as Order).total === 5 },
    });
    expect(own.status).toBe('completed');
  } else expect((await tried).status).toBe(gives ? 'completed' : 'waiting');
});

test('a wait takes each event once, and none that started the run', async () => {
  const w = nelkap.workflow('w', async () => {
    const [a, b] = await Promise.all([
      step.waitForEvent('a', { event: 'e' }),
      step.waitForEvent('b', { event: 'e' }),
    ]);
    return [a?.payload, b?.payload];
  });
  const run = await testRun(w, 0, { event: 'e' });
  await run.emit({ event: 'e', payload: 1, id: 'one' });
  await run.emit({ event: 'e', payload: 1, id: 'one' });
  expect(run.status).toBe('waiting');
  await run.emit({ event: 'e', payload: 2, at: new Date(run.now.getTime() + 1_000) });
  expect(run.status).toBe('waiting');
  expect(await run.skip('1s')).toMatchObject({ output: [1, 2] });
});

test('news reaches a call that is open', async () => {
  const w = nelkap.workflow('w', () =>
    Promise.race([
      step.run('slow', () => 'slow'),
      step.waitForEvent('stop', { event: 'stop' }).then(() => 'stopped'),
    ]),
  );
  const run = await testRun(w, undefined, { steps: { slow: hang } });
  await run.emit({ event: 'stop', payload: null });
  expect(await run.end()).toMatchObject({ status: 'completed', output: 'stopped', calls: 1 });
});

test('worlds know nothing of each other, nor of fake timers', async () => {
  const w = nelkap.workflow('w', async (n: number) => {
    await step.sleep('s', n);
    return step.run('a', async () => (await new Promise(setImmediate), n));
  });
  const runs = await Promise.all(
    [1, 2, 3].map(async (n) => (await testRun(w, n, { now: new Date(0) })).end()),
  );
  expect(runs.map(({ output, now }) => [output, now.getTime()])).toEqual([
    [1, 1],
    [2, 2],
    [3, 3],
  ]);
  // As jest does, which fakes microtasks too.
  vi.useFakeTimers({ toFake: ['setTimeout', 'setImmediate', 'queueMicrotask', 'Date'] });
  try {
    const faked = nelkap.workflow('faked', async () => {
      await step.sleep('s', '1d');
      return step.run('a', () => 'done');
    });
    expect(await (await testRun(faked)).end()).toMatchObject({ output: 'done' });
  } finally {
    vi.useRealTimers();
  }
});

test('a workflow that goes round in circles, and an option that there is not, are refused', async () => {
  const child: Workflow<number, unknown> = nelkap.workflow('child', (n: number) =>
    step.invoke('again', nelkap.ref<Workflow<number, unknown>>('child'), n + 1),
  );
  await expect(testRun(child, 1)).rejects.toThrow("the run of 'child' took more than 5000 calls");
  await expect(testRun(child, 1, { step: {} } as never)).rejects.toThrow(
    "testRun has the option 'step', which there is not",
  );
  await expect(testRun(child, 1, { now: 'noon' })).rejects.toThrow('now is no time');
});
