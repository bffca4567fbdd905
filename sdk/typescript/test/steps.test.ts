import { expect, test, vi } from 'vitest';
import {
  RunCancelledError,
  RunSkippedError,
  StepCutOffError,
  StepError,
  StepInterruptedError,
  TimeoutError,
  type Step,
  type Workflow,
} from '../src/index.js';
import { callOf, play } from './app.js';
import { nelkap, server } from './stage.js';

/** Plays a workflow's function in one call. */
async function playOnce(fn: (step: Step, payload: any) => unknown, parts: object = {}): Promise<any> {
  const w = nelkap.workflow('w', (payload: any, { step }) => fn(step, payload) as null);
  return play(nelkap.handler({ workflows: [w] }), callOf('w', parts));
}

function items(): any[] {
  return server.paths('/v1/saves').flatMap((seen) => seen.body.saves.flatMap((save: any) => save.items));
}

function entry(kind: string, more: object = {}): object {
  return { entry: 1, kind, name: 'x', number: 1, status: 'completed', ...more };
}

test.each<[string, (step: Step) => unknown, object]>([
  ['milliseconds', (step) => step.sleep('x', 1_500), { kind: 'sleep', delayMs: 1_500 }],
  ['a text', (step) => step.sleep('x', '3 days'), { kind: 'sleep', delayMs: 259_200_000 }],
  ['an object', (step) => step.sleep('x', { hours: 1 }), { kind: 'sleep', delayMs: 3_600_000 }],
  [
    'a time',
    (step) => step.sleepUntil('x', '2026-01-01T01:00:00+01:00'),
    { kind: 'sleep', until: '2026-01-01T00:00:00.000Z' },
  ],
  [
    'a Date',
    (step) => step.sleepUntil('x', new Date(0)),
    { kind: 'sleep', until: '1970-01-01T00:00:00.000Z' },
  ],
  ['an event', (step) => step.waitForEvent('x', { event: 'e' }), { kind: 'event', events: ['e'] }],
  [
    'all that a wait may have',
    (step) =>
      step.waitForEvent('x', {
        event: ['e', 'f'],
        match: { 'payload.id': 'o_1', 'payload.n': 1, 'payload.ok': true, 'payload.none': null },
        if: "payload.by != ''",
        timeout: '7d',
        since: 'wait',
      }),
    {
      kind: 'event',
      events: ['e', 'f'],
      match: { 'payload.id': 'o_1', 'payload.n': 1, 'payload.ok': true, 'payload.none': null },
      if: "payload.by != ''",
      timeoutMs: 604_800_000,
      since: 'wait',
    },
  ],
  [
    'a child',
    (step) =>
      step.invoke(
        'x',
        nelkap.workflow('child', (n: number) => n),
        7,
        { timeout: '1m' },
      ),
    { kind: 'invoke', workflow: 'child', payload: 7, app: 'shop', timeoutMs: 60_000 },
  ],
  [
    'a child of another app',
    (step) => step.invoke('x', nelkap.ref('child', { app: 'billing' })),
    { kind: 'invoke', workflow: 'child', app: 'billing' },
  ],
  [
    'a child of whichever app',
    (step) => step.invoke('x', nelkap.ref('child')),
    { kind: 'invoke', workflow: 'child' },
  ],
])('%s is registered when the run suspends', async (_, fn, wait) => {
  expect(await playOnce(fn)).toMatchObject({
    type: 'suspended',
    register: [{ op: 'wait', name: 'x', number: 1, ...wait }],
    waits: [{ wait: { name: 'x', number: 1 } }],
  });
});

test('a child of its own app needs no name of it', async () => {
  const w: Workflow<unknown, unknown> = nelkap.workflow('w', () => nelkap.step.invoke('x', w, 7));
  const message = callOf('w', { run: { app: 'shop' } });
  const answer = await play(nelkap.handler({ workflows: [w] }), message);
  expect(answer.register).toEqual([
    { op: 'wait', kind: 'invoke', workflow: 'w', payload: 7, name: 'x', number: 1 },
  ]);
});

const year = 366 * 86_400_000;

