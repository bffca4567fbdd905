import { nelkap, type Tick } from 'nelkap';
import { crashEverywhere, marks, testRun } from 'nelkap/testing';
import { z } from 'zod';

const { step } = nelkap;
class Money { constructor(readonly amount: number) {} add() { return this; } }
declare function rows(): Promise<{ id: string; deep: { m: Map<string, number> }[] }>;

step.run('a', () => 1n); // refused: result is a bigint
step.run('b', () => ({ deep: [1n] })); // refused: result.deep[] is a bigint
step.run('c', rows); // refused: result.deep[].m is a Map
step.run('d', async () => { await rows(); return new Map([[1, 2]]); }); // refused: result is a Map
step.run('e', () => fetch('http://x')); // refused: is a function or method
step.run('f', () => new Money(1)); // refused: result.add is a function or method
step.run('g', () => ({ f: () => 1 })); // refused: result.f is a function or method
step.run('h', async () => new Uint8Array(3)); // refused: result is an object that JSON empties
step.run('i', { retries: 1 }, () => new Set([1])); // refused: result is a Set
step.run('j', () => ({ p: Promise.resolve(1) })); // refused: result.p is a promise
step.run('k', () => () => 1); // refused: result is a function
step.run('l', () => new Error('x')); // refused: result is an Error
step.run('m', ({ signal }) => signal); // refused: is a function or method
step.run('n', () => 1, { retries: 2 }); // refused:
step.run('o', { timeout: '5 minuts' }, () => 1); // refused: 5 minuts
step.run('p', { retires: 1 }, () => 1); // refused: retires
nelkap.run(nelkap.workflow('w', async (x: string) => x)); // refused: Expected
nelkap.run(nelkap.workflow('w', async (x: string) => x), 5); // refused: number
step.run('q', async () => ({ a: { b: { c: { d: { e: 1n } } } } })); // refused: a part more than four levels down
function wrapper<T>(fn: () => Promise<T>) { return step.run('q', fn); } // refused: Savable
void wrapper;

nelkap.workflow({ name: 'a', retires: 4 }, async (x: string) => x); // refused: retires
nelkap.workflow({ name: 'b', timeout: '2 houers' }, async (x: string) => x); // refused: houers
nelkap.workflow({ name: 'c', payload: z.object({ id: z.string() }) }, async (x: number) => x); // refused: the schema gives
nelkap.workflow({ name: 'd', payload: z.object({ id: z.string() }) }, async (x) => x.total); // refused: total
nelkap.workflow({ name: 'e', on: { event: 'x', iff: 'x' } }, async () => 1); // refused: never
nelkap.workflow({ name: 'o', on: { webhook: 'x', iff: 'x' } }, async () => 1); // refused: never
nelkap.workflow({ name: 'p', on: [{ event: 'x' }, { webhook: 'x', secret: 'x' }] }, async () => 1); // refused: never
nelkap.workflow({ name: 'q', on: { event: 'x', webhook: 'x' } }, async () => 1); // refused: never
nelkap.workflow({ name: 'r', on: { webhook: 1 } }, async () => 1); // refused: number
nelkap.workflow({ name: 's', on: { webhook: 'x' } }, async (order: { id: string }) => order.id); // refused: the trigger gives
nelkap.workflow({ name: 't', on: { webhook: 'x' } }, async (request) => request.text); // refused: text
nelkap.workflow('g', async (x) => x.id); // refused: unknown
nelkap.workflow({ name: 'h', payload: z.string(), retires: 2 }, async (x) => x); // refused: retires
nelkap.workflow('i', async () => new Map()); // refused: result is a Map
nelkap.workflow('j', async (d: { at: Date }) => d.at.getTime()); // refused: a payload arrives as JSON, that is as
nelkap.workflow('k', { retries: 3 }, async (x: string) => x); // refused:
nelkap.workflow({ name: 'l', payload: z.object({ at: z.date() }) }, async (x) => x.at.getTime()); // refused: the schema must take
nelkap.workflow({ name: 'm', payload: z.object({ n: z.bigint() }) }, async (x) => String(x.n)); // refused: the schema must take

