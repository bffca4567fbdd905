import { encode } from '../core/value.js';
import { type Duration, milliseconds } from '../duration.js';
import type { NewEvent, StoredEvent } from '../event.js';
import type { ReplayOptions, RunError, RunStatus } from '../run.js';
import type { TestLine, TestRun, TestStep, TestWait } from './run.js';
import { playToEnd, type Stage, stuck } from './stage.js';
import type { RunState } from './state.js';

/** See `TestRun`. */
export class LiveRun<Output = unknown> implements TestRun<Output> {
  readonly id: string;
  private readonly state: RunState;
  private readonly stage: Stage;

  constructor(stage: Stage, state: RunState) {
    this.stage = stage;
    this.state = state;
    this.id = state.id;
  }

  get status(): RunStatus {
    return this.state.status;
  }

  get output(): Output | undefined {
    return this.state.output as Output | undefined;
  }

  get error(): RunError | null {
    return (this.state.error ?? null) as RunError | null;
  }

  get calls(): number {
    return this.state.calls;
  }

  get now(): Date {
    return new Date(this.stage.world.now);
  }

  get logs(): readonly TestLine[] {
    return Array.from(this.state.lines.values(), ({ at, level, message, fields, step, attempt }) => ({
      at: new Date(at),
      level,
      message,
      ...(fields !== undefined && { fields: fields.decode() }),
      step: step?.name ?? null,
      attempt,
    }));
  }

  get steps(): readonly TestStep[] {
    const { entries, retries, waits } = this.state;
    const open = { output: undefined, error: null };
    return [
      ...entries
        .filter(({ name }) => name !== '')
        .map(({ name, number, kind, status, output, error, attempts = 1 }) => {
          return { name, number, kind, status, output, error: error ?? null, attempts } as TestStep;
        }),
      ...Array.from(retries, ({ name, number, attempt }) => {
        return { name, number, kind: 'run', status: 'retrying', attempts: attempt, ...open } as const;
      }),
      ...waits.map(({ item: { name, number, kind } }) => {
        return { name, number, kind, status: 'waiting', attempts: 1, ...open } as TestStep;
      }),
    ];
  }

  step(name: string): TestStep | undefined {
    return this.steps.find((step) => step.name === name);
  }

  get waitingFor(): readonly TestWait[] {
    const { waits, hasEnded, dueAt, process } = this.state;
    if (hasEnded) return [];
    const until = (at: number | undefined): Date | null => (at === undefined ? null : new Date(at));
    return [
      ...(dueAt === undefined ? [] : [{ name: '', number: 1, kind: 'start' as const, until: until(dueAt) }]),
      ...(process?.blocked ?? []).map((name) => ({ name, number: 1, kind: 'run' as const, until: null })),
      ...waits.map(({ item: { name, number, kind, events }, dueAt: at }) => {
        return { name, number, kind, ...(events !== undefined && { events }), until: until(at) } as TestWait;
      }),
    ];
  }

  get events(): readonly StoredEvent[] {
    return this.stage.world.events;
  }

  get others(): readonly TestRun[] {
    return this.stage.world.runs
      .filter((run) => run !== this.state)
      .map((run) => new LiveRun(this.stage, run));
  }

  get workflow(): string {
    return this.state.workflow;
  }

  get payload(): unknown {
    return this.state.payload.value;
  }

  async skip(duration?: Duration): Promise<this> {
    const { world } = this.stage;
    const ms =
      duration === undefined
        ? (world.nextDue()?.at ?? world.now) - world.now
        : milliseconds(duration, 'skip');
    await world.pass(Math.max(0, ms));
    return this.on();
  }

  async end(): Promise<this> {
    await playToEnd(this.stage, () => this.state.hasEnded);
    if (!this.state.hasEnded) throw stuck(this);
    return this;
  }

  async emit(event: NewEvent): Promise<this> {
    this.stage.world.emit(event);
    return this.on();
  }

  async post(callback: string, payload?: unknown): Promise<this> {
    if (!this.stage.world.post(this.state, callback, payload))
      throw new Error(
        `no callback '${callback}' is open: it was not made yet, was posted to before, or its time or run is over`,
      );
    return this.on();
  }

  async cancel(): Promise<this> {
    this.stage.world.cancel(this.state);
    return this.on();
  }

  async replay(options: ReplayOptions = {}): Promise<TestRun<Output>> {
    const { world } = this.stage;
    const payload = encode(options.payload, 'payload');
    const body = { ...options, payload: payload?.decode() };
    const run = world.sends.startReplay(this.state, body);
    if (run === undefined) throw new RangeError(`the run has no saved step '${options.from}' to replay from`);
    return new LiveRun<Output>(this.stage, run).on();
  }

  /** Plays until nothing happens without time or the test. */
  async on(): Promise<this> {
    do await this.stage.world.play();
    while (this.stage.outside.give());
    return this;
  }
}
