import type { Args, RunStatus } from '../run.js';
import { type Definition, refuseOthers } from '../shell/definition.js';
import type { Workflow } from '../workflow.js';
import { leftTwice, type Marks } from './marks.js';
import type { Timing } from './outside.js';
import { describePoint, type Point } from './point.js';
import type { Process } from './process.js';
import { LiveRun } from './live.js';
import type { TestOptions, TestRun } from './run.js';
import { optionNames, playable, playToEnd, type Stage, stageFor, startIn, stuck } from './stage.js';
import type { RunState } from './state.js';

/** One way to play the run. */
export interface Scenario {
  /** Plays only this one again: `crashEverywhere(…, { only })`. */
  readonly name: string;
  /** What happened, in words. */
  readonly story: string;
}

export interface CrashOptions<Output = unknown> extends TestOptions {
  /** Counters of what was left outside: no mark may be left twice. They are cleared before each scenario. */
  marks?: Marks | readonly Marks[];
  /** Called before each scenario: puts what the test's fakes remember back to the beginning. */
  before?: () => unknown;
  /** Called after each scenario, with its run as it ended. What it throws fails the scenario. */
  check?: (run: TestRun<Output>, scenario: Scenario) => unknown;
  /** How the run may end; without it only as it ends when nothing cuts it off. */
  mayEnd?: readonly RunStatus[];
  /** When events come; without it in every way. */
  timings?: readonly Timing[];
  /** Plays two runs of the payload too, as an event that is emitted twice starts them: for what may happen once per order. */
  startedTwice?: boolean;
  /** Plays a replay after each run too, in which every step runs again. */
  replayed?: boolean;
  /** Plays only the scenario of this name. */
  only?: string;
  /** Scenarios that are played at most (default 1,000). */
  scenariosMax?: number;
  /** Functions of steps that run at most, over all scenarios (default 100,000). */
  stepsMax?: number;
}

/** What was played. */
export interface CrashReport {
  readonly scenarios: number;
  /** Of these, how many were cut off somewhere. */
  readonly cuts: number;
  /** How often functions of steps ran. */
  readonly steps: number;
}

/** A scenario failed. Its `cause` is what `check` threw, where that is what failed it. */
export class CrashError extends Error {
  override name = 'CrashError';
  readonly scenario: Scenario;
  constructor(message: string, scenario: Scenario, options?: ErrorOptions) {
    super(message, options);
    this.scenario = scenario;
  }
}

const SCENARIOS_MAX = 1_000;
const STEPS_MAX = 100_000;

const ownOptionNames = [
  'marks',
  'before',
  'check',
  'mayEnd',
  'timings',
  'startedTwice',
  'replayed',
  'only',
  'scenariosMax',
  'stepsMax',
];

/** How a scenario differs, beside where it is cut off. */
interface Variant {
  readonly name: string;
  readonly timing: Timing;
  readonly story: string;
  readonly second?: 'run' | 'replay';
}

/**
 * Proves that a workflow is safe to run twice. Plays its run again and again, and cuts it off once in each: before every save, after
 * every save but before the app hears of it, after the body of every step, after every mark, and before every answer; each with its
 * events in time, early, late and twice. Each scenario is played until the run has ended.
 *
 * Fails with a `CrashError` at the first scenario in which a mark was left twice, code outside steps started a run or emitted an event
 * again, the run ended otherwise than it does undisturbed, or `check` threw. Its message says what had happened, and how to play that
 * scenario alone.
 *
 * A call that is cut off is as one whose process was killed: nothing of it goes on, but for functions of steps that run, which are let
 * run to their end before the run is picked up. So what it can't show is two attempts that overlap: for a `check` the server waits
 * until the older one has stopped; a look inside the step's own function has no such help.
 */
export async function crashEverywhere<Input, Output>(
  workflow: Workflow<Input, Output>,
  ...args: Args<Input, CrashOptions<Output>>
): Promise<CrashReport> {
  const [payload, options = {}] = args as [unknown, CrashOptions<Output>?];
  refuseOthers(options, [...optionNames, ...ownOptionNames], 'crashEverywhere');
  const crash = new Crash(playable(workflow), payload, options as CrashOptions);
  for (const variant of variantsOf(options as CrashOptions)) await crash.playEverywhere(variant);
  return crash.report();
}