step.sleep('r', '5 minuts'); // refused: 5 minuts
step.sleepUntil('s', 5); // refused: number
step.waitForEvent('t', { timeout: '1d' }); // refused: event
step.waitForEvent('u', { event: 'e', match: { a: {} } }); // refused: {}
step.waitForEvent('v', { event: 'e', since: 'ever' }); // refused: ever
step.invoke('w', nelkap.workflow('w', async (x: string) => x)); // refused: Expected
step.invoke('x', nelkap.workflow('w', async (x: string) => x), 5); // refused: number
step.claim('y', 5); // refused: number
step.claim('z', 'k', { until: 'never' }); // refused: never
step.run('aa', { check: () => 1n }, () => 1); // refused: result is a bigint
step.run('ab', { atMostOnce: 1 }, () => 1); // refused: number
step.all([step.sleep('ac', 1)]).then(([x]: [string]) => x); // refused: string
nelkap.run(nelkap.ref('w'), 1, { at: 5 }); // refused: number
nelkap.workflow({ name: 'n', once: () => 1 }, async () => 1); // refused: number
nelkap.workflow({ name: 'u', on: { schedule: '* * * * *', timezoen: 'x' } }, async () => 1); // refused: never
nelkap.workflow({ name: 'v', on: { schedule: '* * * * *' } }, async (x: string) => x); // refused: the trigger gives
nelkap.workflow({ name: 'w', on: { schedule: '@daily', catchUp: 'some' } }, async () => 1); // refused: some
nelkap.workflow({ name: 'x', cancelOn: { schedule: '@daily' } }, async () => 1); // refused: schedule

nelkap.workflow({ name: 'y', onFailure: 1 }, async () => 1); // refused: number
nelkap.workflow({ name: 'z', onCancel: ({ error }) => error }, async () => 1); // refused: error
nelkap.workflow({ name: 'aa', payload: z.object({ id: z.string() }), onFailure: ({ payload }) => payload.total }, async () => 1); // refused: total
step.undo('ad'); // refused: Expected
step.undo('ae', 1); // refused: number
step.undo('af', { retries: 1 }, () => 1); // refused: Expected
step.restart(); // refused: Expected
step.restart(1).then((x: string) => x.length).length; // refused: length
nelkap.schedules.put('ag', { schedule: '@daily' }); // refused: workflow
nelkap.schedules.put('ah', { workflow: nelkap.workflow('w', async () => 1), schedule: 5 }); // refused: number
nelkap.schedules.put('ai', { workflow: nelkap.workflow('w', async (tick: Tick<{ id: string }>) => tick.payload?.id), schedule: '@daily', payload: { id: 5 } }); // refused: number
nelkap.schedules.put('aj', { workflow: nelkap.workflow('w', async () => 1), schedule: '@daily', cron: 'x' }); // refused: cron
nelkap.schedules.list({ limit: '5' }); // refused: string

testRun(nelkap.workflow('w', async (x: string) => x)); // refused: Expected
testRun(nelkap.workflow('w', async (x: string) => x), 5); // refused: number
testRun(nelkap.workflow('w', async () => 1), undefined, { step: {} }); // refused: step
testRun(nelkap.workflow('w', async () => 1), undefined, { events: [{ event: 'e', payload: 1, iff: 'x' }] }); // refused: iff
testRun(nelkap.workflow('w', async () => 1)).then((run) => run.skip('3 dayz')); // refused: 3 dayz
crashEverywhere(nelkap.workflow('w', async () => 1), undefined, { check: (run) => run.output.length }); // refused: length
crashEverywhere(nelkap.workflow('w', async () => 1), undefined, { timings: ['never'] }); // refused: never
marks().leave(5); // refused: number
testRun(nelkap.workflow('w', async () => 1), undefined, { events: [{ cancel: false }] }); // refused: false
testRun(nelkap.workflow('w', async () => 1)).then((run) => run.logs[0]?.text); // refused: text
step.run('ag', () => ({ h: new Headers() })); // refused: result.h is an iterable
step.run('ah', async () => new FormData()); // refused: result is an iterable
step.run('ai', function* () { yield 1; }); // refused: result is an iterable
nelkap.workflow('ab', async function* () { yield 1; }); // refused: result is an iterable
nelkap.workflow('ac', async (ids: (string | undefined)[]) => ids.length); // refused: a payload arrives as JSON, that is as
