import { expect, test } from 'vitest';
import { Encoded } from '../src/core/text.js';
import { answerOf, asks, done, entryOf, instants, one, Played } from './played.js';

const suspended = { type: 'suspended', nonce: 'n', manifest: 'm' };

function of(name: string, number = 1): { name: string; number: number } {
  return { name, number };
}

function released(effects: ReturnType<Played['apply']>): string[] {
  return effects.flatMap((effect) => (effect.do === 'release' ? [effect.entry.name] : []));
}

// Rule H3.
test('waits travel in the suspended answer, in the order in which the code asked', () => {
  const played = new Played();
  played.askFor('x', asks.sleep);
  played.askFor('y', asks.event);
  played.askFor('z', asks.invoke);
  expect(answerOf(played.rest())).toEqual({
    ...suspended,
    seen: 0,
    register: [
      { ...asks.sleep, ...of('x') },
      { ...asks.event, ...of('y') },
      { ...asks.invoke, ...of('z') },
    ],
    waits: [{ wait: of('x') }, { wait: of('y') }, { wait: of('z') }],
  });
});

test('while a body runs waits are registered by a save, once', () => {
  const played = new Played();
  played.askFor('nap', asks.sleep);
  played.ask('a');
  expect(done(played.rest())).toEqual(['body', 'save']);
  expect(played.playing.nextSave()?.items).toEqual([{ ...asks.sleep, ...of('nap') }]);
  expect(played.saved([{ status: 'waiting' }])).toEqual([]);
  played.returned(1);
  played.save([{ status: 'saved', entry: 1 }]);
  expect(answerOf(played.rest())).toEqual({ ...suspended, seen: 1, waits: [{ wait: of('nap') }] });
});

test('while a start is recorded, or a check is put off, waits are registered too', () => {
  const played = new Played();
  played.askFor('a', asks.check);
  played.rest();
  played.save([{ status: 'started', again: true, checkInMs: 500 }]);
  played.askFor('nap', asks.sleep);
  expect(done(played.rest())).toEqual(['save']);
});

test('a registration whose answer was lost is sent again, and the wait is open', () => {
  const played = new Played();
  played.ask('a');
  played.askFor('nap', asks.sleep);
  played.rest();
  const first = played.playing.nextSave();
  played.apply({ on: 'unsent' });
  expect(played.playing.nextSave()).toBe(first);
  const entries = [entryOf(1, 'sleep', 'nap')];
  expect(released(played.saved([{ status: 'waiting' }], { entries }))).toEqual(['nap']);
  played.rest();
  played.returned(0);
  expect(released(played.save([{ status: 'saved', entry: 2 }]))).toEqual(['a']);
});

test('waits that an answer can not hold are registered by saves before it', () => {
  const played = new Played();
  const payload = new Encoded(JSON.stringify('x'.repeat(1_500_000)));
  for (const name of ['x', 'y']) played.askFor(name, { ...asks.invoke, payload });
  expect(done(played.rest())).toEqual(['save', 'save']);
  // Each is large enough to travel alone.
  for (let left = 2; left > 0; left--) {
    expect(played.playing.nextSave()?.items).toHaveLength(1);
    const answer = answerOf(played.saved([{ status: 'waiting' }]));
    if (left === 1)
      expect(answer).toEqual({ ...suspended, seen: 0, waits: [{ wait: of('x') }, { wait: of('y') }] });
  }
});

test('a wait that is open is not registered again, and one of another kind stops the run', () => {
  const waiting = [{ kind: 'sleep', ...of('x') }];
  const played = new Played({ steps: { waiting } });
  played.askFor('x', asks.sleep);
  expect(answerOf(played.rest())).toEqual({ ...suspended, seen: 0, waits: [{ wait: of('x') }] });
  const callback = { op: 'callback', kind: 'callback' } as const;
  for (const ask of [asks.event, asks.claim, asks.check, callback]) {
    const kind = ask === callback ? 'callback' : 'sleep';
    const other = new Played({ steps: { waiting: [{ kind, ...of('x') }] } });
    other.askFor('x', ask);
    expect(answerOf(other.rest())).toMatchObject({ type: 'failed', error: { name: 'StepKindError' } });
  }
});

