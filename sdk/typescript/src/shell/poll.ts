import type { Call } from './call.js';
import type { Destination } from './destination.js';
import { pause, pauseMs } from './pause.js';

/** A call is named once it is this old; most end sooner (C7). */
const NAMED_AFTER_MS = 500;
/** A list that grew replaces the open poll at most twice a second (C7). */
const REPLACED_AFTER_MS = 500;
const WAIT_MAX_MS = 5_000;
/** Polls follow one another no faster, whatever a server answers. */
const SPACING_MS = 100;

/** The heartbeat: one long poll that names the calls of a destination and brings news of them (C1, C7). */
export class Poll {
  private readonly destination: Destination;
  private active = false;
  private fails = 0;
  /** The open poll: which calls it names, since when, and how to end it. */
  private open: { named: ReadonlySet<Call>; since: number; controller: AbortController } | undefined;
  private timer: (() => void) | undefined;

  constructor(destination: Destination) {
    this.destination = destination;
  }

  /** A call came (`call`), went, or became urgent (`call`). */
  changed(call?: Call): void {
    if (this.destination.calls.size === 0) this.stop();
    else if (!this.active) this.begin();
    else if (call !== undefined && this.open?.named.has(call) === false) this.replace(this.open);
  }

  private stop(): void {
    this.cancelTimer();
    this.open?.controller.abort();
  }

  private begin(): void {
    const waitMs = this.untilNeeded();
    if (waitMs <= 0) {
      this.cancelTimer();
      this.active = true;
      void this.go();
    } else {
      this.timer ??= this.destination.clock.after(waitMs, () => {
        this.timer = undefined;
        this.changed();
      });
    }
  }

  private cancelTimer(): void {
    this.timer?.();
    this.timer = undefined;
  }

  /** Milliseconds until some call must be named. The oldest comes first in the map. */
  private untilNeeded(): number {
    const { calls, urgent, clock } = this.destination;
    const [oldest] = calls.values();
    if (oldest === undefined || urgent.size > 0) return 0;
    const ageMs = clock.now() - oldest.since;
    // A clock that was set back does not tell.
    return ageMs < 0 ? 0 : NAMED_AFTER_MS - ageMs;
  }

  /** The list grew. */
  private replace({ since, controller }: { since: number; controller: AbortController }): void {
    const { clock } = this.destination;
    this.timer ??= clock.after(Math.max(0, since + REPLACED_AFTER_MS - clock.now()), () => {
      this.timer = undefined;
      controller.abort();
    });
  }

  private async go(): Promise<void> {
    const { calls, clock } = this.destination;
    while (calls.size > 0 && this.untilNeeded() <= 0) {
      const startedAt = clock.now();
      const { isAnswered, isReplaced } = await this.round();
      if (isReplaced) continue;
      this.fails = isAnswered ? 0 : this.fails + 1;
      const half = this.destination.heartbeatMs / 2;
      if (!isAnswered) await pause(clock, pauseMs(this.fails - 1, half));
      else if (clock.now() - startedAt < SPACING_MS) await pause(clock, SPACING_MS);
    }
    this.active = false;
    this.changed();
  }

  private async round(): Promise<{ isAnswered: boolean; isReplaced: boolean }> {
    const controller = new AbortController();
    const named = new Set(this.destination.calls.values());
    this.open = { named, since: this.destination.clock.now(), controller };
    const isAnswered = await this.ask(named, controller);
    this.open = undefined;
    this.cancelTimer();
    return { isAnswered, isReplaced: controller.signal.aborted };
  }

  private async ask(named: ReadonlySet<Call>, controller: AbortController): Promise<boolean> {
    const waitMs = Math.min(WAIT_MAX_MS, this.destination.heartbeatMs);
    const body = { calls: Array.from(named, (call) => ({ ...call.fence, seen: call.known })), waitMs };
    try {
      const answer = await this.destination.send('/v1/heartbeats', body, waitMs, controller.signal);
      for (const news of answer.calls ?? []) {
        this.destination.calls.get(news.nonce)?.news(news);
      }
      return Array.isArray(answer.calls);
    } catch {
      return false;
    }
  }
}
