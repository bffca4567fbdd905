import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { nelkap, type Workflow } from '../../src/index.js';
import { CrashError, crashEverywhere, type CrashOptions, marks } from '../../src/testing/index.js';

const { step } = nelkap;
const outside = marks();
/** Rows of a fake database, by key. */
const rows = new Map<string, object>();
const before = (): void => rows.clear();
const order = { id: 'o_1' };
type Order = typeof order;

beforeEach(() => void vi.spyOn(console, 'warn').mockImplementation(() => {}));
afterEach(() => void vi.restoreAllMocks());

/** Why a workflow is not safe to run twice. */
async function failureOf(
  workflow: Workflow,
  options: CrashOptions = {},
  payload: unknown = order,
): Promise<string> {
  const error = await crashEverywhere(workflow, payload, { marks: outside, before, ...options }).catch(
    (e) => e,
  );
  expect(error).toBeInstanceOf(CrashError);
  return error.message;
}

async function isSafe(workflow: Workflow, options: CrashOptions = {}): Promise<void> {
  const report = await crashEverywhere(workflow, order, { marks: outside, before, ...options });
  expect(report.cuts).toBeGreaterThan(2);
  expect(report.scenarios).toBeGreaterThan(report.cuts);
}

// What the pages on idempotency teach.

const charge = (of: Order, idempotencyKey?: string) => outside.leave(`charge ${of.id}`, { idempotencyKey });

test('a charge with an idempotency key is safe, and one without is not', async () => {
  const safe = nelkap.workflow('safe', (of: Order) =>
    step.run('charge', () => charge(of, `charge_${of.id}`)),
  );
  const unsafe = nelkap.workflow('unsafe', (of: Order) => step.run('charge', () => charge(of)));
  await isSafe(safe);
  expect(await failureOf(unsafe)).toBe(
    "Call 1 was cut off in the body of 'charge', just after it had left the mark 'charge o_1', and the run was picked up. " +
      "Then the mark 'charge o_1' was left twice: by step 'charge' of 'unsafe' in call 1, then by step 'charge' of 'unsafe' in call 2.\n" +
      'Play this alone with { only: "in time, cut 1" }.',
  );
});

test('the key that every step has covers a crash, but not a replay of the run', async () => {
  const w = nelkap.workflow('w', (of: Order) =>
    step.run('charge', ({ idempotencyKey }) => charge(of, idempotencyKey)),
  );
  await isSafe(w);
  expect(await failureOf(w, { replayed: true })).toMatch(
    /^Nothing was cut off; it was replayed after its end\. Then the mark/,
  );
  await isSafe(
    nelkap.workflow('x', (of: Order) => step.run('charge', () => charge(of, of.id))),
    { replayed: true },
  );
});

test('an upsert is safe, and an insert of a row that is there fails the run', async () => {
  const write = (kind: string) =>
    nelkap.workflow({ name: kind, retries: 1 }, (of: Order) =>
      step.run('contact', () => {
        if (kind === 'insert' && rows.has(of.id)) throw new Error('duplicate key');
        rows.set(of.id, {});
      }),
    );
  const check = (): void => expect(rows.size).toBe(1);
  await isSafe(write('upsert'), { check });
  expect(await failureOf(write('insert'), { check })).toContain(
    'Then the run ended as failed (duplicate key), not as completed: where it may, say so in `mayEnd`',
  );
});

test('an id drawn in a step of its own is safe, and one drawn beside the work is not', async () => {
  const createInvoice = (id: string, of: Order) => {
    if (!rows.has(id)) rows.set(id, of);
  };
  const safe = nelkap.workflow('safe', async (of: Order) => {
    const id = await step.run('invoice id', () => crypto.randomUUID());
    await step.run('invoice', () => createInvoice(id, of));
  });
  const unsafe = nelkap.workflow('unsafe', (of: Order) =>
    step.run('invoice', () => createInvoice(crypto.randomUUID(), of)),
  );
  const drawnOutside = nelkap.workflow('drawn outside', async (of: Order) => {
    const id = crypto.randomUUID();
    await step.run('invoice', () => createInvoice(id, of));
  });
  const check = (): void => expect([...rows.values()]).toEqual([order]);
  await isSafe(safe, { check });
  for (const w of [unsafe, drawnOutside]) {
    const message = await failureOf(w, { check });
    expect(message).toMatch(
      /^Call 1 was cut off after the body of 'invoice' had run and before its result was saved/,
    );
    expect(message).toContain('Then check failed: expected');
  }
});

