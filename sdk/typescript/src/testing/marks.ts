import { current } from './process.js';

/** A mark as it was left. */
export interface Mark {
  readonly mark: string;
  /** The step whose function left it; null for code outside steps. */
  readonly step: string | null;
  /** The workflow whose run left it; null outside any run. */
  readonly workflow: string | null;
  /** Which call of the world it was, counted from 1; 0 outside any. */
  readonly call: number;
}

export interface LeaveOptions {
  /** As a service that takes a key: a request whose key it has seen leaves no mark. */
  idempotencyKey?: string | undefined;
}

/**
 * What a workflow leaves outside: a charge, an email, a row. A test's fakes of what is outside tell it here, each mark under a
 * text that says what may be there once, such as `charge o_1`.
 */
export class Marks {
  private left: Mark[] = [];
  private readonly keys = new Set<string>();

  /** Every mark, in the order in which they were left. */
  get list(): readonly Mark[] {
    return this.left;
  }

  /**
   * Leaves a mark, at once. True where it was left, false where the `idempotencyKey` had been seen. Await it in the fake:
   * `crashEverywhere` cuts the code off right there too, and then the promise never settles. Not awaited, the body runs on to
   * its end after such a cut.
   */
  leave(mark: string, { idempotencyKey }: LeaveOptions = {}): Promise<boolean> {
    if (idempotencyKey !== undefined) {
      if (this.keys.has(idempotencyKey)) return Promise.resolve(false);
      this.keys.add(idempotencyKey);
    }
    const place = current();
    this.left.push({
      mark,
      step: place?.step ?? null,
      workflow: place?.process.run.workflow ?? null,
      call: place?.process.number ?? 0,
    });
    return place?.process.hasLeft(mark, place.step) === true ? new Promise(() => {}) : Promise.resolve(true);
  }

  /** How often a mark was left; of any, without one. */
  count(mark?: string): number {
    return mark === undefined ? this.left.length : this.left.filter((each) => each.mark === mark).length;
  }

  /** Whether a mark is there: what a look into the service, or an upsert, goes by. */
  has(mark: string): boolean {
    return this.count(mark) > 0;
  }

  /** Forgets all marks, and the keys that were seen. `crashEverywhere` does it before each scenario. */
  clear(): void {
    this.left = [];
    this.keys.clear();
  }
}

/** Counts what a workflow leaves outside. */
export function marks(): Marks {
  return new Marks();
}

/** The first mark that was left twice, as a sentence; undefined where each is there once at most. */
export function leftTwice(all: readonly Marks[]): string | undefined {
  for (const { list } of all) {
    const first = new Map<string, Mark>();
    for (const mark of list) {
      const before = first.get(mark.mark);
      if (before !== undefined)
        return `the mark '${mark.mark}' was left twice: by ${whoLeft(before)}, then by ${whoLeft(mark)}`;
      first.set(mark.mark, mark);
    }
  }
  return undefined;
}

function whoLeft({ step, workflow, call }: Mark): string {
  if (workflow === null) return 'code outside any run';
  const who = step === null ? `code of '${workflow}' outside its steps` : `step '${step}' of '${workflow}'`;
  return `${who} in call ${call}`;
}
