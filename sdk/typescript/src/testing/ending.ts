import type { ClosingEnd, EndMessage } from '../core/message.js';
import type { RunStatus } from '../run.js';
import { pauseMs } from './save.js';
import { failure, type RunState, type Waiting } from './state.js';
import type { World } from './world.js';

const ENDING_MS = 30_000;

/** How runs come to their ends: they are cancelled, fail and begin again, close, and get their final status (Z1, Z2). */
export class Endings {
  private readonly world: World;

  constructor(world: World) {
    this.world = world;
  }

  cancel(run: RunState, reason: 'cancelled' | 'timedOut'): void {
    if (run.hasEnded || run.ending !== undefined || run.closing !== undefined) return;
    run.ending = { reason };
    if (run.process === undefined) return this.conclude(run);
    run.endingAt = this.world.now + ENDING_MS;
    this.world.tell(run, 'ending');
  }

  /** The call of an ending run is over. */
  conclude(run: RunState): void {
    const { reason = 'cancelled' } = run.ending ?? {};
    run.ending = undefined;
    run.endingAt = undefined;
    run.process = undefined;
    const error = { name: 'TimeoutError', message: 'the run did not end within its timeout' };
    this.close(run, reason === 'cancelled' ? { reason } : { reason, error });
  }

  /** The code outside steps threw. In a closing that stands in no record but the log's. */
  failed(run: RunState, { error, retriable, retries = 0, retryAfterMs }: EndMessage): void {
    if (retriable !== true || run.attempt > retries) {
      return run.closing === undefined ? this.close(run, { reason: 'failed', error }) : this.closed(run);
    }
    run.dueAt = this.world.now + (retryAfterMs ?? pauseMs(run.attempt));
    run.isBackingOff = true;
    run.attempt += 1;
    run.status = 'waiting';
  }

  /** The run begins again in its place. */
  restart(run: RunState, end: EndMessage): void {
    this.closeWaits(run);
    run.restart('payload' in end ? { value: end.payload } : {});
    this.world.enqueue(run);
  }

  /** The code that has ended the run is called once more where there is something to undo, or to be told. */
  private close(run: RunState, end: Omit<ClosingEnd, 'entries'>): void {
    this.closeWaits(run);
    run.closing = { ...end, entries: run.entries.length };
    const { part } = run;
    const handler = end.reason === 'cancelled' ? 'onCancel' : 'onFailure';
    const isHandled = part !== undefined && 'definition' in part && part.definition[handler] !== undefined;
    if (!isHandled && run.entries.every(({ kind }) => kind !== 'undo')) return this.closed(run);
    run.attempt = 1;
    run.cuts = 0;
    this.world.enqueue(run);
  }

  private closeWaits(run: RunState): void {
    for (const { child } of run.waits.splice(0)) {
      if (child === undefined) continue;
      child.parent = undefined;
      this.cancel(child, 'cancelled');
    }
    run.forgetRetries();
  }

  /** A closing has done what it had to do. */
  private closed(run: RunState): void {
    const { reason, error = null } = run.closing ?? {};
    if (reason === 'cancelled') this.finish(run, 'cancelled', {});
    else this.finish(run, 'failed', { error });
  }

  /** The code returned. */
  completed(run: RunState, { output }: EndMessage): void {
    if (run.closing === undefined) this.finish(run, 'completed', { output });
    else this.closed(run);
  }

  finish(
    run: RunState,
    status: RunStatus,
    { output, error = null }: { output?: unknown; error?: unknown },
  ): void {
    if (run.hasEnded) return;
    Object.assign(run, { status, output, error, endedAt: this.world.now, dueAt: undefined, trees: [] });
    this.world.ended(run);
    this.closeWaits(run);
    if (run.parent !== undefined) this.childEnded(run, run.parent.run, run.parent.wait);
    for (const then of run.onEnd.splice(0)) then();
  }

  private childEnded(child: RunState, parent: RunState, { item }: Waiting): void {
    const ways: Partial<Record<RunStatus, object>> = {
      completed: { status: 'completed', ...(child.output !== undefined && { output: child.output }) },
      cancelled: failure('RunCancelledError', `the child run ${child.id} was cancelled`),
      skipped: {
        ...failure('RunSkippedError', `the run was skipped: run ${child.owner} owns its key`, {
          owner: child.owner,
        }),
      },
    };
    this.world.come(parent, item, ways[child.status] ?? { status: 'failed', error: child.error });
  }
}