test('a look before the act is safe, and one that forgets to look, or looks for something else, is not', async () => {
  const createTicket = async (of: Order): Promise<string> => {
    await outside.leave(`ticket ${of.id}`);
    return `ticket of ${of.id}`;
  };
  const find = (of: Order): string | undefined =>
    outside.has(`ticket ${of.id}`) ? `ticket of ${of.id}` : undefined;
  const inside = nelkap.workflow('inside', (of: Order) =>
    step.run('ticket', async () => find(of) ?? createTicket(of)),
  );
  const checks = (look: typeof find) =>
    nelkap.workflow('checks', (of: Order) =>
      step.run('ticket', { check: () => look(of) }, () => createTicket(of)),
    );
  await isSafe(inside);
  await isSafe(checks(find), { replayed: true });
  expect(await failureOf(checks(() => undefined))).toContain("the mark 'ticket o_1' was left twice");
  expect(await failureOf(checks((of) => find({ id: `${of.id}!` })))).toContain('was left twice');
});

test('of two marks in one body the cut comes between them too', async () => {
  const w = nelkap.workflow('w', (of: Order) =>
    step.run('both', async () => {
      if (outside.has('receipt')) return;
      await charge(of);
      await outside.leave('receipt');
    }),
  );
  expect(await failureOf(w)).toMatch(
    /^Call 1 was cut off in the body of 'both', just after it had left the mark 'charge o_1'/,
  );
});

test('runs and events in steps are started and emitted once, and outside steps again and again', async () => {
  const sendInvoice = nelkap.workflow('send invoice', (id: string) =>
    step.run('invoice', ({ idempotencyKey }) => outside.leave(`invoice of ${id}`, { idempotencyKey })),
  );
  const safe = nelkap.workflow('safe', async (of: Order) => {
    await step.run('invoice run', () => nelkap.run(sendInvoice, of.id));
    await step.run('paid event', () => nelkap.emit({ event: 'order.paid', payload: of.id }));
  });
  const check: CrashOptions['check'] = (run) => {
    expect(run.others.map((other) => [other.workflow, other.payload, other.status])).toEqual([
      ['send invoice', 'o_1', 'completed'],
    ]);
    expect(run.events.map(({ event, payload }) => [event, payload])).toEqual([['order.paid', 'o_1']]);
  };
  await isSafe(safe, { check });
  const runs = nelkap.workflow('runs', async (of: Order) => {
    await nelkap.run(sendInvoice, of.id);
    await step.run('a', () => 1);
  });
  const emits = nelkap.workflow('emits', async (of: Order) => {
    await nelkap.emit({ event: 'order.paid', payload: of.id });
    await step.run('a', () => 1);
  });
  expect(await failureOf(runs)).toContain("the mark 'invoice of o_1' was left twice");
  expect(await failureOf(emits)).toContain(
    "Then the event 'order.paid' was emitted 2 times by code of 'emits' outside its steps: place it in a step.",
  );
  const keyed = nelkap.workflow('keyed', async (of: Order) => {
    await nelkap.emit({ event: 'order.paid', payload: of.id, id: `paid ${of.id}` });
    await nelkap.run(sendInvoice, of.id, { key: of.id });
    await step.run('a', () => 1);
  });
  await isSafe(keyed, { check });
});

test('one run per order: by once, by a claim, by a row of the database; and without them, not', async () => {
  const email = (of: Order) =>
    step.run('email', ({ idempotencyKey }) => outside.leave(`email ${of.id}`, { idempotencyKey }));
  const once = nelkap.workflow(
    { name: 'once', once: (of: Order) => of.id },
    async (of: Order) => void (await email(of)),
  );
  const claims = nelkap.workflow('claims', async (of: Order) => {
    if (await step.claim('one per order', of.id)) await email(of);
  });
  const row = nelkap.workflow('row', async (of: Order, { run }) => {
    const owner = await step.run('claim', () => {
      if (!rows.has(of.id)) rows.set(of.id, { run: run.id });
      return rows.get(of.id) as { run: string };
    });
    if (owner.run === run.id) await email(of);
  });
  const all = nelkap.workflow('all', async (of: Order) => void (await email(of)));
  for (const w of [once, claims, row]) await isSafe(w, { startedTwice: true });
  await isSafe(all);
  expect(await failureOf(all, { startedTwice: true })).toMatch(
    /^Nothing was cut off; the run was started twice\. Then the mark 'email o_1'/,
  );
});

