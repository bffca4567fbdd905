import type { NewEvent } from '../event.js';
import type { World } from './world.js';

/**
 * What comes from outside while a run goes on: an event, a post to a callback, by the name of its step, or the run's cancellation,
 * which comes as soon as it waits for anything.
 */
export type FromOutside = NewEvent | { callback: string; payload?: unknown } | { cancel: true };

/**
 * When events come. `in time`: as soon as the run waits for them. `early`: as soon as the run exists, before it waits. `late`: when
 * nothing else can happen any more but that a wait times out. `twice`: in time, and once more right after that.
 */
export type Timing = 'in time' | 'early' | 'late' | 'twice';

/** A list of what comes from outside, each given once, in its time. */
export class Outside {
  private readonly world: World;
  private readonly timing: Timing;
  private left: FromOutside[];
  /** What came early, and is kept for waits that look back no further than to their own start: to them it comes now. */
  private readonly came = new Set<FromOutside>();

  constructor(world: World, given: readonly FromOutside[], timing: Timing) {
    this.world = world;
    this.timing = timing;
    this.left = [...given];
  }

  /** The run has been started. An event stays in the list for waits that look back no further than to their own start. */
  begin(): void {
    if (this.timing !== 'early') return;
    for (const each of this.left) {
      if ('callback' in each) continue;
      this.bring(each);
      this.came.add(each);
    }
  }

  /** A step has made a callback. */
  callbackMade(step: string): void {
    if (this.timing === 'early') this.giveFirst((each) => 'callback' in each && each.callback === step);
  }

  /** Gives the first that is waited for; false where there is none. */
  give(): boolean {
    return this.giveFirst((each) => this.isAwaited(each));
  }

  private giveFirst(is: (each: FromOutside) => boolean): boolean {
    const at = this.left.findIndex(is);
    const [first] = at === -1 ? [] : this.left.splice(at, 1);
    if (first === undefined) return false;
    for (let times = this.timing === 'twice' ? 2 : 1; times > 0; times--) this.bring(first);
    return true;
  }

  private bring(each: FromOutside): void {
    if ('event' in each) return void this.world.emit(each, this.came.has(each));
    if ('cancel' in each) return this.cancel();
    const run = this.world.runs.find(({ callbacks }) => callbacks.some(({ name }) => name === each.callback));
    if (run !== undefined) this.world.post(run, each.callback, each.payload);
  }

  /** Cancels a run that nobody has invoked: one that waits, if any does. */
  private cancel(): void {
    const runs = this.world.runs.filter(({ hasEnded, parent }) => !hasEnded && parent === undefined);
    const run = runs.find(({ status }) => status === 'waiting') ?? runs[0];
    if (run !== undefined) this.world.cancel(run);
  }

  private isAwaited(each: FromOutside): boolean {
    const { runs } = this.world;
    if ('cancel' in each)
      return runs.some(({ status, parent, closing }) => {
        return status === 'waiting' && parent === undefined && closing === undefined;
      });
    if ('callback' in each) {
      return runs.some(
        ({ hasEnded, waits }) =>
          !hasEnded && waits.some(({ item }) => item.kind === 'callback' && item.name === each.callback),
      );
    }
    const event = { id: '', ...each } as { id: string; event: string; payload: never };
    return runs.some(
      (run) =>
        !run.hasEnded &&
        (run.waits.some((wait) => this.counts(wait.item.since) && this.world.fits(wait, event)) ||
          (this.timing !== 'early' && run.status === 'waiting' && this.world.cancels(run, event))),
    );
  }

  private counts(since: 'run' | 'wait' | undefined): boolean {
    return this.timing !== 'early' || since === 'wait';
  }
}