test('a step that threw is of the kind of those with a body', () => {
  const played = new Played({ steps: { retrying: [{ ...of('x'), attempt: 1, retryInMs: 0 }] } });
  played.askFor('x', asks.sleep);
  expect(answerOf(played.rest())).toMatchObject({ type: 'failed', error: { name: 'StepKindError' } });
});

// Rule C12.
test('a yield registers nothing', () => {
  const played = new Played();
  played.askFor('x', asks.sleep);
  played.apply({ on: 'hurry', why: 'stopping' });
  expect(answerOf(played.rest())).toEqual({
    type: 'yielded',
    seen: 0,
    excused: true,
    nonce: 'n',
    manifest: 'm',
  });
});

// Rule C11.
test('registrations and questions are no unsaved results', () => {
  const played = new Played();
  played.ask('a');
  played.askFor('nap', asks.sleep);
  played.askFor('mine', asks.claim);
  played.rest();
  played.playing.nextSave();
  played.returned(0);
  const answer = answerOf(played.apply({ on: 'silent' }));
  expect(answer).toMatchObject({ type: 'yielded', unsaved: [{ op: 'completed', name: 'a' }] });
  expect(answer.unsaved).toHaveLength(1);
});

// Rule Z1.
test.each(['news', 'save'] as const)(
  'a run that is cancelled while it waits ends when its body has (%s)',
  (by) => {
    const played = new Played();
    played.ask('a');
    played.askFor('nap', asks.sleep);
    played.rest();
    played.playing.nextSave();
    const ending = { reason: 'cancelled' } as const;
    if (by === 'news') played.apply({ on: 'news', status: 'ending', ending });
    const effects = played.saved([{ status: 'refused' }], by === 'save' ? { ending } : {});
    expect(done(effects)).toEqual(by === 'save' ? ['abort'] : []);
    const over = played.apply({ on: 'threw', id: 0, attempt: 1, error: one, retriable: true, ...instants });
    expect(answerOf(over)).toEqual({ type: 'yielded', seen: 0, nonce: 'n', manifest: 'm' });
  },
);

// Rules H1, H2.
test('news is released in order, one entry for each time the code rests, and only once', () => {
  const played = new Played();
  for (const name of ['x', 'y', 'z']) played.askFor(name, asks.event);
  played.ask('a');
  played.rest();
  played.save([{ status: 'waiting' }, { status: 'waiting' }, { status: 'waiting' }]);
  const entries = ['z', 'x', 'y'].map((name, at) => entryOf(at + 1, 'event', name));
  const news = { on: 'news', status: 'entries', entries } as const;
  expect(released(played.apply(news))).toEqual(['z']);
  expect(played.apply(news)).toEqual([]);
  expect(released(played.rest())).toEqual(['x']);
  expect(released(played.rest())).toEqual(['y']);
  expect(played.rest()).toEqual([]);
  expect(played.apply(news)).toEqual([]);
  expect(played.playing.known).toBe(3);
});

test('news that overtakes the answer of a save waits for it, since the save may have come before', () => {
  const played = new Played();
  played.ask('a', 'b');
  played.askFor('nap', asks.sleep);
  played.rest();
  played.save([{ status: 'waiting' }]);
  played.returned(0);
  played.playing.nextSave();
  // Entry 1 is what the save made: its own process is not told of it.
  const entries = [entryOf(2, 'sleep', 'nap')];
  expect(played.apply({ on: 'news', status: 'entries', entries })).toEqual([]);
  expect(played.playing.known).toBe(2);
  expect(released(played.saved([{ status: 'saved', entry: 1 }]))).toEqual(['a']);
  expect(released(played.rest())).toEqual(['nap']);
});

