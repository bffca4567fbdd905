import type { Duration } from '../duration.js';
import type { NewEvent, StoredEvent } from '../event.js';
import type { Log } from '../log.js';
import type { Args, ReplayOptions, RunError, RunStatus } from '../run.js';
import { refuseOthers } from '../shell/definition.js';
import type { StepContext } from '../step.js';
import type { Workflow } from '../workflow.js';
import { LiveRun } from './live.js';
import type { FromOutside } from './outside.js';
import { optionNames, playable, stageFor, startIn } from './stage.js';

/** A function in place of a step's. It is given the step's context, and which of the steps of that name it is. */
export type FakeStep = (context: StepContext, step: { name: string; number: number }) => unknown;

/** What stands in for a workflow: another workflow, or a function that is given its payload and gives its output. */
export type FakeWorkflow = Workflow | ((payload: any) => unknown);

export interface TestOptions {
  /** Functions in place of those of `step.run`, by the step's name. A function alone stands in for the step's own, not its `check`. */
  steps?: Record<string, FakeStep | { run?: FakeStep; check?: FakeStep }>;
  /** What comes from outside, in this order: each event, post to a callback or cancellation, as soon as the run waits for it. */
  events?: readonly FromOutside[];
  /**
   * What runs under a name. Without it the workflow objects that the code names are played too; what it names by a reference
   * (`nelkap.ref`) must be given here to be invoked.
   */
  workflows?: Record<string, FakeWorkflow>;
  /** The name of the event that starts the run: `context.event` is there then, with the run's payload. */
  event?: string;
  /** The run's key, as `context.run` shows it. */
  key?: string;
  /** Keys of `step.claim` and `once` that another run owns. */
  claimed?: readonly string[];
  /** What filters (`if`) give, by their text: for those in a part of CEL that the kit does not evaluate. */
  filters?: Record<string, (event: StoredEvent) => boolean>;
  /** When the run is created; now, without it. */
  now?: Date | string;
  /** Where messages go; without it nowhere but `run.logs`. */
  logger?: Log;
}

/** A step of a run. */
export interface TestStep {
  readonly name: string;
  /** Which of the steps of that name, counted from 1. */
  readonly number: number;
  readonly kind: 'run' | 'sleep' | 'event' | 'invoke' | 'claim' | 'callback' | 'undo';
  /** `retrying`: it threw and is tried again. `waiting`: what it waits for has not come. */
  readonly status: 'completed' | 'failed' | 'retrying' | 'waiting';
  readonly output: unknown;
  readonly error: RunError | null;
  /** How often its function was tried; a try that was cut off does not count. */
  readonly attempts: number;
}

/** A line of a run's log. */
export interface TestLine {
  readonly at: Date;
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly message: string;
  /** As they come back after JSON; `{ dropped }` says why where they could not be kept. */
  readonly fields?: unknown;
  /** The step whose function wrote it; null for code outside steps. */
  readonly step: string | null;
  readonly attempt: number;
}

/** What a run waits for. */
export interface TestWait {
  readonly name: string;
  readonly number: number;
  readonly kind: 'run' | 'sleep' | 'event' | 'invoke' | 'callback' | 'start';
  /** Of an event's wait: the names that it takes. */
  readonly events?: readonly string[];
  /** When time ends it. */
  readonly until: Date | null;
}

/**
 * A run in the kit's world, as it is now. Its time is virtual and stands still until it is told to go on; only the pauses of
 * retries pass by themselves. What its methods give is the run itself, once it has ended or waits again. One at a time: await each
 * before the next.
 */
export interface TestRun<Output = unknown> {
  readonly id: string;
  readonly workflow: string;
  readonly payload: unknown;
  readonly status: RunStatus;
  /** What the workflow returned, as it comes back after JSON; undefined until the run has completed. */
  readonly output: Output | undefined;
  /** Why the run has failed; null where it has not. */
  readonly error: RunError | null;
  /** How often the workflow's function was called. */
  readonly calls: number;
  /** The virtual time. */
  readonly now: Date;
  /** The lines of the run's log, each once, in the order in which they were written. */
  readonly logs: readonly TestLine[];
  /**
   * The saved steps in the order of the history, then those that are retried or waited for. A run that began again has those since
   * then. What was undone is there too, after the step of kind `undo` that said it, under the same name.
   */
  readonly steps: readonly TestStep[];
  /** What the run waits for; nothing once it has ended. */
  readonly waitingFor: readonly TestWait[];
  /** The events of this world, emitted by steps and by the test, in order. */
  readonly events: readonly StoredEvent[];
  /** The other runs of this world: children, runs that steps started, replays. */
  readonly others: readonly TestRun[];
  /** The first step of a name, or undefined. */
  step(name: string): TestStep | undefined;
  /** Lets so much time pass. Without a duration: until the next sleep, timeout or start is due. */
  skip(duration?: Duration): Promise<this>;
  /**
   * Lets time pass until the run has ended; a wait with a timeout comes to that. Fails with a sentence where only something from
   * outside would bring it on.
   */
  end(): Promise<this>;
  /** Emits an event, at once. */
  emit(event: NewEvent): Promise<this>;
  /** Posts to a callback: by the name of its step, its URL or its token. Fails where none such is open. */
  post(callback: string, payload?: unknown): Promise<this>;
  /** Asks for the run's end, as `nelkap.cancel` does. */
  cancel(): Promise<this>;
  /** Starts a new run of the same workflow, as `nelkap.replay` does: every step runs again, or those from a step on. */
  replay(options?: ReplayOptions): Promise<TestRun<Output>>;
}

/**
 * Runs a workflow in this process, without a server: the SDK plays it as in production against a server in miniature, in memory.
 * Resolves when the run has ended or waits for time or for something from outside.
 *
 * Every step runs for real unless a fake stands in its place. Runs that its steps start or invoke are played too, events that they
 * emit are kept, and start nothing. Virtual time does not change what `Date.now()` gives. It rejects where the kit itself can't go on, never because
 * the run fails: look at `status` and `error`.
 */
export async function testRun<Input, Output>(
  workflow: Workflow<Input, Output>,
  ...args: Args<Input, TestOptions>
): Promise<TestRun<Output>> {
  const [payload, options = {}] = args as [unknown, TestOptions?];
  refuseOthers(options, optionNames, 'testRun');
  const definition = playable(workflow);
  const stage = stageFor(definition, options);
  const state = startIn(stage, definition, payload, options);
  return new LiveRun<Output>(stage, state).on();
}