test.each<[(step: any) => Promise<unknown>, string]>([
  [(step) => step.sleep('x', -1), "the sleep 'x' is negative: give 0 or more"],
  [(step) => step.sleep('x', Number.NaN), "the sleep 'x' is no duration: give milliseconds"],
  [(step) => step.sleep('x', '5 minuts'), "the sleep 'x' is no duration: give milliseconds"],
  [(step) => step.sleep('x', year + 1), "the sleep 'x' takes more than a year: sleep several times"],
  [(step) => step.sleep('x', 1, { wsa: 'y' }), "has the option 'wsa'"],
  [(step) => step.sleep('', 1), 'a step needs a name'],
  [(step) => step.sleep('x', 1, { was: '' }), "the former name of the sleep 'x' needs a name"],
  [(step) => step.sleepUntil('x', 'soon'), "the end of the sleep 'x' is no time: give a Date"],
  [(step) => step.sleepUntil('x', new Date(Date.now() + 2 * year)), 'takes more than a year'],
  [(step) => step.waitForEvent('x'), 'needs a name'],
  [(step) => step.waitForEvent('x', { event: [] }), 'needs the name of an event: give at least one'],
  [(step) => step.waitForEvent('x', { event: 'e', since: 'ever' }), "since of the wait 'x' is neither"],
  [
    (step) => step.waitForEvent('x', { event: 'e', if: 5 }),
    "if of the wait 'x' is no text: give a condition",
  ],
  [
    (step) => step.waitForEvent('x', { event: 'e', match: { 'payload.a': {} } }),
    "no plain value at 'payload.a'",
  ],
  [
    (step) => step.waitForEvent('x', { event: 'e', match: { payload: Number.NaN } }),
    "no plain value at 'payload'",
  ],
  ...['', 'id', 'Payload.id', 'payload.', 'payload..id', 'payload.\n', 'payloads'].map(
    (path): [(step: any) => unknown, string] => [
      (step) => step.waitForEvent('x', { event: 'e', match: { [path]: 1 } }),
      `no plain value at '${path}': give a path such as 'payload.id' a text`,
    ],
  ),
  [
    (step) => step.waitForEvent('x', { event: 'e', match: { 'payload.id': 'é'.repeat(2_048) } }),
    "the value at 'payload.id' in match of the wait 'x' has 4098 bytes: give one of at most 4096",
  ],
  [
    (step) => step.waitForEvent('x', { event: 'e', match: { ['p'.repeat(257)]: 1 } }),
    "a path in match of the wait 'x' has 257 bytes: give one of at most 256",
  ],
  [
    (step) =>
      step.waitForEvent('x', {
        event: 'e',
        match: Object.fromEntries('abcdefghijk'.split('').map((path) => [path, 1])),
      }),
    "match of the wait 'x' has 11 paths: give at most 10",
  ],
  [
    (step) => step.waitForEvent('x', { event: Array.from({ length: 17 }, () => 'e') }),
    "the wait 'x' names 17 events: give at most 16",
  ],
  [
    (step) => step.waitForEvent('x', { event: 'e', if: `payload.id == '${'x'.repeat(4_096)}'` }),
    "if of the wait 'x' has 4112 bytes: give one of at most 4096, and decide the rest in the workflow",
  ],
  [(step) => step.waitForEvent('x', { event: 'e', timeout: 'x' }), "timeout of the wait 'x' is no duration"],
  [(step) => step.invoke('x', {}), 'this is no workflow: make one with nelkap.workflow'],
  [(step) => step.invoke('x', nelkap.ref('c'), { deep: [1n] }), 'payload.deep[0] is a bigint'],
  [
    (step) => step.invoke('x', nelkap.ref('c'), 'x'.repeat(4 * 1024 * 1024)),
    'payload has 4194306 bytes, more than 4194304: store it elsewhere, and give where it is',
  ],
  [(step) => step.invoke('x', nelkap.ref('c'), 1, { timeuot: 1 }), "has the option 'timeuot'"],
  [(step) => step.claim('x', ''), "the key of the claim 'x' is no text: give one that is not empty"],
  [(step) => step.claim('x', 5), "the key of the claim 'x' is no text"],
  [(step) => step.claim('x', 'é'.repeat(257)), 'has 514 bytes: give one of at most 512, such as a hash'],
  [
    (step) => step.claim('x', 'k\ud83d'),
    "the key of the claim 'x' has half a character in it: give whole ones",
  ],
  [(step) => step.claim('x', 'k', { until: 'never' }), "until of the claim 'x' is no duration"],
  [(step) => step.claim('x', 'k', { until: '6000 weeks' }), "until of the claim 'x' is over 100 years"],
  [(step) => step.callback('x', { timeout: -1 }), "timeout of the callback 'x' is negative"],
  [(step) => step.run('x', { check: 1 }, () => 1), "check of step 'x' is no function"],
  [(step) => step.run('x', function* () {}), "the function of step 'x' is a generator function (function*)"],
  [(step) => step.run('x', { check: async function* () {} }, () => 1), "check of step 'x' is a generator"],
  [(step) => step.undo('x', function* () {}), "the function of the undo 'x' is a generator function"],
  [
    (step) => step.run('x', { atMostOnce: true, retries: 2 }, () => 1),
    'it has no retries: leave one of the two out',
  ],
])('what is wrong is said in a sentence: %s', async (fn, text) => {
  const answer = await playOnce((step) => fn(step).catch((error: Error) => error.message));
  expect(answer).toMatchObject({ type: 'completed', output: expect.stringContaining(text) });
  expect(items()).toEqual([]);
});

