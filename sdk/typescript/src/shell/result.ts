import { plainError } from '../core/thrown.js';
import { milliseconds } from '../duration.js';
import { RunCancelledError, RunFailedError, RunSkippedError, TimeoutError } from '../errors.js';
import type { ResultOptions, Run } from '../run.js';
import { type Address, exchange } from './http.js';
import { pause } from './pause.js';
import { type Clock, shared } from './process.js';
import type { Scope } from './scope.js';
import { persist } from './send.js';

/** How long the server holds a request for a run's end. */
const WAIT_MS = 30_000;
const MARGIN_MS = 10_000;
/** Requests follow one another no faster, whatever a server answers. */
const SPACING_MS = 500;

/** Waits for a run's end and gives its output, or throws what became of it. In a step it gives up with the attempt. */
export async function waitForResult(
  address: Address,
  runId: string,
  options: ResultOptions = {},
  scope?: Scope,
): Promise<unknown> {
  const { clock } = scope?.call ?? shared();
  const controller = new AbortController();
  for (const signal of [options.signal, scope?.kind === 'step' ? scope.signal : undefined]) {
    const abort = (): void => controller.abort(signal?.reason);
    signal?.addEventListener('abort', abort, { signal: controller.signal });
    if (signal?.aborted) abort();
  }
  const cancel = options.timeout === undefined ? () => {} : limit(clock, options, runId, controller);
  try {
    for (;;) {
      const askedAt = clock.now();
      const run = await getRun(address, runId, WAIT_MS, controller.signal);
      if (run.endedAt !== null && run.endedAt !== undefined) return outcome(run);
      if (clock.now() - askedAt < SPACING_MS) await pause(clock, SPACING_MS, controller.signal);
    }
  } finally {
    cancel();
    controller.abort();
  }
}

function limit(
  clock: Clock,
  { timeout }: ResultOptions,
  runId: string,
  controller: AbortController,
): () => void {
  const ms = milliseconds(timeout ?? 0, 'timeout');
  const error = new TimeoutError(`run ${runId} had not ended after ${ms} ms: it goes on`);
  return clock.after(ms, () => controller.abort(error));
}

/** The run as it is, or once it has ended within `waitMs`. */
export async function getRun(
  address: Address,
  runId: string,
  waitMs: number,
  signal?: AbortSignal,
): Promise<Run> {
  const path = `/v1/runs/${encodeURIComponent(runId)}${waitMs > 0 ? `?waitMs=${waitMs}` : ''}`;
  const limitMs = waitMs + MARGIN_MS;
  return (await persist(
    signal,
    () => exchange(address, shared().clock, { method: 'GET', path, limitMs, signal }),
    waitMs > 0,
  )) as Run;
}

function outcome(run: Run): unknown {
  switch (run.status) {
    case 'completed':
      return run.output;
    case 'cancelled':
      throw new RunCancelledError(run.id);
    case 'skipped':
      // Its error names the owner of the key.
      throw new RunSkippedError(run.id, (plainError(run.error) as { owner?: string }).owner ?? '');
    default: {
      const cause = plainError(run.error);
      throw new RunFailedError(
        run.id,
        `run ${run.id} of workflow '${run.workflow}' failed: ${cause.message}`,
        { cause },
      );
    }
  }
}
