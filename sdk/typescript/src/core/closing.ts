import type { Part } from './effect.js';
import { Frozen } from './frozen.js';
import type { History } from './history.js';
import type { ClosingEnd, Entry, StepName } from './message.js';
import { Named, type Step } from './step.js';

/** An undo whose turn has come: its body's name and number, and the step that the code gave it to, if it did. */
export interface Undo {
  readonly of: StepName;
  readonly id: number | undefined;
  /** A number that no other undo has. */
  readonly entry: number;
}

/**
 * A closing, in order (protocol, section 5): the function is played frozen, what it did is undone, the last first, then the
 * handler is called.
 */
export class Closing {
  /** The entries that the history had when the closing began: copies, since the function may change what it is shown. Empty until `begin`. */
  entries: readonly Entry[] = [];
  readonly frozen: Frozen;
  /** The handler's code plays. */
  isHandling = false;
  private readonly limit: number;
  private readonly handler: Part;
  private readonly history: History;
  /** The entries of undos that are not known to be done. */
  private left: Entry[] = [];
  /** The undos that the code asked for: the ids of their steps. */
  private readonly ids = new Named<number>();

  constructor({ entries }: ClosingEnd, handler: Part, history: History) {
    this.limit = entries;
    this.frozen = new Frozen(entries);
    this.handler = handler;
    this.history = history;
  }

  /** The whole history is here. True where the function has to be played for its undos. */
  begin(): boolean {
    const entries = this.history.unasked.filter((entry) => this.frozen.shows(entry));
    if (this.handler !== undefined) this.entries = structuredClone(entries);
    this.left = entries.filter(({ kind, status }) => kind === 'undo' && status === 'completed');
    return this.left.some((undo) => this.history.get(bodyOf(undo)) === undefined);
  }

  /** The code gave the undo its body. */
  asked(of: StepName, id: number): void {
    this.ids.set(of, id);
  }

  /** Whether the code has not asked for an undo that is not done: it may do so yet. */
  get isMissing(): boolean {
    return this.left.some(
      (undo) => this.ids.get(undo) === undefined && this.history.get(bodyOf(undo)) === undefined,
    );
  }

  /** What comes next, the code being at rest: an undo, also while it is under way, the handler or nothing more. */
  next(): Undo | Part {
    this.frozen.isOver = true;
    this.history.pass(this.limit);
    for (let undo = this.left.at(-1); undo !== undefined; undo = this.left.at(-1)) {
      const of = bodyOf(undo);
      const done = this.history.get(of);
      if (done === undefined) return { of, id: this.ids.get(undo), entry: undo.entry };
      this.history.pass(done.entry);
      this.left.pop();
    }
    this.isHandling = this.handler !== undefined;
    return this.handler;
  }
}

function bodyOf({ name, number }: StepName): StepName {
  return { name, number: number + 1 };
}

export function undoStep({ of, id, entry }: Undo, retries: number): Step {
  return {
    // Ids of steps that the code asked for are 0 or more.
    id: id ?? -entry,
    ...of,
    ask: { op: 'run', kind: 'run', retries },
    isOrderly: true,
    state: 'asked',
    attempt: 1,
    next: 'start',
  };
}
