import { expect, test } from 'vitest';
import type { Input } from '../src/core/effect.js';
import { Playing } from '../src/core/playing.js';
import { Encoded } from '../src/core/text.js';
import { answerOf, asks, done, entryOf, instants, one, Played } from './played.js';
import { wholeCall } from './transcript.js';

test('a pause that ends while a sibling runs starts the next attempt in this call', () => {
  const played = new Played();
  played.ask('a', 'b');
  expect(done(played.rest())).toEqual(['body', 'body']);
  played.apply({ on: 'threw', id: 0, attempt: 1, error: one, retriable: true, ...instants });
  expect(done(played.save([{ status: 'retrying', attempt: 1, retryInMs: 500 }]))).toEqual(['pause']);
  expect(played.apply({ on: 'due', name: 'a', number: 1 })).toMatchObject([
    { do: 'body', id: 0, attempt: 2 },
  ]);
});

// Rule S6.
test('an attempt that is replaced can not settle its step any more', () => {
  const played = new Played();
  played.ask('a', 'b');
  played.rest();
  played.apply({ on: 'threw', id: 0, attempt: 1, error: one, retriable: true, ...instants });
  played.save([{ status: 'retrying', attempt: 1, retryInMs: 500 }]);
  played.apply({ on: 'due', name: 'a', number: 1 });
  expect(played.returned(0, 1)).toEqual([]);
  expect(done(played.returned(0, 2))).toEqual(['save']);
});

// Rules W9, H1.
test('entries are released one at a time, in the history order', () => {
  const entries = ['b', 'c', 'a'].map((name, at) => ({
    entry: at + 1,
    kind: 'run',
    name,
    number: 1,
    status: 'completed',
  }));
  const played = new Played({ steps: { entries } });
  played.ask('a', 'b', 'c');
  const released = [played.rest(), played.rest(), played.rest()].map((effects) => effects[0]);
  expect(released.map((effect: any) => effect.entry.name)).toEqual(['b', 'c', 'a']);
  expect(played.rest()).toEqual([]);
});

// Rule H1.
test('what a save brings along is released before what it saved', () => {
  const played = new Played();
  played.ask('a', 'b');
  played.rest();
  played.returned(1);
  const entry = { entry: 1, kind: 'run', name: 'a', number: 1, status: 'completed', output: 5 };
  const effects = played.save([{ status: 'saved', entry: 2 }], { entries: [entry] });
  expect(effects[0]).toMatchObject({ do: 'release', id: 0, entry: { output: 5 } });
  expect(played.rest()[0]).toMatchObject({ do: 'release', id: 1 });
});

test('a big item travels alone, and the items of one call keep their order', () => {
  const played = new Played();
  played.ask('a', 'b', 'c', 'd');
  played.rest();
  const big = new Encoded(JSON.stringify('x'.repeat(300_000)));
  for (const [id, output] of [one, big, one, one].entries())
    played.apply({ on: 'returned', id, attempt: 1, output, ...instants });
  const sizes: number[] = [];
  for (let save = played.playing.nextSave(); save !== null; save = played.playing.nextSave()) {
    sizes.push(save.items.length);
    expect(played.playing.nextSave()).toBeNull();
    const items = save.items.map((_, at) => ({ status: 'saved' as const, entry: sizes.length * 10 + at }));
    played.apply({ on: 'saved', outcome: { status: 'accepted', items, entries: [], ending: null } });
  }
  expect(sizes).toEqual([1, 1, 2]);
});

// Rule C3.
test('a save that was not accepted comes again unchanged', () => {
  const played = new Played();
  played.ask('a');
  played.rest();
  played.returned(0);
  const first = played.playing.nextSave();
  played.apply({ on: 'unsent' });
  const second = played.playing.nextSave();
  expect(second).toBe(first);
  expect(played.apply({ on: 'saved', outcome: { status: 'later' } })).toEqual([{ do: 'save', pause: true }]);
  expect(played.playing.nextSave()).toBe(first);
});