function variantsOf({ events = [], timings, startedTwice, replayed }: CrashOptions): Variant[] {
  const stories: Record<Timing, string> = {
    'in time': '',
    early: 'its events came before it waited for them',
    late: 'its events came as late as they could',
    twice: 'each event came twice',
  };
  const all: readonly Timing[] = timings ?? ['in time', 'early', 'late', 'twice'];
  const variants: Variant[] = (events.length === 0 ? (['in time'] as const) : all).map((timing) => ({
    name: timing,
    timing,
    story: stories[timing],
  }));
  const inTime = { timing: 'in time' } as const;
  if (startedTwice === true)
    variants.push({ ...inTime, name: 'started twice', second: 'run', story: 'the run was started twice' });
  if (replayed === true)
    variants.push({ ...inTime, name: 'replayed', second: 'replay', story: 'it was replayed after its end' });
  return variants;
}

/** Cuts off at the n-th place that a run comes to. */
class Knife {
  story: string | undefined;
  private left: number;

  constructor(at: number | undefined) {
    this.left = at ?? Infinity;
  }

  cutsHere(process: Process, point: Point, workflow: string): boolean {
    if (this.left === 0) return false;
    this.left -= 1;
    if (this.left !== 0) return false;
    const whose = process.run.workflow === workflow ? '' : ` of '${process.run.workflow}'`;
    this.story = `call ${process.number}${whose} was cut off ${describePoint(point)}`;
    return true;
  }
}

class Crash {
  private scenarios = 0;
  private cuts = 0;
  private steps = 0;
  private readonly only: { variant: string; at: number | undefined } | undefined;
  private readonly definition: Definition;
  private readonly payload: unknown;
  private readonly options: CrashOptions;
  private readonly marks: readonly Marks[];
  /** How the run ends undisturbed, by variant. */
  private readonly endings = new Map<string, ReadonlySet<RunStatus>>();

  constructor(definition: Definition, payload: unknown, options: CrashOptions) {
    this.definition = definition;
    this.payload = payload;
    this.options = options;
    const { marks = [], only } = options;
    this.marks = Array.isArray(marks) ? marks : [marks as Marks];
    this.only = only === undefined ? undefined : parse(only);
  }

  report(): CrashReport {
    const { scenarios, cuts, steps } = this;
    if (scenarios === 0)
      throw new RangeError(
        `there is no scenario '${this.options.only}': its name is in the message of the failure`,
      );
    return { scenarios, cuts, steps };
  }

  async playEverywhere(variant: Variant): Promise<void> {
    if (this.only !== undefined && this.only.variant !== variant.name) return;
    // What the undisturbed run comes to is what the others are held against, so it is played in any case.
    await this.play(variant, undefined);
    if (this.only?.at !== undefined) return void (await this.play(variant, this.only.at));
    for (let at = 1; this.only === undefined && (await this.play(variant, at)); at++);
  }

  /** Plays one scenario; false where the run ended before it came to the place. */
  private async play(variant: Variant, at: number | undefined): Promise<boolean> {
    const knife = new Knife(at);
    const { name } = this.definition;
    for (const each of this.marks) each.clear();
    await this.options.before?.();
    const stage = stageFor(this.definition, {
      ...this.options,
      timing: variant.timing,
      cutsHere: (process, point) => knife.cutsHere(process, point, name),
      onBody: () => this.countStep(),
    });
    const scenario = (): Scenario => ({
      name: `${variant.name}, ${at === undefined ? 'uncut' : `cut ${at}`}`,
      story: storyOf(variant, knife),
    });
    const runs = await this.playRuns(stage, variant, scenario);
    if (at !== undefined && knife.story === undefined) return false;
    this.countScenario(at !== undefined);
    await this.judge(stage, runs, variant, scenario());
    return true;
  }