test('a poll asks for news only once the history is read', () => {
  const played = new Played({ steps: { entries: [entryOf(1, 'run', 'a')], next: 1 } });
  expect(played.playing.known).toBeUndefined();
  played.apply({ on: 'page', entries: [entryOf(2, 'run', 'b')], next: null });
  // What has come counts, not what the code was shown: else an entry that it asks for late would be told for ever.
  expect(played.playing.known).toBe(2);
  expect(played.playing.nextSave()).toBeNull();
});

// Rule H4.
test('a tree stands for its leaves, and a loser stands by itself when its tree has settled', () => {
  const played = new Played();
  for (const name of ['deadline', 'first', 'x', 'y']) played.askFor(name, asks.sleep);
  played.apply({ on: 'combined', id: 100, how: 'race', of: [0, 1] });
  played.apply({ on: 'combined', id: 101, how: 'all', of: [2, 3] });
  played.apply({ on: 'combined', id: 102, how: 'any', of: [100, 101] });
  const [deadline, first, x, y] = ['deadline', 'first', 'x', 'y'].map((name) => ({ wait: of(name) }));
  expect(answerOf(played.rest()).waits).toEqual([{ any: [{ race: [deadline, first] }, { all: [x, y] }] }]);

  const entries = [entryOf(1, 'sleep', 'first'), entryOf(2, 'sleep', 'x')];
  const again = new Played({ steps: { entries } });
  for (const name of ['deadline', 'first', 'x', 'y']) again.askFor(name, asks.sleep);
  again.apply({ on: 'combined', id: 100, how: 'race', of: [0, 1] });
  again.apply({ on: 'combined', id: 101, how: 'all', of: [2, 3] });
  again.rest();
  again.rest();
  expect(answerOf(again.rest()).waits).toEqual([deadline, { all: [y] }]);
});

test('a step that threw stands in its tree', () => {
  const played = new Played({ steps: { retrying: [{ ...of('a'), attempt: 1, retryInMs: 9_000 }] } });
  played.ask('a');
  played.askFor('nap', asks.sleep);
  played.apply({ on: 'combined', id: 100, how: 'all', of: [0, 1] });
  expect(answerOf(played.rest()).waits).toEqual([{ all: [{ retry: of('a') }, { wait: of('nap') }] }]);
});

test.each([
  ['failed', 'all', [{ wait: of('y') }]],
  ['completed', 'any', [{ wait: of('y') }]],
  ['failed', 'any', [{ any: [{ wait: of('y') }] }]],
] as const)('a member that %s is taken out of %s', (status, how, waits) => {
  const played = new Played({ steps: { entries: [entryOf(1, 'invoke', 'x', { status })] } });
  for (const name of ['x', 'y']) played.askFor(name, asks.invoke);
  played.apply({ on: 'combined', id: 100, how, of: [0, 1] });
  played.rest();
  expect(answerOf(played.rest()).waits).toEqual(waits);
});

test('trees that the server would refuse are handed over as their leaves', () => {
  const deep = new Played();
  deep.askFor('x', asks.sleep);
  for (let at = 0; at < 20; at++) {
    deep.apply({ on: 'combined', id: 100 + at, how: 'all', of: [at === 0 ? 0 : 99 + at] });
  }
  let tree = answerOf(deep.rest()).waits[0];
  let depth = 1;
  for (; 'all' in tree; depth++) tree = tree.all[0];
  expect(depth).toBe(16);

  const wide = new Played();
  for (let at = 0; at < 200; at++) wide.askFor(`x${at}`, asks.sleep);
  const all = Array.from({ length: 200 }, (_, at) => at);
  for (let at = 0; at < 100; at++) wide.apply({ on: 'combined', id: 1_000 + at, how: 'race', of: all });
  expect(answerOf(wide.rest()).waits).toEqual(all.map((at) => ({ wait: of(`x${at}`) })));
});

