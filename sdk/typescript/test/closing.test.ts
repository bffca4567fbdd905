import { expect, test, vi } from 'vitest';
import { z } from 'zod';
import { type Failure, NonRetriableError, type WorkflowContext } from '../src/index.js';
import { shared } from '../src/shell/process.js';
import { callOf, play, requestOf } from './app.js';
import { nelkap, server } from './stage.js';

function items(): any[] {
  return server.paths('/v1/saves').flatMap((seen) => seen.body.saves.flatMap((save: any) => save.items));
}

const named = (each: any): string => `${each.op} ${each.name} ${each.number}`;

/** Puts numbers to entries. */
function history(...entries: object[]): { entries: object[] } {
  return {
    entries: entries.map((entry, at) => ({
      entry: at + 1,
      kind: 'run',
      number: 1,
      status: 'completed',
      ...entry,
    })),
  };
}

const failed = {
  reason: 'failed',
  error: { name: 'CardError', message: 'declined', fields: { code: 'c_1' } },
};
const giveBack = { kind: 'undo', name: 'give back' };

test('an undo is saved where the code says it, and its function does not run', async () => {
  const undo = vi.fn();
  const w = nelkap.workflow('w', async () => {
    await nelkap.step.undo('give back', undo);
    await nelkap.step.run('give back', () => 1);
    return nelkap.step.run('take', () => 2);
  });
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ output: 2 });
  // The undo's body has the second count of its name.
  expect(items().map(named)).toEqual(['undo give back 1', 'completed give back 3', 'completed take 1']);
  expect(undo).not.toHaveBeenCalled();
});

test('in a closing the undo runs as a step, with what the saved steps gave', async () => {
  const take = vi.fn(() => 'hold_2');
  const later = vi.fn();
  const undo = vi.fn(async (_hold: string, key: string) => {
    await nelkap.emit({ event: 'given.back', payload: key });
    return key;
  });
  const w = nelkap.workflow('w', async () => {
    const hold = await nelkap.step.run('take', take);
    await nelkap.step.undo('give back', ({ idempotencyKey }) => undo(hold, idempotencyKey));
    await nelkap.run(nelkap.ref('other'), 1);
    await nelkap.step.run('later', later);
  });
  const steps = history({ name: 'take', output: 'hold_1' }, giveBack);
  const message = callOf('w', { steps, ending: { ...failed, entries: 2 } });
  const answer = await play(nelkap.handler({ workflows: [w] }), message);
  expect(answer).toMatchObject({ type: 'completed' });
  expect(answer).not.toHaveProperty('output');
  expect(answer).not.toHaveProperty('unasked');
  expect(undo).toHaveBeenCalledExactlyOnceWith('hold_1', expect.stringMatching(/^nelkap_/));
  expect(take).not.toHaveBeenCalled();
  expect(later).not.toHaveBeenCalled();
  expect(items()).toMatchObject([{ op: 'completed', kind: 'run', name: 'give back', number: 2 }]);
  // Sends of code outside steps are not repeated; the undo's is fenced like any step's.
  expect(server.paths('/v1/runs')).toEqual([]);
  expect(server.paths('/v1/events')[0]?.body).toMatchObject({
    send: { call: message.call.id, step: { name: 'give back', number: 2 }, place: 1 },
  });
});

test("an undo that uses the client of its run's context sends", async () => {
  const w = nelkap.workflow('w', async (_: unknown, { nelkap: bound }) => {
    await bound.step.undo('give back', () => bound.emit({ event: 'given.back', payload: 1 }));
  });
  const message = callOf('w', { steps: history(giveBack), ending: { ...failed, entries: 1 } });
  await play(nelkap.handler({ workflows: [w] }), message);
  expect(server.paths('/v1/events')).toHaveLength(1);
});

test('undos run the last first, each once the one before has ended', async () => {
  const order: string[] = [];
  const undo = (name: string): Promise<void> =>
    nelkap.step.undo(name, async () => {
      order.push(`${name} begins`);
      await new Promise((resolve) => setImmediate(resolve));
      order.push(`${name} ends`);
      if (name === 'two') throw new NonRetriableError('no');
    });
  const w = nelkap.workflow('w', async () => {
    await Promise.all([undo('one'), undo('two')]);
    await nelkap.step.sleep('nap', '1h');
  });
  const steps = history({ kind: 'undo', name: 'one' }, { kind: 'undo', name: 'two' });
  const ending = { reason: 'cancelled', entries: 2 };
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w', { steps, ending }))).toMatchObject({
    type: 'completed',
  });
  expect(order).toEqual(['two begins', 'two ends', 'one begins', 'one ends']);
});

