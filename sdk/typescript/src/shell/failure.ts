import type { CallMessage, Entry } from '../core/message.js';
import { plainError } from '../core/thrown.js';
import type { Run, RunError } from '../run.js';
import type { Failure, SavedStep } from '../workflow.js';

/** What a handler is given. `entries` are those that the run had when it began to close. */
export function failureOf(
  { run, ending }: CallMessage,
  payload: unknown,
  entries: readonly Entry[],
): Failure<unknown> {
  // A copy: the function was given the same values when it was played.
  const steps = (JSON.parse(JSON.stringify(entries)) as Entry[]).map(
    ({ name, number, kind, status, output, error = null }) =>
      ({ name, number, kind, status, output, error }) as SavedStep,
  );
  const failure = { payload, run: recordOf({ run, ending } as CallMessage), steps };
  // A cancelled run has none.
  return (
    ending?.reason === 'cancelled' ? failure : { ...failure, error: plainError(ending?.error) }
  ) as Failure<unknown>;
}

function recordOf({ run, ending }: CallMessage): Run {
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