// Rule S7.
test('a renamed step of any kind is found under its old name, and has its new one where it is not', () => {
  const waiting = [{ kind: 'event', ...of('old wait') }];
  const retrying = [{ ...of('old step'), attempt: 2, retryInMs: 0 }];
  const entries = [entryOf(1, 'claim', 'old claim', { output: true })];
  const played = new Played({ steps: { entries, waiting, retrying } });
  played.askFor('wait', asks.event, 'old wait');
  played.askFor('step', asks.check, 'old step');
  played.askFor('claim', asks.claim, 'old claim');
  played.askFor('sleep', asks.sleep, 'old sleep');
  expect(released(played.rest())).toEqual(['old claim']);
  expect(done(played.rest())).toEqual(['save', 'save']);
  expect(played.playing.nextSave()?.items).toMatchObject([
    { op: 'start', name: 'old step', attempt: 3 },
    { op: 'wait', name: 'sleep', number: 1 },
  ]);
});

test('a renamed step counts under both names, so that its namesakes keep their numbers', () => {
  const entries = [1, 2, 3].map((number) => ({ ...entryOf(number, 'run', 'old'), number, output: number }));
  const played = new Played({ steps: { entries } });
  played.ask('old');
  expect(played.rest()).toMatchObject([{ entry: { number: 1 } }, {}]);
  played.askFor('new', asks.check, 'old');
  expect(played.rest()).toMatchObject([{ entry: { number: 2 } }, {}]);
  played.ask('old');
  expect(played.rest()).toMatchObject([{ entry: { number: 3 } }, {}]);
});

// Rule S4.
test.each([
  ['a first start', {}, { status: 'started' }, 'body'],
  ['a start after another', {}, { status: 'started', again: true }, 'check'],
  ['the first start in a replay', { run: { replayOf: 'run_0' } }, { status: 'started' }, 'check'],
  [
    'an attempt after one that threw',
    { steps: { retrying: [{ ...of('a'), attempt: 1, retryInMs: 0 }] } },
    { status: 'started' },
    'check',
  ],
])('%s begins with the right part', (_, parts, outcome, part) => {
  const played = new Played(parts);
  played.askFor('a', asks.check);
  played.rest();
  expect(done(played.save([outcome]))).toEqual([part]);
});

test('a check waits until the old playing has stopped, and the run does not suspend meanwhile', () => {
  const played = new Played();
  played.askFor('a', asks.check);
  played.askFor('nap', asks.sleep);
  played.rest();
  const effects = played.save([{ status: 'started', again: true, checkInMs: 10_000 }, { status: 'waiting' }]);
  expect(effects).toEqual([{ do: 'pause', ...of('a'), ms: 10_000 }]);
  expect(done(played.apply({ on: 'due', ...of('a') }))).toEqual(['check']);
});

test('a check that throws is an attempt that failed, and no body runs', () => {
  const played = new Played();
  played.askFor('a', asks.check);
  played.rest();
  played.save([{ status: 'started', again: true }]);
  played.apply({ on: 'threw', id: 0, attempt: 1, error: one, retriable: true, ...instants });
  expect(played.playing.nextSave()?.items).toMatchObject([{ op: 'failed', attempt: 1, retries: 4 }]);
  expect(done(played.saved([{ status: 'retrying', attempt: 1, retryInMs: 9 }]))).toEqual(['pause', 'answer']);
});

test.each(['a stop', 'a cancellation'])(
  'after %s a check that found nothing is followed by no body',
  (why) => {
    const played = new Played();
    played.askFor('a', asks.check);
    played.rest();
    played.save([{ status: 'started', again: true }]);
    if (why === 'a stop') played.apply({ on: 'hurry', why: 'stopping' });
    else played.apply({ on: 'news', status: 'ending', ending: { reason: 'cancelled' } });
    const effects = played.apply({ on: 'found', id: 0, attempt: 1, output: undefined, ...instants });
    expect(answerOf(effects)).toMatchObject({ type: 'yielded' });
    expect(done(effects)).toEqual(['answer']);
  },
);

// Rule C13.
test('after many cuts a step whose start is recorded runs before the next one starts', () => {
  const played = new Played({ call: { cuts: 5 } });
  played.ask('a', 'b');
  played.rest();
  expect(played.save([{ status: 'started' }])).toMatchObject([{ do: 'body', name: 'a' }]);
  played.returned(0);
  played.save([{ status: 'saved', entry: 1 }]);
  expect(played.rest()).toMatchObject([{ do: 'body', name: 'b' }]);
});