  private async playRuns(stage: Stage, variant: Variant, scenario: () => Scenario): Promise<RunState[]> {
    const { world, outside } = stage;
    const runs: RunState[] = [startIn(stage, this.definition, this.payload, this.options)];
    if (variant.second === 'run') runs.push(startIn(stage, this.definition, this.payload, this.options));
    outside.begin();
    try {
      await playToEnd(
        stage,
        () => world.runs.every((run) => run.hasEnded || run.part === undefined),
        variant.timing,
      );
      const [first] = runs;
      if (variant.second === 'replay' && first !== undefined) {
        runs.push(world.sends.startReplay(first, {}) as RunState);
        await playToEnd(
          stage,
          () => world.runs.every((run) => run.hasEnded || run.part === undefined),
          variant.timing,
        );
      }
    } catch (error) {
      if (error instanceof LimitError) throw error;
      throw failure(error instanceof Error ? error.message : String(error), scenario(), error);
    }
    return runs;
  }

  private async judge(
    stage: Stage,
    runs: readonly RunState[],
    variant: Variant,
    scenario: Scenario,
  ): Promise<void> {
    const open = runs.find((run) => !run.hasEnded);
    if (open !== undefined) throw failure(stuck(new LiveRun(stage, open)).message, scenario);
    const finding = leftTwice(this.marks) ?? sentTwice(stage) ?? this.endedOtherwise(runs, variant);
    if (finding !== undefined) throw failure(finding, scenario);
    for (const run of runs) {
      try {
        await this.options.check?.(new LiveRun(stage, run), scenario);
      } catch (error) {
        throw failure(
          `check failed: ${error instanceof Error ? error.message : String(error)}`,
          scenario,
          error,
        );
      }
    }
  }

  private endedOtherwise(runs: readonly RunState[], { name, second }: Variant): string | undefined {
    const before = this.endings.get(name);
    if (before === undefined) this.endings.set(name, new Set(runs.map(({ status }) => status)));
    const may = new Set<RunStatus>(this.options.mayEnd ?? before ?? runs.map(({ status }) => status));
    // Which of two runs owns a key is their race's matter.
    if (second !== undefined) may.add('skipped');
    const other = runs.find(({ status }) => !may.has(status));
    if (other === undefined) return undefined;
    const why = (other.error as { message?: string } | null)?.message;
    return (
      `the run ended as ${other.status}${why === undefined ? '' : ` (${why})`}, not as ${[...may].join(' or ')}: ` +
      'where it may, say so in `mayEnd`'
    );
  }

  private countStep(): void {
    this.steps += 1;
    const { stepsMax = STEPS_MAX } = this.options;
    if (this.steps > stepsMax)
      throw new LimitError(
        `more than ${stepsMax} functions of steps ran, in ${this.scenarios} scenarios: raise stepsMax, or give a smaller payload`,
      );
  }

  private countScenario(isCut: boolean): void {
    this.scenarios += 1;
    if (isCut) this.cuts += 1;
    const { scenariosMax = SCENARIOS_MAX } = this.options;
    if (this.scenarios > scenariosMax)
      throw new LimitError(
        `there are more than ${scenariosMax} scenarios: raise scenariosMax, leave out some timings, or give a smaller payload`,
      );
  }
}

/** The kit's own limits: no scenario's fault. */
class LimitError extends RangeError {}

function parse(only: string): { variant: string; at: number | undefined } {
  const [, variant = '', at] = /^(.+), (?:uncut|cut (\d+))$/.exec(only) ?? [];
  return { variant, at: at === undefined ? undefined : Number(at) };
}

function storyOf({ story }: Variant, { story: cut }: Knife): string {
  const how = story === '' ? '' : `; ${story}`;
  if (cut === undefined) return `Nothing was cut off${how}.`;
  return `${cut.charAt(0).toUpperCase()}${cut.slice(1)}, and the run was picked up${how}.`;
}

function failure(finding: string, scenario: Scenario, cause?: unknown): CrashError {
  const message = `${scenario.story} Then ${finding}.\nPlay this alone with { only: ${JSON.stringify(scenario.name)} }.`;
  return new CrashError(message, scenario, cause === undefined ? undefined : { cause });
}

/** What code outside steps sent again. */
function sentTwice({ world }: Stage): string | undefined {
  for (const { what, workflow, times } of world.sends.outside.values()) {
    if (times > 1)
      return `${what} ${times} times by code of '${workflow}' outside its steps: place it in a step`;
  }
  return undefined;
}