// Rule H6.
test('losers of a race are aborted, and given up after their allowance', () => {
  const played = new Played();
  played.ask('a', 'b');
  played.rest();
  played.returned(0);
  played.save([{ status: 'saved', entry: 1 }]);
  expect(done(played.apply({ on: 'completed', output: one }))).toEqual(['abort', 'allow']);
  expect(played.rest()).toEqual([]);
  expect(played.apply({ on: 'threw', id: 9, attempt: 1, error: one, retriable: true, ...instants })).toEqual(
    [],
  );
  const told = played.apply({ on: 'allowance over' });
  expect(told).toMatchObject([{ do: 'tell', left: [{ name: 'b', number: 1, attempt: 1 }] }, { do: 'rest' }]);
  expect(answerOf(played.rest())).toMatchObject({ type: 'completed', output: 1 });
});

// Rule H7.
test('a loser that stops in time ends the call at once, and what it threw is no failure', () => {
  const played = new Played();
  played.ask('a', 'b');
  played.rest();
  played.apply({ on: 'completed', output: one });
  played.rest();
  played.apply({ on: 'threw', id: 0, attempt: 1, error: one, retriable: true, ...instants });
  expect(answerOf(played.returned(1))).toBeUndefined();
  expect(played.playing.nextSave()?.items).toMatchObject([{ name: 'b', op: 'completed' }]);
  expect(
    answerOf(
      played.apply({ on: 'saved', outcome: { status: 'accepted', items: [{ status: 'saved', entry: 1 }] } }),
    ),
  ).toMatchObject({ type: 'completed' });
});

// Rule H6.
test('code that throws and is tried again waits for its bodies, and aborts none', () => {
  const played = new Played();
  played.ask('a');
  played.rest();
  expect(played.apply({ on: 'failed', error: one, retriable: true })).toEqual([]);
  played.returned(0);
  expect(answerOf(played.save([{ status: 'saved', entry: 1 }]))).toMatchObject({
    type: 'failed',
    retriable: true,
    retries: 4,
  });
});

// Rule Z1.
test('no body starts after the run began to end', () => {
  const played = new Played();
  played.ask('a');
  expect(done(played.apply({ on: 'news', status: 'ending', ending: { reason: 'timedOut' } }))).toEqual([
    'abort',
  ]);
  expect(answerOf(played.rest())).toEqual({ type: 'yielded', seen: 0, nonce: 'n', manifest: 'm' });
});

test('a start that is refused because the run is ending starts no body', () => {
  const played = new Played({ call: { cuts: 1 } });
  played.ask('a');
  expect(done(played.rest())).toEqual(['save']);
  const effects = played.save([{ status: 'refused' }], { ending: { reason: 'cancelled' } });
  expect(done(effects)).toEqual(['abort', 'answer']);
});

test('a step that the server cut off for good comes as its entry', () => {
  const played = new Played({ call: { cuts: 9 } });
  played.ask('a');
  played.rest();
  const entry = {
    entry: 1,
    kind: 'run',
    name: 'a',
    number: 1,
    status: 'failed',
    error: { name: 'StepCutOffError', message: 'x' },
  };
  expect(played.save([{ status: 'stands' }], { entries: [entry] })[0]).toMatchObject({
    do: 'release',
    entry: { status: 'failed' },
  });
});

// Rule W2.
test.each(['superseded', 'ended'] as const)('%s in a heartbeat stops the playing', (status) => {
  const played = new Played();
  played.ask('a');
  played.rest();
  expect(done(played.apply({ on: 'news', status }))).toEqual(['abort', 'answer', 'over']);
  expect(played.returned(0)).toEqual([]);
  expect(played.playing.nextSave()).toBeNull();
});