test('bodies start in the order in which the code asked, whatever was recorded first', () => {
  const played = new Played({ call: { cuts: 1 } });
  played.ask('a', 'b', 'c');
  played.rest();
  const effects = played.save([{ status: 'started' }, { status: 'started' }, { status: 'started' }]);
  expect(effects.map((effect: any) => effect.name)).toEqual(['a', 'b', 'c']);
});

// Rule S5.
test('the start of a step that runs at most once says so', () => {
  const played = new Played();
  played.askFor('a', asks.once);
  expect(done(played.rest())).toEqual(['save']);
  expect(played.playing.nextSave()?.items).toEqual([
    { op: 'start', kind: 'run', ...of('a'), attempt: 1, once: true },
  ]);
});

// Rule K4.
test('a claim that is not answered stops the run: its code must not guess', () => {
  const played = new Played();
  played.askFor('mine', asks.claim);
  played.rest();
  expect(answerOf(played.save([{ status: 'saved', entry: 1 }]))).toMatchObject({
    type: 'failed',
    error: { name: 'ProtocolError' },
  });
});

test('a claim that can not be had fails in the code', () => {
  const played = new Played();
  played.askFor('mine', asks.claim);
  played.rest();
  const failed = { status: 'failed', error: { name: 'Error', message: 'no' } };
  const effects = played.save([{ status: 'stands' }], { entries: [entryOf(1, 'claim', 'mine', failed)] });
  expect(effects).toMatchObject([{ do: 'release', entry: { status: 'failed' } }, {}]);
});

const onceItem = { op: 'claim', kind: 'claim', name: '', number: 1, key: 'o_1', once: true };

test('the key of once is claimed before the code plays, and not again', () => {
  const played = new Played({}, 4, 'o_1');
  expect(done(played.begun)).toEqual(['save']);
  expect(played.playing.nextSave()?.items).toEqual([onceItem]);
  expect(done(played.saved([{ status: 'saved', entry: 1, output: true }]))).toEqual(['play', 'rest']);
  const again = new Played({ steps: { entries: [entryOf(1, 'claim', '', { output: true })] } }, 4, 'o_1');
  expect(done(again.begun)).toEqual(['play', 'rest']);
});

test('where another run owns the key the code never plays', () => {
  const played = new Played({}, 4, 'o_1');
  played.playing.nextSave();
  const effects = played.apply({ on: 'saved', outcome: { status: 'ended' } });
  expect(done(effects)).toEqual(['abort', 'answer', 'over']);
  expect(answerOf(effects)).toMatchObject({ type: 'over' });
});

test('a key that can not be claimed fails the run', () => {
  const played = new Played({}, 4, 'o_1');
  const error = { name: 'Error', message: 'no' };
  const effects = played.save([{ status: 'stands' }], {
    entries: [entryOf(1, 'claim', '', { status: 'failed', error })],
  });
  expect(answerOf(effects)).toMatchObject({ type: 'failed', retriable: false, error });
  expect(done(effects)).toEqual(['answer']);
});

test.each(['silent', 'hurry'] as const)('a run that can not claim its key now is called again (%s)', (on) => {
  const played = new Played({}, 4, 'o_1');
  played.playing.nextSave();
  const effects = played.apply(on === 'silent' ? { on } : { on, why: 'stopping' });
  expect(answerOf(effects)).toEqual({ type: 'yielded', seen: 0, excused: true, nonce: 'n', manifest: 'm' });
});

// Rules C4, C11.
test.each(['silent', 'hurry'] as const)('a call that can not be bound now is called again (%s)', (on) => {
  const played = new Played({}, 4, undefined, true);
  expect(played.playing.nextSave()?.items).toEqual([]);
  const effects = played.apply(on === 'silent' ? { on } : { on, why: 'stopping' });
  expect(answerOf(effects)).toEqual({ type: 'yielded', seen: 0, excused: true, nonce: 'n', manifest: 'm' });
});
