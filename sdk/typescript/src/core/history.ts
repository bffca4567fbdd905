import type { Entry, StepName } from './message.js';
import { Named, type Step } from './step.js';

/** A step whose entry is known, on its way to the code. */
interface Ready {
  readonly step: Step;
  readonly entry: Entry;
}

/**
 * The run's history as far as it is here, and the entries on their way to the code.
 *
 * H1 rests on this: an entry is shown only when every entry before it is here. Calls, pages and saves bring all up to some
 * number. News leaves out what this playing saved itself, so that while a save is under way its entry may be one of those
 * between: such news is held until the save's answer is here.
 */
export class History {
  private readonly entries = new Named<Entry>();
  private readonly ready: Ready[] = [];
  private held: Entry[] = [];
  private shown = 0;
  private released = 0;
  private here = 0;
  /** Entries that the code has not asked for, by their numbers. */
  private readonly unshown = new Map<number, Entry>();

  /** The last entry that the code was shown or this playing has saved (H2). */
  get seen(): number {
    return this.shown;
  }

  /** The last entry that the code was shown: what its lines of the log go by. */
  get given(): number {
    return this.released;
  }

  /** The last entry that has come, shown or not. */
  get known(): number {
    return this.here;
  }

  /** The steps that the code has not asked for, in the history's order. A workflow's `once` is no step of the code (K4). */
  get unasked(): Entry[] {
    return [...this.unshown.values()].filter(({ name }) => name !== '').sort((a, b) => a.entry - b.entry);
  }

  get(of: StepName): Entry | undefined {
    return this.entries.get(of);
  }

  /** Takes an entry in; false where it was here. */
  add(entry: Entry): boolean {
    this.here = Math.max(this.here, entry.entry);
    if (this.entries.get(entry) !== undefined) return false;
    this.entries.set(entry, entry);
    this.unshown.set(entry.entry, entry);
    return true;
  }

  hold(entries: readonly Entry[]): void {
    this.held.push(...entries);
    for (const { entry } of entries) this.here = Math.max(this.here, entry);
  }

  /** What was held; the save that it waited for is answered. */
  takeHeld(): Entry[] {
    return this.held.splice(0);
  }

  /** This playing has saved an entry. */
  saved(entry: number): void {
    this.here = Math.max(this.here, entry);
    this.shown = Math.max(this.shown, entry);
  }

  /** The code needs to be shown nothing up to an entry: it has no use for it, or knows it otherwise. */
  pass(entry: number): void {
    this.shown = Math.max(this.shown, entry);
    this.released = Math.max(this.released, entry);
  }

  /** The code asks for a step, which may have an entry. */
  asked(of: StepName): void {
    const entry = this.entries.get(of);
    if (entry !== undefined) this.unshown.delete(entry.entry);
  }

  /** The step's entry is to be shown, in the history's order. */
  show(step: Step, entry: Entry): void {
    this.add(entry);
    this.unshown.delete(entry.entry);
    let at = this.ready.length;
    while (at > 0 && (this.ready[at - 1] as Ready).entry.entry > entry.entry) at--;
    this.ready.splice(at, 0, { step, entry });
  }

  /** The next entry to be shown, as shown. */
  next(): Ready | undefined {
    const next = this.ready.shift();
    if (next !== undefined) this.pass(next.entry.entry);
    return next;
  }
}