// Rule C12.
test('with time running out a call yields after an entry, never before one', () => {
  const played = new Played();
  played.ask('a');
  played.apply({ on: 'hurry', why: 'time' });
  expect(done(played.rest())).toEqual(['body']);
  played.returned(0);
  played.save([{ status: 'saved', entry: 1 }]);
  played.ask('b');
  expect(answerOf(played.rest())).toEqual({ type: 'yielded', seen: 1, nonce: 'n', manifest: 'm' });
});

test.each(['before', 'after'] as const)('a stop %s the time limit is said in the yield', (when) => {
  const played = new Played();
  played.ask('a');
  for (const why of when === 'before' ? (['stopping', 'time'] as const) : (['time', 'stopping'] as const)) {
    played.apply({ on: 'hurry', why });
  }
  const yielded = { type: 'yielded', seen: 0, excused: true };
  expect(answerOf(played.rest())).toEqual({ ...yielded, nonce: 'n', manifest: 'm' });
});

// Rule C11. The host, or whoever stops the process, waits no minute for the server to come back.
test.each([
  ['time', 'before'],
  ['time', 'after'],
  ['stopping', 'before'],
  ['stopping', 'after'],
] as const)(
  'a call that hurries (%s) %s its save fails has its results travel in the answer',
  (why, when) => {
    const played = new Played();
    played.ask('a');
    played.rest();
    played.returned(0);
    played.playing.nextSave();
    const inputs: Input[] = [{ on: 'unsent' }, { on: 'hurry', why }];
    const [first, second] = (when === 'after' ? inputs : inputs.reverse()) as [Input, Input];
    expect(played.apply(first)).toEqual([]);
    const answer = { type: 'yielded', excused: true, unsaved: [{ op: 'completed', name: 'a' }] };
    expect(answerOf(played.apply(second))).toMatchObject(answer);
  },
);

test('a save that fails and then gets through ends no call', () => {
  const played = new Played();
  played.ask('a');
  played.rest();
  played.returned(0);
  played.playing.nextSave();
  played.apply({ on: 'unsent' });
  played.save([{ status: 'saved', entry: 1 }]);
  played.ask('b');
  played.rest();
  expect(done(played.apply({ on: 'hurry', why: 'time' }))).toEqual([]);
  played.returned(1);
  played.save([{ status: 'saved', entry: 2 }]);
  played.apply({ on: 'completed', output: one });
  expect(answerOf(played.rest())).toMatchObject({ type: 'completed' });
});

// Rule S5: the next call would take it for cut off.
test.each(['stopping', 'time'] as const)(
  'a step at most once whose start is recorded runs though its call hurries (%s)',
  (why) => {
    const played = new Played();
    played.ask('a');
    played.rest();
    played.returned(0);
    played.save([{ status: 'saved', entry: 1 }]);
    played.askFor('once', asks.once);
    played.rest();
    played.playing.nextSave();
    played.apply({ on: 'hurry', why });
    expect(played.saved([{ status: 'started' }])).toMatchObject([{ do: 'body', name: 'once' }]);
    played.returned(1);
    expect(answerOf(played.save([{ status: 'saved', entry: 2 }]))).toBeUndefined();
    expect(answerOf(played.rest())).toMatchObject({ type: 'yielded', seen: 2 });
  },
);

test.each([true, false])('so it does where the code throws, if that is tried again: %s', (retriable) => {
  const played = new Played();
  played.askFor('once', asks.once);
  played.rest();
  played.playing.nextSave();
  played.apply({ on: 'failed', error: one, retriable });
  const effects = played.saved([{ status: 'started' }]);
  if (!retriable) return expect(done(effects)).toEqual(['answer']);
  expect(done(effects)).toEqual(['body']);
  played.returned(0);
  expect(answerOf(played.save([{ status: 'saved', entry: 1 }]))).toMatchObject({ type: 'failed', retriable });
});

