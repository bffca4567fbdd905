import { nelkap, type StepFunction, type Stored } from 'nelkap';
import { same } from '../same.js';
const { step } = nelkap;

interface Order { id: string; note?: string; opt: string | undefined; extra: unknown; tags: readonly string[]; parent?: Order; pair: [number, string] }
declare function load(): Promise<Order>;
interface Row { id: number; createdAt: Date; children: Row[]; by: { at: Date | null } | undefined }
declare function row(): Promise<Row>;
enum Color { Red, Blue }
type Branded = string & { readonly __brand: 'id' };
class Money { constructor(readonly amount: number) {} toJSON() { return { amount: this.amount, currency: 'EUR' }; } add() { return this; } }

const a = await step.run('a', load); same<typeof a, Order>(true);
const b = await step.run('b', row);
const bAt: string = b.createdAt; const bAt2: string = b.children[0]!.children[0]!.createdAt; const by: string | null | undefined = b.by?.at;
const c = await step.run('c', () => new Date()); same<typeof c, string>(true);
const d = await step.run('d', () => {}); same<typeof d, void>(true);
const e = await step.run('e', () => undefined); same<typeof e, undefined>(true);
const f = await step.run('f', async () => { if (Math.random() > 2) return; return { ok: true }; }); same<typeof f, { ok: boolean } | undefined>(true);
const g = await step.run('g', () => { throw new Error(); }); same<typeof g, never>(true);
const h = await step.run('h', () => JSON.parse('1')); same<typeof h, any>(true);
const i = await step.run('i', () => JSON.parse('1') as unknown); same<typeof i, unknown>(true);
const j = await step.run('j', () => new Money(1)); same<typeof j, { amount: number; currency: string }>(true);
const k = await step.run('k', () => new URL('http://x')); same<typeof k, string>(true);
const l = await step.run('l', () => Color.Red); const l1: Color = l; void l1;
const m = await step.run('m', () => 'x' as Branded); same<typeof m, Branded>(true);
const n = await step.run('n', () => ({ kind: 'a' as const, n: 1 }) as { kind: 'a'; n: number } | { kind: 'b'; s: Date }); 
if (n.kind === 'b') same<typeof n.s, string>(true);
const o = await step.run('o', ({ idempotencyKey, attempt, signal }) => ({ idempotencyKey, attempt, x: signal.aborted }));
same<typeof o, { idempotencyKey: string; attempt: number; x: boolean }>(true);
const p = await step.run('p', { retries: 2, timeout: '10s' }, async ({ attempt }) => attempt); same<typeof p, number>(true);
const q = await step.run('q', { check: () => (Math.random() > 2 ? { found: true } : undefined) }, async () => ({ found: false })); const q1: { found: boolean } = q; void q1;
declare function findTicket(k: string): Promise<{ id: string } | undefined>; declare function createTicket(k: string): Promise<{ id: string; isNew: true }>;
const r = await step.run('r', { check: async ({ idempotencyKey }) => findTicket(idempotencyKey) }, async ({ idempotencyKey }) => createTicket(idempotencyKey));
same<typeof r, { id: string } | { id: string; isNew: true }>(true);
const s = await step.run('s', { atMostOnce: true }, () => 1); same<typeof s, number>(true);
const [t1, t2] = await Promise.all([step.run('t1', () => 1), step.run('t2', () => 'x')]); same<[typeof t1, typeof t2], [number, string]>(true);
const u = await step.run('u', () => ({ at: new Date(), opt: undefined as Date | undefined })); same<typeof u, { at: string; opt: string | undefined }>(true);
const v = await step.run('v', () => ({ m: { x: 1 } as Record<string, Date | number>, buf: undefined as null | undefined })); const vx: string | number | undefined = v.m['x'];
const w = await step.run('w', () => [new Date(), 1] as const); const w0: string = w[0]; const w1: 1 = w[1];

// undefined comes back as null in an array, and is left out of an object
const y = await step.run('y', () => [1, undefined] as (number | undefined)[]); same<typeof y, (number | null)[]>(true);
const z = await step.run('z', () => ({ pair: ['a', undefined] as [string, string | undefined], gone: undefined as string | undefined }));
same<typeof z, { pair: [string, string | null]; gone: string | undefined }>(true);
const aa = await step.run('aa', () => [[undefined as Date | undefined]]); same<typeof aa, (string | null)[][]>(true);
const ab = await step.run('ab', async () => Promise.all([step.sleep('ac', 1)])); same<typeof ab, [null]>(true);
const ac = await step.run('ad', () => ({ list: [] as { note?: string; opt: string | undefined }[] })); same<typeof ac, { list: { note?: string; opt: string | undefined }[] }>(true);
type Nested = string | undefined | Nested[];
const ad = await step.run('ae', () => 'x' as Nested); const ad1: string | null | undefined | unknown[] = ad;
const ae = await step.run('af', () => [] as any[]); same<typeof ae, any[]>(true);
const af = await step.run('ag', () => [] as unknown[]); same<typeof af, unknown[]>(true);
const ag = await nelkap.step.invoke('ah', nelkap.workflow('w', async () => [undefined as number | undefined])); same<typeof ag, (number | null)[]>(true);

// a wrapper of step.run, with the exported types
export async function saved<T>(name: string, fn: StepFunction<T>): Promise<Stored<T>> { return step.run<T>(name, fn); }
const x = await saved('x', async ({ attempt }) => ({ at: new Date(), attempt })); same<typeof x, { at: string; attempt: number }>(true);
// a wrapper that names the type itself
export async function savedOrder(fn: () => Promise<Order>): Promise<Order> { return step.run('order', fn); }
void [bAt, bAt2, by, vx, w0, w1, ad1];
