import type { Part } from '../core/effect.js';
import type { Call } from './call.js';

/** The code that runs outside steps: the workflow's function, or a handler of its. */
export interface RunScope {
  readonly kind: 'run';
  readonly call: Call;
  readonly part: Part;
  /** It is played against saved steps alone, and starts and sends nothing: in a closing, and to be verified (D3). */
  readonly isFrozen: boolean;
}

/** One attempt of a step. */
export interface StepScope {
  readonly kind: 'step';
  readonly call: Call;
  readonly name: string;
  readonly number: number;
  readonly signal: AbortSignal;
  /** It is the step's check, which looks and leaves no mark (S4). */
  readonly isCheck: boolean;
  /** The attempt has settled: what it still sends is outside any run (K2). */
  closed: boolean;
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
