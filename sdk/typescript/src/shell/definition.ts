import { type Duration, milliseconds } from '../duration.js';
import type { StandardSchemaV1 } from '../schema.js';
import type {
  EventTrigger,
  Failure,
  Trigger,
  Workflow,
  WorkflowContext,
  WorkflowOptions,
} from '../workflow.js';
import { NelkapError } from '../errors.js';

/** Names of workflows, steps and events have up to 256 bytes of UTF-8, on both sides of the protocol. */
const NAME_BYTES_MAX = 256;
/** A filter's text, as the server takes it. */
const IF_BYTES_MAX = 4 * 1024;
const RETRIES_MAX = 1_000;
export const RETRIES_DEFAULT = 4;
const LEASE_MS_MIN = 5_000;
/** 100 years: the longest time in a manifest and of a claim (protocol). */
const TIME_MS_MAX = 3_155_760_000_000;

/** What is called when a run closes; it is given a `Failure`. */
type Handler = ((failure: Failure<unknown>, context: WorkflowContext) => unknown) | undefined;

export type WorkflowFunction = (payload: unknown, context: WorkflowContext) => unknown;

/** What `workflow` was given, checked. */
export interface Definition {
  readonly name: string;
  /** The app that serves it; read late, as the environment is. Undefined where a reference leaves it open. */
  readonly app: () => string | undefined;
  readonly triggers?: readonly Trigger[] | undefined;
  readonly cancelOn?: readonly EventTrigger[] | undefined;
  readonly retries?: number | undefined;
  readonly timeoutMs?: number | undefined;
  readonly leaseMs?: number | undefined;
  readonly schema?: StandardSchemaV1 | undefined;
  /** The key of the one run that goes on (K4); what it gives is not checked yet. */
  readonly once?: ((payload: unknown) => unknown) | undefined;
  readonly onFailure?: Handler;
  readonly onCancel?: Handler;
  /** Undefined for a reference. */
  readonly fn?: WorkflowFunction | undefined;
}

/** Definitions travel with their workflows under a registered symbol: two copies of this module must see the same. */
const key: symbol = Symbol.for('nelkap.definition.v1');

export function asWorkflow(definition: Definition): Workflow {
  return Object.freeze(
    Object.defineProperty({ name: definition.name }, key, { value: definition }),
  ) as Workflow;
}

export function definitionOf(workflow: Workflow): Definition {
  const definition = (workflow as unknown as Record<symbol, Definition | undefined> | undefined)?.[key];
  if (definition !== undefined) return definition;
  throw new TypeError('this is no workflow: make one with nelkap.workflow(…) or nelkap.ref(…)');
}

type Options = WorkflowOptions<never> & { on?: unknown; payload?: unknown };
const workflowOptions = [
  'name',
  'on',
  'cancelOn',
  'payload',
  'once',
  'onFailure',
  'onCancel',
  'retries',
  'timeout',
  'lease',
];

export function define(options: string | Options, fn: unknown, app: () => string): Definition {
  const given: Options = typeof options === 'string' ? { name: options } : options;
  const name = checkName(given.name, 'a workflow');
  if (typeof fn !== 'function')
    throw new TypeError(`workflow '${name}' needs its function as the last argument`);
  refuseGenerator(fn, `the function of workflow '${name}'`);
  refuseOthers(given, workflowOptions, `workflow '${name}'`);
  return {
    name,
    app,
    triggers: listOf(given.on)?.map((trigger) => triggerOf(trigger, name)),
    cancelOn: listOf(given.cancelOn)?.map((trigger) =>
      eventTrigger(trigger, `cancels workflow '${name}'`, []),
    ),
    retries: checkRetries(given.retries, `retries of workflow '${name}'`),
    timeoutMs: checkTimeout(boundedMs(given.timeout, `timeout of workflow '${name}'`), name),
    leaseMs: checkLease(boundedMs(given.lease, `lease of workflow '${name}'`), name),
    schema: given.payload as StandardSchemaV1 | undefined,
    once: checkFunction(given.once, 'once', name, '(payload) => payload.id') as Definition['once'],
    onFailure: checkFunction(given.onFailure, 'onFailure', name, '({ error }) => …') as Handler,
    onCancel: checkFunction(given.onCancel, 'onCancel', name, '({ payload }) => …') as Handler,
    fn: fn as WorkflowFunction,
  };
}

function listOf(given: unknown): unknown[] | undefined {
  return given === undefined || Array.isArray(given) ? given : [given];
}

function triggerOf(trigger: unknown, workflow: string): Trigger {
  const given = fieldsOf(trigger);
  const does = `starts workflow '${workflow}'`;
  if ('webhook' in given) return webhookTrigger(given, `the webhook that ${does}`);
  if ('schedule' in given) return scheduleOf(given, `the schedule that ${does}`);
  return eventTrigger(given, does, ['schedule', 'webhook']);
}

/** `others` are the triggers that could stand in its place. */
function eventTrigger(trigger: unknown, does: string, others: readonly string[]): EventTrigger {
  const given = fieldsOf(trigger);
  const what = `the event that ${does}`;
  refuseOthers(given, ['event', 'if', ...others], what);
  return { event: checkName(given['event'], what), ...filter(given, what) };
}

function webhookTrigger(given: Fields, what: string): Trigger {
  refuseOthers(given, ['webhook', 'if'], what);
  const webhook = checkName(given['webhook'], what);
  checkName(`webhook.${webhook}`, `the event of ${what}`);
  return { webhook, ...filter(given, what) };
}