test('a stop is said in no other answer', () => {
  const played = new Played();
  played.apply({ on: 'hurry', why: 'stopping' });
  played.apply({ on: 'completed', output: one });
  expect(answerOf(played.rest())).toEqual({ type: 'completed', output: 1, nonce: 'n', manifest: 'm' });
});

test('an outcome that this version does not know stops the run, and does not leave it waiting', () => {
  const played = new Played();
  played.ask('a');
  played.rest();
  played.returned(0);
  const answer = answerOf(played.save([{ status: 'postponed' }]));
  expect(answer).toMatchObject({ type: 'failed', error: { name: 'ProtocolError' } });
});

// Rule H5.
test('a page that leads back to itself is a cut: it would be read for ever', () => {
  const played = new Played({ steps: { next: 2 } });
  expect(played.begun).toEqual([{ do: 'fetch', after: 2 }]);
  expect(played.apply({ on: 'page', entries: [], next: 3 })).toEqual([{ do: 'fetch', after: 3 }]);
  expect(done(played.apply({ on: 'page', entries: [], next: 3 }))).toEqual(['cut', 'over']);
});

// Rule C10.
test('an answer that is lost comes through the API', () => {
  const played = new Played();
  played.apply({ on: 'completed', output: undefined });
  expect(answerOf(played.rest())).toMatchObject({ type: 'completed', nonce: 'n' });
  played.apply({ on: 'disconnected' });
  expect(played.apply({ on: 'undelivered' })).toMatchObject([{ do: 'end', message: { type: 'completed' } }]);
  expect(done(played.apply({ on: 'delivered' }))).toEqual(['over']);
});

// Rules S3, S7.
test.each([
  [
    'a step saved as another kind',
    { steps: { entries: [{ entry: 1, kind: 'sleep', name: 'a', number: 1, status: 'completed' }] } },
    ['a'],
    'StepKindError',
  ],
  [
    'more steps than the limit',
    { limits: { steps: 2, resultBytes: 1 } },
    ['a', 'b', 'c'],
    'TooManyStepsError',
  ],
])('%s stops the run before any body', (_, parts, names, name) => {
  const played = new Played(parts);
  played.ask(...names);
  expect(answerOf(played.rest())).toMatchObject({ type: 'failed', retriable: false, error: { name } });
});

test('a save that breaks a rule fails the run with what the server says', () => {
  const played = new Played();
  played.ask('a');
  played.rest();
  played.returned(0);
  played.playing.nextSave();
  const effects = played.apply({ on: 'saved', outcome: { status: 'invalid', detail: 'no such kind' } });
  expect(answerOf(effects)).toMatchObject({
    type: 'failed',
    retriable: false,
    error: { message: expect.stringContaining('no such kind') },
  });
});

test('a call whose connection is closed already binds before its code plays', () => {
  const message = wholeCall({ call: { id: 'c', token: 't' } }, 'w');
  const playing = new Playing(message, { nonce: 'n', manifest: 'm', retries: 4 });
  // C4: it may be played elsewhere by now.
  expect(done(playing.apply({ on: 'start', late: false, connected: false }))).toEqual(['save']);
  expect(playing.nextSave()?.items).toEqual([]);
  const outcome = { status: 'accepted', items: [], entries: [], ending: null } as const;
  expect(done(playing.apply({ on: 'saved', outcome } as never))).toEqual(['play', 'rest']);
});

test('a function that ends when its time runs out completes', () => {
  for (const when of ['before the step', 'before the save', 'after it']) {
    const played = new Played();
    const hurry = (now: string): unknown => now === when && played.apply({ on: 'hurry', why: 'time' });
    played.ask('last');
    played.rest();
    hurry('before the step');
    played.returned(0);
    hurry('before the save');
    played.save([{ status: 'saved', entry: 1 }]);
    hurry('after it');
    const effects = [...played.apply({ on: 'completed', output: one }), ...played.rest()];
    expect(answerOf(effects), when).toMatchObject({ type: 'completed', output: 1 });
  }
});

