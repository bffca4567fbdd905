import type { QuestionItem } from '../core/message.js';
import type { RunState } from './state.js';

interface Claim {
  owner: string;
  until: 'failed' | undefined;
  forMs: number | undefined;
}

/** Stands for a run that is none of the world's. */
const OTHER = 'run_other';

/** Keys that one run owns: in the scope of its app, its workflow and the claim's name (K3). */
export class Claims {
  private readonly claims = new Map<string, Claim>();
  private readonly others: ReadonlySet<string>;

  constructor(others: readonly string[]) {
    this.others = new Set(others);
  }

  /** Takes a key for a run; gives the run that owns it then. */
  take(
    run: RunState,
    item: QuestionItem & { op: 'claim' },
    now: number,
    find: (id: string) => RunState | undefined,
  ): string {
    if (this.others.has(item.key)) return OTHER;
    const key = JSON.stringify([run.app, run.workflow, item.name, item.key]);
    const there = this.claims.get(key);
    const owner = there === undefined ? undefined : find(there.owner);
    if (there !== undefined && owner !== undefined && owner !== run && !isFree(there, owner, run, now))
      return owner.id;
    this.claims.set(key, { owner: run.id, until: item.until, forMs: item.forMs });
    return run.id;
  }
}

/** An ended owner's key passes on by its own rule, or to a replay of it (K3, K5). */
function isFree({ until, forMs }: Claim, owner: RunState, run: RunState, now: number): boolean {
  if (owner.endedAt === undefined) return false;
  if (run.replayOf === owner.id) return true;
  if (until === 'failed' && owner.status === 'failed') return true;
  return forMs !== undefined && now >= owner.endedAt + forMs;
}