// What the kit finds beside.

test('a mark that code outside steps leaves is found', async () => {
  const w = nelkap.workflow('w', async (of: Order) => {
    await outside.leave(`email ${of.id}`);
    await step.run('a', () => 1);
  });
  expect(await failureOf(w)).toContain(
    "by code of 'w' outside its steps in call 1, then by code of 'w' outside its steps in call 2",
  );
});

test('a step that runs at most once is cut off and says so', async () => {
  const w = nelkap.workflow('w', (of: Order) => step.run('charge', { atMostOnce: true }, () => charge(of)));
  expect(await failureOf(w)).toContain("the run ended as failed (The step 'charge' was cut off while it ran");
  await isSafe(w, { mayEnd: ['completed', 'failed'] });
});

const events = [{ event: 'order.approved', payload: order }];

test('events come early, late and twice', async () => {
  const names = new Set<string>();
  const w = nelkap.workflow('w', async (of: Order) => {
    await step.run('a', () => 1);
    const approved = await step.waitForEvent('approved', {
      event: 'order.approved',
      match: { 'payload.id': of.id },
      timeout: '7d',
    });
    if (approved === null) return 'given up';
    await step.run('charge', ({ idempotencyKey }) => charge(of, idempotencyKey));
    return 'charged';
  });
  const check: CrashOptions['check'] = (run, { name }) => {
    names.add(name.replace(/\d+$/, 'n'));
    expect(run.output).toBe('charged');
    expect(run.events).toHaveLength(name.startsWith('twice') ? 2 : 1);
  };
  await isSafe(w, { events, check });
  expect([...names]).toEqual(
    ['in time', 'early', 'late', 'twice'].flatMap((timing) => [`${timing}, uncut`, `${timing}, cut n`]),
  );
});

test('a second event that is taken for the next one is found', async () => {
  const w = nelkap.workflow('w', async () => {
    for (const who of ['first', 'second']) {
      await step.waitForEvent('approval', { event: 'order.approved' });
      await step.run(`note ${who}`, () => outside.has('one') || outside.leave('one'));
    }
  });
  const check: CrashOptions['check'] = (run) => {
    const taken = run.steps
      .filter(({ kind }) => kind === 'event')
      .map(({ output }) => (output as any).payload);
    expect(taken).toEqual([1, 2]);
  };
  const both = [1, 2].map((payload) => ({ event: 'order.approved', payload }));
  expect(await failureOf(w, { events: both, check })).toMatch(
    /^Nothing was cut off; each event came twice\./,
  );
  await isSafe(w, { events: both, check, timings: ['in time', 'early', 'late'] });
});

test('an event that comes late loses a race against a sleep, and is not needed then', async () => {
  const w = nelkap.workflow('w', async () => {
    const approved = step.waitForEvent('approved', { event: 'order.approved' }).then(() => 'approved');
    return step.race([approved, step.sleep('limit', '1d').then(() => 'too late')]);
  });
  const outputs = new Set<string>();
  await isSafe(w, {
    events,
    check: (run, { name }) => void outputs.add(`${name.split(',')[0]}: ${run.output}`),
  });
  expect([...outputs]).toEqual(['in time: approved', 'early: approved', 'late: too late', 'twice: approved']);
});

test('a wait that counts events from its own start gets what came early once more', async () => {
  const w = nelkap.workflow('w', async () => {
    await step.run('a', () => 1);
    return (await step.waitForEvent('approved', { event: 'order.approved', since: 'wait' }))?.payload;
  });
  await isSafe(w, { events, check: (run) => expect(run.output).toEqual(order) });
});