test.each(['waits', 'has thrown'])('code that goes on beside what %s is waited for', async (how) => {
  const undo = vi.fn();
  const w = nelkap.workflow('w', async () => {
    const other = async (): Promise<void> => {
      await new Promise<void>((resolve) => void shared().clock.after(50, resolve));
      await nelkap.step.undo('give back', undo);
    };
    const one = nelkap.step.run('one', () => 1);
    await Promise.all([how === 'waits' ? one : Promise.reject(new Error('no')), other()]);
  });
  const message = callOf('w', { steps: history(giveBack), ending: { ...failed, entries: 1 } });
  expect(await play(nelkap.handler({ workflows: [w] }), message)).toMatchObject({ type: 'completed' });
  expect(items().map(named)).toEqual(['completed give back 2']);
  expect(undo).toHaveBeenCalledTimes(1);
});

test('code that does something beside its steps is waited for', async () => {
  const undo = vi.fn();
  const w = nelkap.workflow('w', async () => {
    await new Promise<void>((resolve) => void shared().clock.after(50, resolve));
    await nelkap.step.undo('give back', undo);
    throw new Error('no');
  });
  const message = callOf('w', { steps: history(giveBack), ending: { ...failed, entries: 1 } });
  expect(await play(nelkap.handler({ workflows: [w] }), message)).toMatchObject({ type: 'completed' });
  expect(undo).toHaveBeenCalledOnce();
});

test('a combination that stays open in a closing is none that the run waits for', async () => {
  const w = nelkap.workflow('w', async () => {
    await nelkap.step.undo('give back', () => {
      throw new Error('not now');
    });
    await nelkap.step.all([nelkap.step.sleep('x', '1h'), nelkap.step.sleep('y', '2h')]);
  });
  const message = callOf('w', { steps: history(giveBack), ending: { ...failed, entries: 1 } });
  expect(await play(nelkap.handler({ workflows: [w] }), message)).toMatchObject({
    type: 'suspended',
    waits: [{ retry: { name: 'give back', number: 2 } }],
  });
});

test('onFailure is given what there is of the run, and has steps of its own', async () => {
  const seen = vi.fn();
  const w = nelkap.workflow(
    {
      name: 'w',
      payload: z.object({ id: z.string().transform((id) => id.toUpperCase()) }),
      onFailure: async ({ payload, error, run, steps }, { step }) => {
        seen({ payload, error, run, steps });
        await step.run('take', () => payload.id);
        return step.run('take', () => 'again');
      },
    },
    () => nelkap.step.run('take', () => 1),
  );
  const steps = history({ kind: 'claim', name: '', output: true }, { name: 'take', output: 5 });
  const message = callOf('w', { run: { payload: { id: 'o_1' } }, steps, ending: { ...failed, entries: 2 } });
  const answer = await play(nelkap.handler({ workflows: [w] }), message);
  expect(answer).toMatchObject({ type: 'completed' });
  expect(answer).not.toHaveProperty('output');
  const given = seen.mock.calls[0]?.[0] as Failure<{ id: string }>;
  expect(given.payload).toEqual({ id: 'O_1' });
  expect(given.error).toBeInstanceOf(Error);
  expect(given.error).toMatchObject({ name: 'CardError', message: 'declined', code: 'c_1' });
  expect(given.run).toMatchObject({
    id: message.run.id,
    workflow: 'w',
    app: 'app',
    status: 'failed',
    payload: { id: 'o_1' },
    error: { name: 'CardError' },
    event: null,
    endedAt: null,
  });
  expect(given.steps).toEqual([
    { name: 'take', number: 1, kind: 'run', status: 'completed', output: 5, error: null },
  ]);
  expect(items().map(named)).toEqual(['completed onFailure: take 1', 'completed onFailure: take 2']);
});

test('a payload that does not fit is handed over as it came', async () => {
  const seen = vi.fn();
  const onFailure = ({ payload, error }: Failure<unknown>): void => seen(payload, error.name);
  const w = nelkap.workflow({ name: 'w', payload: z.object({ id: z.string() }), onFailure }, () => {});
  const ending = { reason: 'failed', error: { name: 'PayloadError', message: 'no' }, entries: 0 };
  await play(nelkap.handler({ workflows: [w] }), callOf('w', { run: { payload: { id: 5 } }, ending }));
  expect(seen).toHaveBeenCalledExactlyOnceWith({ id: 5 }, 'PayloadError');
});