// Rule Z1.
test('what the function asks for after it rested in a closing is never answered', () => {
  const steps = { entries: [entryOf(1, 'undo', 'x'), entryOf(2, 'run', 'late')] };
  const played = new Played({ steps, ending: { reason: 'cancelled', entries: 2 } });
  played.askFor('x', { op: 'undo', kind: 'undo' });
  expect(done(played.rest())).toEqual(['release', 'rest']);
  played.ask('open');
  expect(played.rest()).toMatchObject([{ do: 'body', id: 0, name: 'x', number: 2, attempt: 1 }]);
  expect(played.ask('late')).toEqual([]);
  expect(played.apply({ on: 'completed', output: one })).toEqual([]);
  played.returned(0);
  played.save([{ status: 'saved', entry: 3 }]);
  expect(answerOf(played.rest())).toEqual({ type: 'completed', nonce: 'n', manifest: 'm' });
});

test('a step that the closing has saved is none that its function is shown', () => {
  const steps = {
    entries: [entryOf(1, 'undo', 'x'), { ...entryOf(2, 'run', 'x'), number: 2 }, entryOf(3, 'undo', 'y')],
  };
  const played = new Played({ steps, ending: { reason: 'cancelled', entries: 1 } });
  // Its undo is done, so that the function is not even played.
  expect(done(played.begun)).toEqual(['answer']);
});

test('a rule that stops the function in a closing stops no undo', () => {
  const steps = { entries: [entryOf(1, 'undo', 'x'), entryOf(2, 'sleep', 'a')] };
  const played = new Played({ steps, ending: { reason: 'cancelled', entries: 2 } });
  played.askFor('x', { op: 'undo', kind: 'undo' });
  played.rest();
  expect(played.ask('a')).toEqual([]);
  expect(done(played.rest())).toEqual(['body']);
});

test('an undo that is due again waits for its pause, and one that is missing does not', () => {
  const steps = {
    entries: [entryOf(1, 'undo', 'x'), entryOf(2, 'undo', 'gone')],
    retrying: [
      { name: 'x', number: 2, attempt: 3, retryInMs: 500 },
      { name: 'gone', number: 2, attempt: 1, retryInMs: 500 },
    ],
  };
  const played = new Played({ steps, ending: { reason: 'cancelled', entries: 2 } });
  played.askFor('x', { op: 'undo', kind: 'undo' });
  played.rest();
  played.apply({ on: 'completed', output: one });
  // Code that goes on beside what rests may still ask for it.
  expect(played.rest()).toMatchObject([{ do: 'allow' }]);
  expect(played.apply({ on: 'allowance over' })).toMatchObject([{ do: 'save' }]);
  expect(played.playing.nextSave()?.items).toMatchObject([
    { op: 'failed', name: 'gone', number: 2, retriable: false },
  ]);
  played.saved([{ status: 'saved', entry: 3 }]);
  expect(answerOf(played.rest())).toMatchObject({
    type: 'suspended',
    waits: [{ retry: { name: 'x', number: 2 } }],
  });
});

// Rule H5.
test('a closing begins when all pages are here', () => {
  const entries = [entryOf(1, 'undo', 'x')];
  const ending = { reason: 'cancelled', entries: 2 };
  const played = new Played({ steps: { entries, next: 1 }, ending });
  expect(done(played.begun)).toEqual(['fetch']);
  const page = { on: 'page', entries: [entryOf(2, 'undo', 'y')], next: null } as const;
  expect(done(played.apply(page))).toEqual(['play', 'rest']);
  for (const name of ['x', 'y']) played.askFor(name, { op: 'undo', kind: 'undo' });
  played.apply({ on: 'completed', output: one });
  played.rest();
  played.rest();
  expect(played.rest()).toMatchObject([{ do: 'body', name: 'y', number: 2 }]);
});
