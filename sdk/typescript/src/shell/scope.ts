import type { Part } from '../core/effect.js';
import type { Call } from './call.js';
import { shared } from './process.js';

interface Closable {
  readonly call: Call;
  /**
   * Its code has settled: what is still sent in it is outside any run (K2). It stays open for good where the call was superseded
   * first: what that code still does must leave no mark.
   */
  closed: boolean;
}

/** The code that runs outside steps: the workflow's function, or a handler of its. */
export interface RunScope extends Closable {
  readonly kind: 'run';
  readonly part: Part;
  /** It is played against saved steps alone, and starts and sends nothing: in a closing, and to be verified (D3). */
  readonly isFrozen: boolean;
}

/** One attempt of a step. */
export interface StepScope extends Closable {
  readonly kind: 'step';
  readonly name: string;
  readonly number: number;
  readonly signal: AbortSignal;
  /** It is the step's check, which looks and leaves no mark (S4). */
  readonly isCheck: boolean;
  /** The attempt took too long, and its function may still run: what it sends is refused (K2). */
  abandoned: boolean;
  /** How many sends of each kind and name there were (K1). */
  readonly places: Map<string, number>;
  /** Which unkeyed sends are under way, by kind and name. */
  readonly sending: Set<string>;
  /** Fails the attempt, whatever its function makes of it (K1). */
  poison: Error | undefined;
}

/** Whose code runs. */
export type Scope = RunScope | StepScope;

export function stepScope(of: Pick<StepScope, 'call' | 'name' | 'number' | 'signal' | 'isCheck'>): StepScope {
  return {
    kind: 'step',
    ...of,
    closed: false,
    abandoned: false,
    places: new Map(),
    sending: new Set(),
    poison: undefined,
  };
}

/**
 * Whose code uses what is bound to a scope: a step of the run may use the run's. It must not pass for code outside steps, which sends
 * every time it runs. Where the runtime does not tell, it does.
 */
export function within(bound: Scope): Scope {
  const found = shared().context?.getStore();
  return bound.kind === 'run' && found?.kind === 'step' && found.call === bound.call ? found : bound;
}

/** The scope's code has settled. */
export function close(scope: Scope): void {
  scope.closed = !scope.call.isSuperseded;
}
