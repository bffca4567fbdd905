/** Something that time brings. */
export interface Due {
  readonly at: number;
  /** It passes by itself: the pause of a retry. */
  readonly isAuto?: boolean;
  /** It ends what someone outside could have ended before. */
  readonly isTimeout?: boolean;
  readonly fire: () => void;
}

/** Timers of processes, and events that are emitted later. */
export class Timers {
  private readonly set = new Set<Due>();

  after(now: number, ms: number, then: () => void): () => void {
    const timer: Due = {
      at: now + Math.max(0, ms),
      fire: () => {
        this.set.delete(timer);
        then();
      },
    };
    this.set.add(timer);
    return () => void this.set.delete(timer);
  }

  dues(): Iterable<Due> {
    return this.set;
  }
}