test('steps of every kind are refused in a step and outside a run, and there combinators are native', async () => {
  const { step } = nelkap;
  const each = (): Promise<unknown>[] => [
    step.sleep('x', 1),
    step.sleepUntil('x', new Date(0)),
    step.waitForEvent('x', { event: 'e' }),
    step.invoke('x', nelkap.ref('c')),
    step.claim('x', 'k'),
    step.callback('x'),
  ];
  const messages = async (): Promise<string[]> =>
    (await Promise.allSettled(each())).map((settled: any) => settled.reason.message);
  for (const message of await messages())
    expect(message).toMatch(/^step\.\w+\('x'\) was called outside a workflow/);
  const answer = await playOnce(() => step.run('outer', messages));
  expect(answer.output).toEqual(
    Array(6).fill("step 'x' was started in step 'outer': steps can't hold steps, start it beside"),
  );
  expect(await step.all([1, Promise.resolve(2)])).toEqual([1, 2]);
});

// A saved step is not played again: what it asked for would be missing in the counts of names then.
test("steps of the run's context are refused in a step likewise, and so is the wait of a callback", async () => {
  const answer = await playOnce(async (step) => {
    const callback = await step.callback('approval');
    return step.run('outer', async () => {
      const asked = [step.run('x', () => 1), step.restart(1), callback.wait()];
      return (await Promise.allSettled(asked)).map((settled: any) => settled.reason.message);
    });
  });
  expect(answer.output).toEqual([
    "step 'x' was started in step 'outer': steps can't hold steps, start it beside",
    "step.restart was called in step 'outer': steps can't hold steps, call it when the step has ended",
    "wait() of the callback 'approval' was called in step 'outer': steps can't hold steps, call it beside",
  ]);
});

// Rule E2.
test('an event comes as it was stored, and null when the time ran out', async () => {
  const event = { id: 'evt_1', event: 'e', payload: { id: 1 }, createdAt: '2026-01-01T00:00:00.000Z' };
  for (const output of [event, null]) {
    const steps = { entries: [entry('event', { output })] };
    expect(await playOnce((step) => step.waitForEvent('x', { event: 'e' }), { steps })).toMatchObject({
      output,
    });
  }
});