test('a callback is posted to before the code waits, when it does, and a second time in vain', async () => {
  const w = nelkap.workflow('w', async () => {
    const approval = await step.callback<string>('approval', { timeout: '1d' });
    await step.run('mail the link', ({ idempotencyKey }) => outside.leave('mail', { idempotencyKey }));
    return approval.wait();
  });
  await isSafe(w, {
    events: [{ callback: 'approval', payload: 'yes' }],
    check: (run) => expect(run.output).toBe('yes'),
  });
});

test('children and runs beside are cut off too', async () => {
  const child = nelkap.workflow('child', (n: number) => step.run('act', () => outside.leave(`act ${n}`)));
  const w = nelkap.workflow('w', () => step.all([1, 2].map((n) => step.invoke(`child ${n}`, child, n))));
  expect(await failureOf(w)).toMatch(
    /^Call \d of 'child' was cut off in the body of 'act', just after it had left the mark 'act 1'/,
  );
});

test('a step that throws, is retried and cut off in any attempt is tried as often as without', async () => {
  const w = nelkap.workflow('w', async (of: Order) => {
    await step.run('flaky', async ({ attempt, idempotencyKey }) => {
      if (attempt < 3) throw new Error(`attempt ${attempt}`);
      await charge(of, idempotencyKey);
      return attempt;
    });
    await step.sleep('pause', '3 days');
  });
  await isSafe(w, {
    check: (run) => expect(run.step('flaky')).toMatchObject({ status: 'completed', output: 3, attempts: 3 }),
  });
});

test('steps side by side are cut off with each other', async () => {
  const w = nelkap.workflow('w', (of: Order) =>
    Promise.all(
      ['a', 'b', 'c'].map((name) =>
        step.run(name, ({ idempotencyKey }) => outside.leave(`${name} ${of.id}`, { idempotencyKey })),
      ),
    ),
  );
  await isSafe(w, { check: () => expect(outside.count()).toBe(3) });
});

// The kit itself.

test('every place where a call can be cut off is told in words', async () => {
  const w = nelkap.workflow({ name: 'w', once: (of: Order) => of.id }, async (of: Order) => {
    await outside.leave('begun', { idempotencyKey: 'begun' });
    await step.run('charge', ({ idempotencyKey }) => charge(of, idempotencyKey));
    await step.sleep('nap', '1h');
    await step.claim('mine', of.id);
    await Promise.allSettled([
      step.run('fails', { retries: 0 }, () => Promise.reject(new Error('no'))),
      step.sleep('beside', '1h'),
    ]);
  });
  const stories: string[] = [];
  const check: CrashOptions['check'] = (run, { story }) => {
    stories.push(story.replace(/^(Call \d was cut off )?/, '').replace(', and the run was picked up.', ''));
    expect(run).toMatchObject({ status: 'completed' });
    expect(run.steps.map(({ name }) => name).sort()).toEqual(['beside', 'charge', 'fails', 'mine', 'nap']);
    expect(run.calls).toBe(stories.length === 1 ? 3 : 4);
  };
  await crashEverywhere(w, order, { marks: outside, before, check });
  expect(stories).toEqual([
    'Nothing was cut off.',
    "before the claim of its 'once' was saved",
    "after the claim of its 'once' was saved and before the app heard of it",
    "in code outside steps, just after it had left the mark 'begun'",
    "in the body of 'charge', just after it had left the mark 'charge o_1'",
    "after the body of 'charge' had run and before its result was saved",
    "before the result of 'charge' was saved",
    "after the result of 'charge' was saved and before the app heard of it",
    'after the code had come to wait and before its answer arrived',
    "before the claim 'mine' was saved",
    "after the claim 'mine' was saved and before the app heard of it",
    "before the wait 'beside' was saved",
    "after the wait 'beside' was saved and before the app heard of it",
    "after the body of 'fails' had run and before its result was saved",
    "before the failure of 'fails' was saved",
    "after the failure of 'fails' was saved and before the app heard of it",
    'after the code had come to wait and before its answer arrived',
    'after the code had returned and before its answer arrived',
  ]);
});

