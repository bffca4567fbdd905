import type { Combinator } from './effect.js';
import type { StepName, WaitTree } from './message.js';

type Status = 'completed' | 'failed' | 'open';
type Leaf = { retry: StepName } | { wait: StepName };
/** The leaves that the code waits for, by their steps' ids. */
type Leaves = ReadonlyMap<number, Leaf>;

interface Tree {
  readonly how: Combinator;
  readonly of: readonly number[];
}

/** The server takes leaves at most 16 deep, and so many of them. */
const HEIGHT_MAX = 15;
const LEAVES_MAX = 10_000;

/** The combinations of steps that the code made (H4), by the ids of their members. */
export class Trees {
  private readonly trees = new Map<number, Tree>();
  private readonly members = new Set<number>();
  private readonly heights = new Map<number, number>();
  private readonly statuses = new Map<number, Status>();

  /** Members are older than their tree. One that is too high is not kept: its members stand by themselves. */
  add(id: number, { how, of }: Tree): void {
    const height = 1 + of.reduce((most, member) => Math.max(most, this.heights.get(member) ?? 0), 0);
    this.heights.set(id, height);
    for (const member of of) this.members.add(member);
    if (height <= HEIGHT_MAX) this.trees.set(id, { how, of });
  }

  /** Whether a step is a member of a combination. */
  holds(id: number): boolean {
    return this.members.has(id);
  }

  /** The code was shown a step's entry. */
  settle(id: number, status: 'completed' | 'failed'): void {
    this.statuses.set(id, status);
  }

  /**
   * For what the code waits: each combination in place of its members, and the leaves of none. A leaf of a combination that
   * has settled stands by itself again, for the code may wait for the loser of a race later.
   */
  list(leaves: Leaves): WaitTree[] {
    const covered = new Set<number>();
    const open: number[] = [];
    for (const [id, { how, of }] of this.trees) {
      const status = combine[how](of.map((member) => this.status(member)));
      this.statuses.set(id, status);
      if (status !== 'open') continue;
      open.push(id);
      for (const member of of) covered.add(member);
    }
    const all = [...leaves.keys(), ...open].filter((id) => !covered.has(id));
    const sizes = new Map<number, number>();
    const size = all.reduce((sum, id) => sum + this.size(id, sizes), 0);
    return size > LEAVES_MAX ? [...leaves.values()] : all.map((id) => this.treeOf(id, leaves));
  }

  private status(id: number): Status {
    return this.statuses.get(id) ?? 'open';
  }

  private openMembers({ of }: Tree): number[] {
    return of.filter((member) => this.status(member) === 'open');
  }

  /** How many leaves a tree has, counted as often as they stand in it. */
  private size(id: number, sizes: Map<number, number>): number {
    const tree = this.trees.get(id);
    if (tree === undefined) return 1;
    let size = sizes.get(id);
    if (size === undefined) {
      size = this.openMembers(tree).reduce((sum, member) => sum + this.size(member, sizes), 0);
      sizes.set(id, size);
    }
    return size;
  }

  private treeOf(id: number, leaves: Leaves): WaitTree {
    const tree = this.trees.get(id);
    if (tree === undefined) return leaves.get(id) as Leaf;
    return { [tree.how]: this.openMembers(tree).map((member) => this.treeOf(member, leaves)) } as WaitTree;
  }
}

/** What a combination has come to, as the promise of that name. */
const combine: Readonly<Record<Combinator, (of: readonly Status[]) => Status>> = {
  all: (of) => (of.includes('failed') ? 'failed' : of.includes('open') ? 'open' : 'completed'),
  any: (of) => (of.includes('completed') ? 'completed' : of.includes('open') ? 'open' : 'failed'),
  race: (of) => of.find((status) => status !== 'open') ?? 'open',
};