test.each<[object, new (...args: never[]) => Error, object]>([
  [{ name: 'TypeError', message: 'no', stack: 's', cause: { name: 'Deep', message: 'd' } }, StepError, {}],
  [
    { name: 'RunSkippedError', message: 'skipped', fields: { owner: 'run_2' } },
    RunSkippedError,
    { owner: 'run_2' },
  ],
  [{ name: 'RunCancelledError', message: 'cancelled' }, RunCancelledError, {}],
  [{ name: 'TimeoutError', message: 'too long' }, TimeoutError, {}],
  [{ name: 'StepCutOffError', message: 'cut off' }, StepCutOffError, {}],
])('what became of a child is thrown: %j', async (error, type, more) => {
  let caught: any;
  const steps = { entries: [entry('invoke', { status: 'failed', error, attempts: 1 })] };
  const answer = await playOnce(
    (step) => step.invoke('x', nelkap.ref('c')).catch((thrown) => Promise.reject((caught = thrown))),
    { steps },
  );
  expect(caught).toBeInstanceOf(type);
  const { cause, fields: _, ...plain } = error as { cause?: object; fields?: object };
  expect(caught).toMatchObject({ ...plain, ...more, step: 'x', attempts: 1 });
  if (cause !== undefined) expect(caught.cause).toMatchObject(cause);
  // S2: uncaught, it ends the run.
  expect(answer).toMatchObject({ type: 'failed', retriable: false, error: plain });
});

// Rule K4.
test.each([true, false])('a claim is answered: %s', async (isOurs) => {
  if (!isOurs) server.claimed.add('k');
  expect(await playOnce((step) => step.claim('x', 'k'))).toMatchObject({ type: 'completed', output: isOurs });
  expect(items()).toEqual([{ op: 'claim', kind: 'claim', key: 'k', name: 'x', number: 1 }]);
});

test.each([
  ['forever', {}],
  ['failed', { until: 'failed' }],
  ['1 day', { forMs: 86_400_000 }],
  // 0 in the protocol is for ever.
  [0, { forMs: 1 }],
])('a claim is held until: %s', async (until, sent) => {
  await playOnce((step) => step.claim('x', 'k', { until: until as 'failed' }));
  expect(items()).toEqual([{ op: 'claim', kind: 'claim', key: 'k', name: 'x', number: 1, ...sent }]);
});

test('once claims the key before the code plays, and another run is skipped', async () => {
  const fn = vi.fn(({ id }: { id: string }) => id);
  const w = nelkap.workflow({ name: 'w', once: (p: { id: string }) => p.id }, fn);
  const handler = nelkap.handler({ workflows: [w] });
  const run = { payload: { id: 'o_1' } };
  expect(await play(handler, callOf('w', { run }))).toMatchObject({ type: 'completed', output: 'o_1' });
  expect(items()).toEqual([{ op: 'claim', kind: 'claim', name: '', number: 1, key: 'o_1', once: true }]);
  server.claimed.add('o_1');
  expect(await play(handler, callOf('w', { run }))).toMatchObject({ type: 'over' });
  expect(fn).toHaveBeenCalledTimes(1);
});

test.each<[string, (payload: any) => any, string]>([
  [
    'throws',
    (payload) => payload.order.id,
    "'once' of workflow 'w' gave no key for this payload: Cannot read",
  ],
  ['gives a number', () => 5, "the key that 'once' of workflow 'w' gave is no text"],
  ['gives a promise', async () => 'k', "the key that 'once' of workflow 'w' gave is no text"],
  ['gives too much', () => 'x'.repeat(513), 'has 513 bytes: give one of at most 512'],
  ['gives half a character', () => '😀'.slice(0, 1), 'has half a character in it: give whole ones'],
])('a once that %s fails the run, and its code never plays', async (_, once, text) => {
  const fn = vi.fn(() => 1);
  const handler = nelkap.handler({ workflows: [nelkap.workflow({ name: 'w', once }, fn)] });
  const answer = await play(handler, callOf('w', { run: { payload: {} } }));
  expect(answer).toMatchObject({ type: 'failed', retriable: false });
  expect(answer.error.message).toContain(text);
  expect(fn).not.toHaveBeenCalled();
  // What was claimed once is not asked again, whatever a new version makes of the payload.
  const entries = [entry('claim', { name: '', output: true })];
  expect(await play(handler, callOf('w', { run: { payload: {} }, steps: { entries } }))).toMatchObject({
    type: 'completed',
  });
});