test('in a call that was cut off no further function begins', async () => {
  const began = vi.fn();
  const w = nelkap.workflow('w', () =>
    Promise.all([
      step.run('a', ({ idempotencyKey }) => outside.leave('a', { idempotencyKey })),
      step.run('b', began),
    ]),
  );
  await crashEverywhere(w, order, {
    marks: outside,
    only: 'in time, cut 1',
    before: () => void began.mockClear(),
  });
  expect(began).toHaveBeenCalledTimes(1);
});

test('a run that is cancelled ends so, wherever it is cut off', async () => {
  const w = nelkap.workflow('w', async (_: Order, { run }) => {
    await step.run('cancel', async () => void (await nelkap.cancel(run.id)));
    await step.run('never', () => outside.leave('never'));
  });
  await isSafe(w, { check: (run) => expect(run.status).toBe('cancelled') });
  expect(outside.count()).toBe(0);
});

test('a function that nothing stops runs on after its call was cut off, and its run is picked up when it has ended', async () => {
  const trace: string[] = [];
  const w = nelkap.workflow('w', async () => {
    await Promise.all([
      step.run('quick', () => new Promise<void>((resolve) => void setImmediate(resolve))),
      step.run('slow', async ({ signal }) => {
        trace.push('begins');
        await new Promise((resolve) => setTimeout(resolve, 5));
        trace.push(signal.aborted ? 'aborted' : 'ends');
      }),
    ]);
    trace.push('goes on');
  });
  await crashEverywhere(w, order, { before: () => void (trace.length = 0), only: 'in time, cut 1' });
  expect(trace).toEqual(['begins', 'ends', 'begins', 'ends', 'goes on']);
});

test('a scenario plays alone by its name', async () => {
  const stories: string[] = [];
  const w = nelkap.workflow('w', async (of: Order) => {
    await step.run('a', () => 1);
    await step.run('charge', () => charge(of));
  });
  const check: CrashOptions['check'] = (_, { story }) => void stories.push(story);
  const message = await failureOf(w, { check });
  const [, only] = /only: "(.*)"/.exec(message) as unknown as [string, string];
  stories.length = 0;
  expect(await failureOf(w, { check, only })).toBe(message);
  expect(stories).toEqual(['Nothing was cut off.']);
  await expect(crashEverywhere(w, order, { only: 'in time, uncut', marks: outside })).resolves.toMatchObject({
    scenarios: 1,
    cuts: 0,
  });
  await expect(crashEverywhere(w, order, { only: 'never' })).rejects.toThrow("there is no scenario 'never'");
});

test('the same failure is found in the same scenario every time', async () => {
  const w = nelkap.workflow('w', async (of: Order) => {
    await Promise.all([step.run('a', () => 1), step.run('b', () => 2), step.sleep('s', '1h')]);
    await step.run('charge', () => charge(of));
  });
  const [first, ...others] = [await failureOf(w), await failureOf(w), await failureOf(w)];
  expect(others).toEqual([first, first]);
});

test('a run that never ends fails with what it waits for', async () => {
  const w = nelkap.workflow('w', () => step.waitForEvent('approved', { event: ['yes', 'no'] }));
  expect(await failureOf(w)).toBe(
    "Nothing was cut off. Then the run of 'w' waits for the event 'yes' or 'no' ('approved'), which no time brings: " +
      'give it in `events`, or with emit or post.\nPlay this alone with { only: "in time, uncut" }.',
  );
});

test('what is too much is said', async () => {
  const w = nelkap.workflow('w', async () => {
    for (let n = 0; n < 10; n++) await step.run('a', () => n);
  });
  await expect(crashEverywhere(w, order, { scenariosMax: 5 })).rejects.toThrow(
    'there are more than 5 scenarios',
  );
  await expect(crashEverywhere(w, order, { stepsMax: 25 })).rejects.toThrow(
    'more than 25 functions of steps ran, in 2 scenarios',
  );
});

test('marks tell who left them', async () => {
  const w = nelkap.workflow('w', (of: Order) => step.run('charge', () => charge(of)));
  outside.clear();
  await outside.leave('by hand');
  await failureOf(w, { only: 'in time, cut 1' });
  expect(outside.list).toEqual([
    { mark: 'charge o_1', step: 'charge', workflow: 'w', call: 1 },
    { mark: 'charge o_1', step: 'charge', workflow: 'w', call: 2 },
  ]);
  expect(outside.count('charge o_1')).toBe(2);
});