/** When a schedule ticks; the server reads the expression. */
export function scheduleOf(given: Fields, what: string): Trigger {
  refuseOthers(given, ['schedule', 'timezone', 'catchUp'], what);
  const { schedule, timezone, catchUp } = given;
  if (typeof schedule !== 'string' || schedule.trim() === '')
    throw new TypeError(`${what} is no text: give a cron expression such as '0 9 * * 1-5', or '@daily'`);
  if (timezone !== undefined && (typeof timezone !== 'string' || timezone === ''))
    throw new TypeError(`timezone of ${what} is no text: give a name such as 'Europe/Berlin'`);
  if (catchUp !== undefined && catchUp !== 'none' && catchUp !== 'last' && catchUp !== 'all')
    throw new TypeError(`catchUp of ${what} is none of 'none', 'last' and 'all'`);
  return { schedule, ...(timezone !== undefined && { timezone }), ...(catchUp !== undefined && { catchUp }) };
}

type Fields = Record<string, unknown>;

function fieldsOf(given: unknown): Fields {
  return (typeof given === 'object' && given !== null ? given : {}) as Fields;
}

function filter(given: Fields, what: string): { if?: string } {
  const text = checkIf(given['if'], what);
  return text === undefined ? {} : { if: text };
}

/** A filter's text; the server reads it. */
export function checkIf(given: unknown, what: string): string | undefined {
  if (given === undefined) return undefined;
  if (typeof given !== 'string' || given.trim() === '')
    throw new TypeError(`if of ${what} is no text: give a condition such as 'payload.total > 0'`);
  return checkBytes(given, `if of ${what}`, IF_BYTES_MAX, ', and decide the rest in the workflow');
}

/**
 * A whole text that is not too long, or a TypeError that says so; `advice` ends its sentence. Half a character has no bytes: two
 * keys that end in one would be the same.
 */
export function checkBytes(text: string, what: string, bytesMax: number, advice = ''): string {
  const bytes = encoder.encode(text);
  if (bytes.length > bytesMax)
    throw new TypeError(`${what} has ${bytes.length} bytes: give one of at most ${bytesMax}${advice}`);
  if (decoder.decode(bytes) === text) return text;
  throw new TypeError(`${what} has half a character in it: give whole ones`);
}

function checkFunction(fn: unknown, option: string, workflow: string, example: string): unknown {
  if (fn === undefined) return fn;
  if (typeof fn === 'function') return refuseGenerator(fn, `${option} of workflow '${workflow}'`);
  throw new TypeError(`${option} of workflow '${workflow}' is no function: give ${example}`);
}

/** Called, a generator function gives a generator, and runs none of its lines. */
export function refuseGenerator<F extends Function>(fn: F, what: string): F {
  if (!Object.prototype.toString.call(fn).endsWith('GeneratorFunction]')) return fn;
  throw new TypeError(
    `${what} is a generator function (function*), which would not run: give a function, or an async one`,
  );
}

function checkTimeout(timeoutMs: number | undefined, name: string): number | undefined {
  if (timeoutMs !== 0) return timeoutMs;
  throw new RangeError(`timeout of workflow '${name}' is 0: give more, or leave it out`);
}

function checkLease(leaseMs: number | undefined, name: string): number | undefined {
  if (leaseMs === undefined || leaseMs >= LEASE_MS_MIN) return leaseMs;
  throw new RangeError(`lease of workflow '${name}' is under 5 seconds: give at least '5s'`);
}

/** The server refuses the whole manifest of an app that has a longer time, and the whole save of such a claim. */
export function boundedMs(duration: Duration | undefined, what: string): number | undefined {
  const ms = optionalMs(duration, what);
  if (ms === undefined || ms <= TIME_MS_MAX) return ms;
  throw new RangeError(`${what} is over 100 years: give less, or leave it out`);
}

export function optionalMs(duration: Duration | undefined, what: string): number | undefined {
  return duration === undefined ? undefined : milliseconds(duration, what);
}

export function checkRetries(retries: number | undefined, what: string): number | undefined {
  if (retries === undefined) return undefined;
  if (Number.isInteger(retries) && retries >= 0 && retries <= RETRIES_MAX) return retries;
  throw new RangeError(`${what} is no whole number from 0 to ${RETRIES_MAX}`);
}

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

/** An option that there is not would be ignored in silence, and the code would mean something else. */
export function refuseOthers(given: unknown, known: readonly string[], what: string): void {
  if (typeof given !== 'object' || given === null) return;
  for (const name of Object.keys(given)) {
    if (known.includes(name)) continue;
    throw new TypeError(
      `${what} has the option '${name}', which there is not: there are ${known.join(', ')}`,
    );
  }
}

/** A name, or a TypeError that says what is wrong with it (E4). */
export function checkName(name: unknown, what: string): string {
  if (typeof name !== 'string' || name === '')
    throw new TypeError(`${what} needs a name: give a text that is not empty`);
  return checkBytes(name, `the name of ${what}`, NAME_BYTES_MAX);
}

/** The definitions of a handler, by name. Two workflows of one name would take each other's runs. */
export function byName(workflows: readonly Workflow[]): Map<string, Definition> {
  const found = new Map<string, Definition>();
  for (const workflow of workflows) {
    const definition = definitionOf(workflow);
    if (definition.fn === undefined) {
      throw new TypeError(
        `workflow '${definition.name}' is a reference: give the handler the workflow itself`,
      );
    }
    const other = found.get(definition.name);
    if (other !== undefined && other !== definition) {
      throw new TypeError(`two workflows are named '${definition.name}': give each a name of its own`);
    }
    found.set(definition.name, definition);
  }
  return found;
}

/** Says that something only works in a workflow. */
export function outside(what: string): NelkapError {
  return new NelkapError(
    'outside_workflow',
    0,
    `${what} was called outside a workflow: call it in the function that you gave to nelkap.workflow. ` +
      'Where the runtime has no AsyncLocalStorage (Cloudflare: set nodejs_als), use the step and nelkap of its second argument.',
  );
}
