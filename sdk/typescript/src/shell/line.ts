import { pauseMs } from './pause.js';
import type { Clock } from './process.js';

/** How a round went: there was nothing to send, it was answered, or it is to be tried again after a pause. */
export type Round = 'idle' | 'answered' | 'again';

/** Rounds of sending, one at a time: what arrives during one goes into the next (group commit). */
export class Line {
  private active = false;
  private fails = 0;
  private readonly clock: Clock;
  private readonly round: () => Promise<Round>;
  private readonly pauseMaxMs: () => number;

  constructor(clock: Clock, round: () => Promise<Round>, pauseMaxMs: () => number) {
    this.clock = clock;
    this.round = round;
    this.pauseMaxMs = pauseMaxMs;
  }

  /** Says that there may be something to send. */
  nudge(): void {
    if (this.active) return;
    this.active = true;
    // A microtask later, so that all that one moment brings travels together. By a promise: fake timers may hold up queueMicrotask.
    void Promise.resolve().then(() => this.go());
  }

  private async go(): Promise<void> {
    let round = await this.round();
    for (; round === 'answered'; round = await this.round()) this.fails = 0;
    if (round === 'idle') {
      this.active = false;
      return;
    }
    this.clock.after(pauseMs(this.fails++, this.pauseMaxMs()), () => void this.go());
  }
}