test('a callback is made at once, and its wait is a step of its own', async () => {
  const fn = async (step: Step): Promise<unknown> => {
    const callback = await step.callback<string>('x', { timeout: '1d' });
    const [one, two] = await Promise.all([callback.wait(), callback.wait()]);
    return [callback.url, callback.token, one, two];
  };
  expect(await playOnce(fn)).toMatchObject({
    type: 'suspended',
    register: [{ op: 'wait', kind: 'callback', of: 1, name: 'x', number: 2 }],
  });
  expect(items()).toEqual([
    { op: 'callback', kind: 'callback', timeoutMs: 86_400_000, name: 'x', number: 1 },
  ]);
  const made = entry('callback', { output: { url: 'u', token: 't' } });
  for (const [output, got] of [
    [{ payload: 'yes' }, 'yes'],
    [null, null],
  ]) {
    const entries = [made, entry('callback', { entry: 2, number: 2, output })];
    expect(await playOnce(fn, { steps: { entries } })).toMatchObject({ output: ['u', 't', got, got] });
  }
});

// Rule S7.
test.each<[string, object[], (step: Step) => Promise<unknown>]>([
  ['a wait', [entry('callback', { output: { payload: 1 } })], (step) => step.callback('x')],
  ['a wait that came to nothing', [entry('callback', { output: null })], (step) => step.callback('x')],
  [
    'another callback',
    [1, 2].map((number) => entry('callback', { entry: number, number, output: { url: 'u', token: 't' } })),
    async (step) => (await step.callback('x')).wait(),
  ],
])('a callback whose number is that of %s stops the run', async (_, entries, fn) => {
  expect(await playOnce(fn, { steps: { entries } })).toMatchObject({
    type: 'failed',
    retriable: false,
    error: {
      name: 'StepKindError',
      message: expect.stringContaining('give the new ones a name of their own'),
    },
  });
});

test('a renamed callback keeps its old name for its wait', async () => {
  const made = entry('callback', { output: { url: 'u', token: 't' } });
  const answer = await playOnce(async (step) => (await step.callback('y', { was: 'x' })).wait(), {
    steps: { entries: [made] },
  });
  expect(answer.register).toEqual([{ op: 'wait', kind: 'callback', of: 1, name: 'x', number: 2 }]);
});

test('a renamed step that was cut off keeps its old name: it has begun', async () => {
  await playOnce((step) => step.run('y', { atMostOnce: true, was: 'x' }, () => 1), {
    steps: { begun: [{ name: 'x', number: 1 }] },
  });
  expect(items()[0]).toMatchObject({ op: 'start', name: 'x', once: true });
});

test('a renamed step that was cut off, and has begun under its new name too, keeps that', async () => {
  const begun = [
    { name: 'x', number: 1 },
    { name: 'y', number: 1 },
  ];
  await playOnce((step) => step.run('y', { atMostOnce: true, was: 'x' }, () => 1), { steps: { begun } });
  expect(items()[0]).toMatchObject({ op: 'start', name: 'y', once: true });
});

// Rule S7.
test('a step that says it was what it is takes no result of another', async () => {
  const second = { ...entry('run', { output: 2 }), number: 2 };
  const same = (step: Step, value: number) => step.run('x', { was: 'x' }, () => value);
  const answer = await playOnce((step) => Promise.all([same(step, 1), same(step, 3)]), {
    steps: { entries: [second] },
  });
  expect(answer.output).toEqual([1, 2]);
});

// Rule H4.
test('our combinators hand over their tree, nested; others and native ones their leaves', async () => {
  const trees = async (fn: (step: Step) => unknown): Promise<unknown> => (await playOnce(fn)).waits;
  const leaf = (name: string): object => ({ wait: { name, number: 1 } });
  const nap = (step: Step, name: string): Promise<void> => step.sleep(name, 1);
  expect(
    await trees((step) => step.race([step.all([nap(step, 'a'), nap(step, 'b')]), nap(step, 'c')])),
  ).toEqual([{ race: [{ all: [leaf('a'), leaf('b')] }, leaf('c')] }]);
  expect(await trees((step) => step.any([nap(step, 'a'), nap(step, 'b').then(() => 1)]))).toEqual([
    leaf('a'),
    leaf('b'),
  ]);
  expect(await trees((step) => step.all([nap(step, 'a'), 5, null]))).toEqual([leaf('a')]);
  expect(await trees((step) => Promise.all([nap(step, 'a'), step.all([nap(step, 'b')])]))).toEqual([
    leaf('a'),
    { all: [leaf('b')] },
  ]);
});