test('a handler is given what the run had, whatever the function and its undos made of it', async () => {
  const seen = vi.fn();
  const w = nelkap.workflow(
    {
      name: 'w',
      onFailure: ({ payload, run, steps }: Failure<{ n: number }>, { event }) =>
        seen(structuredClone([payload, run.payload, steps[0]?.output, event?.payload])),
    },
    async (payload: { n: number }, { event }) => {
      const took = await nelkap.step.run('take', () => ({ n: 1 }));
      payload.n = took.n = 2;
      (event as any).payload.n = 2;
      await nelkap.step.undo('give back', () => void (payload.n = took.n = 3));
    },
  );
  const run = { payload: { n: 1 }, event: { id: 'e', event: 'e', payload: { n: 1 }, createdAt: 'x' } };
  const steps = history({ name: 'take', output: { n: 1 } }, giveBack);
  await play(
    nelkap.handler({ workflows: [w] }),
    callOf('w', { run, steps, ending: { ...failed, entries: 2 } }),
  );
  expect(seen).toHaveBeenCalledExactlyOnceWith([{ n: 1 }, { n: 1 }, { n: 1 }, { n: 1 }]);
});

test('onCancel is called for a cancelled run alone, and has no error', async () => {
  const onFailure = vi.fn();
  const onCancel = vi.fn();
  const w = nelkap.workflow({ name: 'w', onFailure, onCancel }, () => {});
  const handler = nelkap.handler({ workflows: [w] });
  await play(handler, callOf('w', { ending: { reason: 'cancelled', entries: 0 } }));
  expect(onFailure).not.toHaveBeenCalled();
  expect(onCancel.mock.calls[0]?.[0]).not.toHaveProperty('error');
  await play(handler, callOf('w', { ending: { ...failed, reason: 'timedOut', entries: 0 } }));
  expect(onFailure).toHaveBeenCalledOnce();
  expect(onCancel).toHaveBeenCalledOnce();
});

test('a handler that throws is tried again as the code is, and waits as it does', async () => {
  const answers: any[] = [];
  const onFailure = async (_: unknown, { step, run }: WorkflowContext): Promise<void> => {
    if (run.attempt === 1) throw new Error('not now');
    await step.sleep('nap', '1h');
  };
  const w = nelkap.workflow({ name: 'w', retries: 2, onFailure }, () => {});
  for (const attempt of [1, 2]) {
    const message = callOf('w', { run: { attempt }, ending: { ...failed, entries: 0 } });
    answers.push(await play(nelkap.handler({ workflows: [w] }), message));
  }
  expect(answers).toMatchObject([
    { type: 'failed', retriable: true, retries: 2, error: { message: 'not now' } },
    { type: 'suspended', waits: [{ wait: { name: 'onFailure: nap', number: 1 } }] },
  ]);
});

test('the function is not played where its undos are done', async () => {
  const fn = vi.fn();
  const onFailure = vi.fn();
  const w = nelkap.workflow({ name: 'w', onFailure }, fn);
  const steps = history(giveBack, {
    name: 'give back',
    number: 2,
    status: 'failed',
    error: { name: 'Error', message: 'no' },
  });
  await play(nelkap.handler({ workflows: [w] }), callOf('w', { steps, ending: { ...failed, entries: 1 } }));
  expect(fn).not.toHaveBeenCalled();
  expect(onFailure).toHaveBeenCalledOnce();
});

test('what a handler gives need not be what JSON can hold', async () => {
  const w = nelkap.workflow({ name: 'w', onFailure: () => new Map([[1, 2n]]) }, () => {});
  const answer = await play(
    nelkap.handler({ workflows: [w] }),
    callOf('w', { ending: { ...failed, entries: 0 } }),
  );
  expect(answer).toMatchObject({ type: 'completed' });
});

test('a key that the run had to own is not claimed in a closing', async () => {
  const once = vi.fn(() => 'k');
  const onFailure = vi.fn();
  const w = nelkap.workflow({ name: 'w', once, onFailure }, () => {});
  await play(nelkap.handler({ workflows: [w] }), callOf('w', { ending: { ...failed, entries: 0 } }));
  expect(once).not.toHaveBeenCalled();
  expect(onFailure).toHaveBeenCalledOnce();
});

