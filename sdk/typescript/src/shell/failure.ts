import type { ClosingEnd, Entry, RunMessage } from '../core/message.js';
import { plainError } from '../core/thrown.js';
import type { Run, RunError } from '../run.js';
import type { Failure, SavedStep } from '../workflow.js';

/** What a handler is given, for it to keep. `entries` are those that the run had when it began to close. */
export function failureOf(
  run: RunMessage,
  ending: ClosingEnd | undefined,
  payload: unknown,
  entries: readonly Entry[],
): Failure<unknown> {
  const steps = entries.map(
    ({ name, number, kind, status, output, error = null }) =>
      ({ name, number, kind, status, output, error }) as SavedStep,
  );
  const failure = { payload, run: recordOf(run, ending), steps };
  // A cancelled run has none.
  return (
    ending?.reason === 'cancelled' ? failure : { ...failure, error: plainError(ending?.error) }
  ) as Failure<unknown>;
}

function recordOf(run: RunMessage, ending: ClosingEnd | undefined): Run {
  const { id, workflow, app, payload, event, key, replayOf, attempt, createdAt } = run;
  return {
    id,
    workflow,
    app,
    status: ending?.reason === 'cancelled' ? 'cancelled' : 'failed',
    payload: payload ?? null,
    output: null,
    error: (ending?.error ?? null) as RunError | null,
    event: event?.event ?? null,
    eventId: event?.id ?? null,
    key,
    replayOf,
    attempt,
    createdAt,
    startedAt: null,
    endedAt: null,
    cancelRequestedAt: null,
    waitingFor: null,
  };
}