test('our combinators give what the native ones do', async () => {
  const fail = (): Promise<never> => Promise.reject(new Error('no'));
  const answer = await playOnce(async (step) => {
    const run = (name: string, fn: () => unknown = () => name): Promise<any> =>
      step.run(name, { retries: 0 }, fn);
    return [
      await step.all([run('a'), run('b')]),
      await step.any([run('c', fail), run('d')]),
      await step.all([run('e', fail), run('f')]).catch((error) => error.message),
      await step.any([run('g', fail)]).catch((error) => error.name),
      await step.all([]),
    ];
  });
  expect(answer.output).toEqual([['a', 'b'], 'd', 'no', 'AggregateError', []]);
});

// Rule S4.
test('a check looks before a repeat, and its find is saved in place of a result', async () => {
  const body = vi.fn(() => 'made');
  const check = vi.fn(({ attempt }: { attempt: number }) => (attempt === 1 ? 'found' : undefined));
  const run = (step: Step): Promise<string> => step.run('x', { check }, body);
  expect(await playOnce(run)).toMatchObject({ output: 'made' });
  expect(check).not.toHaveBeenCalled();
  server.started.add('x');
  expect(await playOnce(run)).toMatchObject({ output: 'found' });
  expect(body).toHaveBeenCalledTimes(1);
  expect(items().map(({ op }) => op)).toEqual(['start', 'completed', 'start', 'completed']);
  const retrying = [{ name: 'x', number: 1, attempt: 1, retryInMs: 0 }];
  expect(await playOnce(run, { steps: { retrying } })).toMatchObject({ output: 'made' });
});