test('what makes no sense in a handler or a step is refused there', async () => {
  const said: string[] = [];
  const say = async (promise: Promise<unknown>): Promise<void> =>
    void (await promise.catch((error: Error) => said.push(error.message)));
  const onFailure = async (_: unknown, { step }: WorkflowContext): Promise<void> => {
    await say(step.undo('x', () => {}));
    await say(step.restart(1));
    await say(step.run('n'.repeat(250), () => {}));
  };
  const w = nelkap.workflow({ name: 'w', onFailure }, () =>
    nelkap.step.run('outer', async () => {
      await say(nelkap.step.restart(1));
      await say(nelkap.step.undo('x', () => {}));
    }),
  );
  const other = nelkap.workflow('other', () => say(nelkap.step.run('onCancel: tell', () => {})));
  const handler = nelkap.handler({ workflows: [w, other] });
  await play(handler, callOf('w', { ending: { ...failed, entries: 0 } }));
  await play(handler, callOf('w'));
  await play(handler, callOf('other'));
  expect(said).toEqual([
    "the undo 'onFailure: x' was asked for in onFailure, where the run has ended: there is nothing left that would undo it",
    'step.restart was asked for in onFailure, where the run has ended: start a run of it with nelkap.run in a step',
    'the name of a step has 261 bytes: give one of at most 256',
    "step.restart was called in step 'outer': steps can't hold steps, call it when the step has ended",
    "step 'x' was started in step 'outer': steps can't hold steps, start it beside",
    "the step 'onCancel: tell' has a name that steps of handlers have: give it one that begins otherwise",
  ]);
});

test('handlers are in the manifest', async () => {
  const w = nelkap.workflow({ name: 'w', onFailure: () => {}, onCancel: () => {} }, () => {});
  const response = await nelkap.handler({ workflows: [w] })(requestOf({ type: 'describe' }));
  expect(await response.json()).toMatchObject({
    workflows: [{ name: 'w', onFailure: true, onCancel: true }],
  });
  expect(() => nelkap.workflow({ name: 'w', onCancel: 1 as never }, () => {})).toThrow(
    "onCancel of workflow 'w' is no function",
  );
});

// Rule Z2.
test('a restart ends the call with the new payload, and the code sees nothing of it', async () => {
  const after = vi.fn();
  const w = nelkap.workflow('w', async () => {
    await nelkap.step.run('a', () => 1);
    await nelkap.step.restart({ page: 2 }).finally(after);
  });
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({
    type: 'restarted',
    payload: { page: 2 },
  });
  expect(after).not.toHaveBeenCalled();
});

test('the losers of a restart are aborted', async () => {
  const aborted = vi.fn();
  const w = nelkap.workflow('w', async () => {
    const slow = nelkap.step.run('slow', ({ signal }) => {
      signal.addEventListener('abort', aborted);
      return new Promise<number>(() => {});
    });
    await Promise.race([slow, nelkap.step.run('quick', () => 1)]);
    await nelkap.step.restart(undefined);
  });
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w'));
  expect(answer).toMatchObject({ type: 'restarted' });
  expect(answer).not.toHaveProperty('payload');
  expect(aborted).toHaveBeenCalledOnce();
});

test.each([
  [
    "a value that JSON can't hold",
    { at: { n: 1n } },
    "payload.at.n is a bigint (give a string): JSON can't hold it",
  ],
  [
    'too much',
    'x'.repeat(4 * 1024 * 1024),
    'payload has 4194306 bytes, more than 4194304: store it elsewhere, and give where it is',
  ],
])('%s is no payload to restart with', async (_, payload, message) => {
  const w = nelkap.workflow('w', () => nelkap.step.restart(payload).catch((error: Error) => error.message));
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ output: message });
});

// Rule S7.
test('steps that the code does not ask for are named when it rests, at most twenty of them', async () => {
  const w = nelkap.workflow('w', async () => {
    await nelkap.step.run('kept', () => 1);
    await nelkap.step.sleep('nap', '1h');
  });
  const gone = Array.from({ length: 25 }, (__, at) => ({ name: `gone ${at}` }));
  const steps = history({ kind: 'claim', name: '' }, ...gone, { name: 'kept' });
  const answer = await play(nelkap.handler({ workflows: [w] }), callOf('w', { steps }));
  expect(answer.type).toBe('suspended');
  expect(answer.unasked).toEqual(gone.slice(0, 20).map((each) => ({ ...each, number: 1 })));
});
