import type { Scope } from './scope.js';
import type { Destination } from './destination.js';

/** Time, as the shell sees it. Tests put their own in its place. */
export interface Clock {
  now(): number;
  /** Calls `then` after `ms`; the function that comes back takes it back. */
  after(ms: number, then: () => void): () => void;
}

/** The part of AsyncLocalStorage that is used. */
export interface Context {
  run<T>(scope: Scope, fn: () => T): T;
  getStore(): Scope | undefined;
}

/** What there is once per process, however often a bundler loads this module. */
export interface Shared {
  readonly destinations: Map<string, Destination>;
  /** The server's clock less ours, in milliseconds, by address (C4). */
  readonly offsets: Map<string, number>;
  readonly fetches: WeakMap<object, number>;
  context: Context | undefined;
  clock: Clock;
  /** Bodies that run now, for the warning of K2. */
  bodies: number;
  fetchCount: number;
}

const key: symbol = Symbol.for('nelkap.process.v1');

export function shared(): Shared {
  const holder = globalThis as unknown as Record<symbol, Shared | undefined>;
  return (holder[key] ??= {
    destinations: new Map(),
    offsets: new Map(),
    fetches: new WeakMap(),
    context: findContext(),
    clock: systemClock,
    bodies: 0,
    fetchCount: 0,
  });
}

const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, then) {
    // A longer delay than a timer's 31 bits would fire at once.
    const timer = setTimeout(then, Math.min(ms, 2 ** 31 - 1));
    return () => clearTimeout(timer);
  },
};

type ContextClass = new () => Context;

function findContext(): Context | undefined {
  const world = globalThis as {
    AsyncLocalStorage?: ContextClass;
    process?: { getBuiltinModule?: (name: string) => { AsyncLocalStorage?: ContextClass } | undefined };
  };
  const found =
    world.AsyncLocalStorage ?? world.process?.getBuiltinModule?.('node:async_hooks')?.AsyncLocalStorage;
  return found === undefined ? undefined : new found();
}

/** Where `findContext` found nothing, the module may still be importable. To be awaited before a call is played. */
export async function loadContext(): Promise<void> {
  const process = shared();
  if (process.context !== undefined) return;
  try {
    const name = 'node:async_hooks';
    const module = (await import(/* @vite-ignore */ /* webpackIgnore: true */ name)) as {
      AsyncLocalStorage: ContextClass;
    };
    process.context ??= new module.AsyncLocalStorage();
  } catch {
    // None here: code uses the `nelkap` and `step` that its context carries.
  }
}

export function randomHex(bytes: number): string {
  const drawn = crypto.getRandomValues(new Uint8Array(bytes));
  return Array.from(drawn, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

type Immediate = (then: () => void) => unknown;

/** Taken when the module loads: the fake timers of a test must not hold the code up. */
const immediate = (globalThis as { setImmediate?: Immediate }).setImmediate;

/**
 * Calls `then` in a macrotask of its own. By setTimeout, which hosts hold back by milliseconds, only where there is nothing else (H1), or
 * stand-ins that throw, as in edge functions of Next.js.
 */
export const macrotask: Immediate = (then) => {
  try {
    return immediate === undefined ? message(then) : immediate(then);
  } catch {
    return setTimeout(then);
  }
};

function message(then: () => void): void {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => {
    port1.close();
    then();
  };
  port2.postMessage(null);
}