test('a check that takes too long fails the attempt, and one whose find is no JSON fails the step', async () => {
  server.started.add('x');
  const body = vi.fn();
  const slow = await playOnce((step) =>
    step
      .run('x', { check: () => new Promise<never>(() => {}), timeout: '1s', retries: 0 }, body)
      .catch((error: Error) => error.message),
  );
  expect(slow.output).toBe("the check of step 'x' took longer than its timeout of 1000 ms");
  const find = await playOnce((step) =>
    step
      .run('x', { check: () => [new Map()] as unknown as string }, body)
      .catch((error: Error) => error.message),
  );
  expect(find.output).toMatch(/^What the check of step 'x' found can't be saved: find\[0\] is a Map/);
  expect(body).not.toHaveBeenCalled();
});

test('a check sends nothing', async () => {
  server.started.add('x');
  const answer = await playOnce((step) =>
    step.run(
      'x',
      {
        check: ({ nelkap: bound }) =>
          bound.emit({ event: 'e', payload: 1 }).catch((error: Error) => error.message),
      },
      () => 1,
    ),
  );
  expect(answer.output).toBe("the check of step 'x' only looks: send from the step's function");
  expect(server.paths('/v1/events')).toEqual([]);
});

// Rule S5.
test('a step that runs at most once has no retries, and one that was cut off throws', async () => {
  const run = (step: Step): unknown =>
    step
      .run('x', { atMostOnce: true }, () => Promise.reject(new Error('no')))
      .catch((error: Error) => error.message);
  expect(await playOnce(run)).toMatchObject({ output: 'no' });
  expect(items()).toMatchObject([
    { op: 'start', once: true },
    { op: 'failed', retries: 0 },
  ]);
  let caught: unknown;
  const error = { name: 'StepInterruptedError', message: 'cut off' };
  const steps = { entries: [entry('run', { status: 'failed', error })] };
  await playOnce(
    (step) => step.run('x', { atMostOnce: true }, () => 1).catch((thrown) => void (caught = thrown)),
    { steps },
  );
  expect(caught).toBeInstanceOf(StepInterruptedError);
  expect(caught).toBeInstanceOf(StepError);
});

// Rules C7, H2.
test('a playing that waits beside a body polls, and is told what its waits have come to', async () => {
  let finish: ((value: string) => void) | undefined;
  const w = nelkap.workflow('w', async (_: unknown, { step }) => {
    const body = step.run('a', () => new Promise<string>((resolve) => (finish = resolve)));
    const first = await Promise.race([body, step.sleep('nap', '1s').then(() => 'slept')]);
    finish?.('late');
    return [first, await body];
  });
  const message = callOf('w');
  const answer = play(nelkap.handler({ workflows: [w] }), message);
  await server.until(() => server.paths('/v1/heartbeats').length > 0);
  expect(server.paths('/v1/heartbeats')[0]?.body.calls).toMatchObject([{ call: message.call.id, seen: 0 }]);
  const nap = { entry: 1, kind: 'sleep', name: 'nap', number: 1, status: 'completed' };
  server.entries.set(message.call.id, [nap]);
  server.tell({ call: message.call.id, status: 'entries', entries: [nap] });
  expect(await answer).toMatchObject({ type: 'completed', output: ['slept', 'late'] });
});

test('the manifest has triggers with their filters, schedules, and what cancels', async () => {
  const on = [
    { event: 'e', if: 'payload.total > 0' },
    { webhook: 'shop', if: 'true' },
    { schedule: '0 9 * * 1-5', timezone: 'Europe/Berlin', catchUp: 'last' },
    { schedule: '@daily' },
  ] as const;
  const cancelOn = { event: 'order.cancelled', if: 'payload.final' };
  const w = nelkap.workflow({ name: 'w', on, cancelOn }, () => 1);
  const plain = nelkap.workflow('plain', () => 1);
  const { workflows } = await play(nelkap.handler({ workflows: [w, plain] }), { type: 'describe' });
  expect(workflows).toEqual([{ name: 'plain' }, { name: 'w', triggers: on, cancelOn: [cancelOn] }]);
});

test.each<[object, string]>([
  [{ on: { schedule: '' } }, "the schedule that starts workflow 'w' is no text: give a cron expression"],
  [{ on: { schedule: '@daily', timezone: 5 } }, 'timezone of the schedule'],
  [
    { on: { schedule: '@daily', catchUp: 'some' } },
    "catchUp of the schedule that starts workflow 'w' is none of",
  ],
  [{ on: { event: 'e', if: '' } }, "if of the event that starts workflow 'w' is no text"],
  [{ cancelOn: { schedule: '@daily' } }, "the event that cancels workflow 'w' has the option 'schedule'"],
  [{ cancelOn: [{}] }, "the event that cancels workflow 'w' needs a name"],
  [{ once: 'x' }, "once of workflow 'w' is no function"],
  [{ timeout: 3_155_760_000_001 }, "timeout of workflow 'w' is over 100 years: give less, or leave it out"],
  [{ lease: { days: 36_526 } }, "lease of workflow 'w' is over 100 years"],
  [{ timeout: 0 }, "timeout of workflow 'w' is 0: give more, or leave it out"],
  [{ onFailure: function* () {} }, "onFailure of workflow 'w' is a generator function (function*)"],
])('a workflow with %j is refused', (options, text) => {
  expect(() => nelkap.workflow({ name: 'w', ...options } as never, () => 1)).toThrow(text);
});

test.each([function* () {}, async function* () {}])('%s is no function of a workflow', (fn) => {
  expect(() => nelkap.workflow('w', fn as never)).toThrow(
    "the function of workflow 'w' is a generator function (function*), which would not run: give a function, or an async one",
  );
});

test('a reference says what it is', () => {
  expect(() => nelkap.ref('')).toThrow('a workflow needs a name');
  expect(() => nelkap.ref('w', { app: '' })).toThrow('an app needs a name');
  expect(() => nelkap.ref('w', { ap: 'x' } as never)).toThrow("has the option 'ap'");
});
