import { encode } from '../core/value.js';
import { guarded, type Log } from '../log.js';
import { type Definition, definitionOf } from '../shell/definition.js';
import { typeId } from '../shell/key.js';
import type { Workflow } from '../workflow.js';
import { Outside, type Timing } from './outside.js';
import type { Surroundings } from './process.js';
import type { TestOptions, TestRun } from './run.js';
import { instantOf, type Part, type RunState, type Value } from './state.js';
import { World } from './world.js';

export const optionNames: readonly string[] = [
  'steps',
  'events',
  'workflows',
  'event',
  'key',
  'claimed',
  'filters',
  'now',
  'logger',
];

/** A world and what comes into it, before a run is started in it. */
export interface Stage {
  readonly world: World;
  readonly outside: Outside;
}

export interface StageOptions extends TestOptions {
  timing?: Timing;
  cutsHere?: Surroundings['cutsHere'];
  onBody?: () => void;
}

const quiet: Log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

/** Makes a world for runs of a workflow. */
export function stageFor(definition: Definition, options: StageOptions): Stage {
  const { steps = {}, events = [], workflows = {}, timing = 'in time' } = options;
  const parts = new Map<string, Part>([[definition.name, { definition }]]);
  for (const [name, part] of Object.entries(workflows)) {
    parts.set(name, typeof part === 'function' ? { fake: part } : { definition: playable(part) });
  }
  const now = options.now === undefined ? Date.now() : new Date(options.now).getTime();
  if (Number.isNaN(now))
    throw new RangeError("now is no time: give a Date, or a text such as '2027-01-31T09:00:00Z'");
  const world: World = new World({
    fakeOf: (step, isCheck) => {
      const fake = Object.hasOwn(steps, step) ? steps[step] : undefined;
      if (typeof fake === 'function') return isCheck ? undefined : fake;
      return isCheck ? fake?.check : fake?.run;
    },
    parts,
    filters: options.filters ?? {},
    claimed: options.claimed ?? [],
    log: guarded(options.logger ?? quiet),
    now,
    cutsHere: options.cutsHere ?? (() => false),
    onBody: options.onBody ?? (() => {}),
    onCallback: (step) => outside.callbackMade(step),
  });
  const outside = new Outside(world, events, timing);
  return { world, outside };
}

export function playable(workflow: Workflow): Definition {
  const definition = definitionOf(workflow);
  if (definition.fn !== undefined) return definition;
  throw new TypeError(`workflow '${definition.name}' is a reference: give the workflow itself`);
}

export function startIn(
  { world }: Stage,
  definition: Definition,
  payload: unknown,
  options: TestOptions,
): RunState {
  const text = encode(payload, 'payload');
  const value: Value = text === undefined ? {} : { value: text.decode() };
  const app = definition.app() ?? 'app';
  const made = { workflow: definition.name, app, payload: value, key: options.key };
  if (options.event === undefined) return world.start(made);
  const id = typeId('evt', world.now);
  const event = { id, event: options.event, ...payloadOf(value), createdAt: instantOf(world.now) };
  return world.start({ ...made, event });
}

function payloadOf(value: Value): { payload?: unknown } {
  return 'value' in value ? { payload: value.value } : {};
}

/** Plays, and lets time pass, until `isOver` or until nothing more can happen. */
export async function playToEnd(
  { world, outside }: Stage,
  isOver: () => boolean,
  timing?: Timing,
): Promise<void> {
  for (;;) {
    await world.play();
    if (isOver()) return;
    if (timing !== 'late' && outside.give()) continue;
    const due = world.nextDue();
    const isLast = due === undefined || due.isTimeout === true;
    if (timing === 'late' && isLast && outside.give()) continue;
    if (due === undefined) return;
    world.fire(due);
  }
}

export function stuck({ workflow, waitingFor }: Pick<TestRun, 'workflow' | 'waitingFor'>): Error {
  const list = waitingFor.map(({ kind, name, events }) => {
    return events === undefined
      ? `the ${kind} '${name}'`
      : `the event ${events.map((each) => `'${each}'`).join(' or ')} ('${name}')`;
  });
  return new Error(
    `the run of '${workflow}' waits for ${list.join(' and ') || 'nothing that the kit knows of'}, which no time brings: ` +
      'give it in `events`, or with emit or post',
  );
}
