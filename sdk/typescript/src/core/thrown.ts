import {
  markStepError,
  RunCancelledError,
  RunSkippedError,
  StepCutOffError,
  StepError,
  StepInterruptedError,
  TimeoutError,
} from '../errors.js';
import { bytesOf, cut, Encoded } from './text.js';
import { encode } from './value.js';

/** An error as it travels (protocol, *Errors*). */
export interface WireError {
  name: string;
  message: string;
  stack?: string;
  cause?: WireError;
  fields?: Record<string, unknown>;
}

const ERROR_BYTES_MAX = 64 * 1024;
const CAUSES_MAX = 8;
/** Room for one part of an error before the whole is measured: keeps the work bounded for a message of gigabytes. */
const PART_LENGTH_MAX = 64 * 1024;

const reserved: ReadonlySet<string> = new Set([
  'name',
  'message',
  'stack',
  'cause',
  'step',
  'attempts',
  'constructor',
  '__proto__',
  'toString',
]);

/** Whatever was thrown, as an error that can be saved: the best text that can be had, and it never throws itself (F5). */
export function encodeError(thrown: unknown): Encoded {
  return fit(describe(thrown, new Set()));
}

function describe(thrown: unknown, seen: Set<unknown>): WireError {
  if (!isError(thrown)) return { name: 'Error', message: cut(textOf(thrown), PART_LENGTH_MAX) };
  seen.add(thrown);
  const stack = tryRead(thrown, 'stack');
  const cause = causeOf(thrown);
  const fields = fieldsOf(thrown);
  return {
    name: cut(asText(tryRead(thrown, 'name'), 'Error'), 256),
    message: cut(asText(tryRead(thrown, 'message'), ''), PART_LENGTH_MAX),
    ...(typeof stack === 'string' && { stack: cut(stack, PART_LENGTH_MAX) }),
    ...(cause !== undefined &&
      !seen.has(cause) &&
      seen.size < CAUSES_MAX && { cause: describe(cause, seen) }),
    ...(fields !== undefined && { fields }),
  };
}

/** The error below an error; below one of several, such as that of Promise.any, the first of them (F2). */
function causeOf(error: Error): unknown {
  const cause = tryRead(error, 'cause');
  if (cause !== undefined) return cause;
  try {
    return error instanceof AggregateError ? (error.errors as unknown[])[0] : undefined;
  } catch {
    return undefined;
  }
}

function isError(thrown: unknown): thrown is Error {
  try {
    return (
      thrown instanceof Error ||
      (typeof thrown === 'object' &&
        thrown !== null &&
        typeof (thrown as Error).message === 'string' &&
        typeof (thrown as Error).name === 'string')
    );
  } catch {
    return false;
  }
}

function tryRead(object: object, name: string): unknown {
  try {
    return (object as Record<string, unknown>)[name];
  } catch {
    return undefined;
  }
}

function asText(value: unknown, otherwise: string): string {
  return typeof value === 'string' ? value : value === undefined ? otherwise : textOf(value);
}

function textOf(value: unknown): string {
  try {
    if (typeof value === 'object' && value !== null) return JSON.stringify(value) ?? 'an object';
    return String(value);
  } catch {
    return 'a value that has no text was thrown';
  }
}

/** The own enumerable fields that JSON can hold (F1). */
function fieldsOf(error: object): Record<string, unknown> | undefined {
  const fields: Record<string, unknown> = Object.create(null);
  let names: string[] = [];
  try {
    names = Object.keys(error);
  } catch {
    // A proxy that does not say its keys has none.
  }
  for (const name of names) {
    if (reserved.has(name)) continue;
    try {
      const text = encode((error as Record<string, unknown>)[name], name);
      if (text !== undefined) fields[name] = text.decode();
    } catch {
      // JSON can't hold it.
    }
  }
  return Object.keys(fields).length === 0 ? undefined : fields;
}

/** Cuts the stacks, then the fields, then the messages, until the whole has its size. */
function fit(error: WireError): Encoded {
  const cuts: ((each: WireError) => void)[] = [
    () => {},
    (each) => {
      if (each.stack !== undefined) each.stack = cut(each.stack, 4 * 1024);
    },
    (each) => delete each.stack,
    (each) => delete each.fields,
    (each) => {
      each.message = cut(each.message, 8 * 1024);
    },
    (each) => {
      // Each unit takes at most 6 bytes in JSON: 9 errors of 700 units always fit.
      each.message = cut(each.message, 700);
    },
  ];
  let text = '';
  for (const cutEach of cuts) {
    for (let each: WireError | undefined = error; each !== undefined; each = each.cause) cutEach(each);
    text = JSON.stringify(error);
    if (bytesOf(text) <= ERROR_BYTES_MAX) break;
  }
  return new Encoded(text);
}

/** What every error of a step says, whichever its class. */
type StepFailure = Error & Pick<StepError, 'step' | 'attempts'>;

/** A saved failure as the error that the workflow catches; `kind` is the step's. */
export function stepError(saved: unknown, step: string, attempts: number, kind = 'run'): StepFailure {
  const wire = asWire(saved);
  const error = (kind === 'invoke' ? childError(wire.name) : undefined) ?? ownError(wire.name);
  define(error, 'message', wire.message);
  revive(error, wire);
  markStepError(error);
  Object.defineProperties(error, {
    step: { value: step, enumerable: true },
    attempts: { value: attempts, enumerable: true },
  });
  return error as StepFailure;
}

function ownError(name: string): Error {
  if (name === 'StepCutOffError') return new StepCutOffError();
  return name === 'StepInterruptedError' ? new StepInterruptedError() : new StepError();
}

/** What can become of a child beside failing. */
function childError(name: string): Error | undefined {
  if (name === 'RunSkippedError') return new RunSkippedError('', '');
  if (name === 'RunCancelledError') return new RunCancelledError('');
  return name === 'TimeoutError' ? new TimeoutError() : undefined;
}

/** A saved error as an Error of its name. */
export function plainError(saved: unknown): Error {
  const wire = asWire(saved);
  const error = new Error(wire.message);
  revive(error, wire);
  return error;
}

function asWire(saved: unknown): WireError {
  const wire = (typeof saved === 'object' && saved !== null ? saved : {}) as Partial<WireError>;
  return { ...wire, name: asText(wire.name, 'Error'), message: asText(wire.message, '') };
}

function revive(error: Error, wire: WireError): void {
  define(error, 'name', wire.name);
  define(error, 'stack', typeof wire.stack === 'string' ? wire.stack : `${wire.name}: ${wire.message}`);
  if (wire.cause !== undefined && wire.cause !== null) define(error, 'cause', plainError(wire.cause));
  for (const [name, value] of Object.entries(wire.fields ?? {})) {
    if (reserved.has(name)) continue;
    Object.defineProperty(error, name, { value, enumerable: true, configurable: true, writable: true });
  }
}

function define(error: Error, name: string, value: unknown): void {
  Object.defineProperty(error, name, { value, enumerable: false, configurable: true, writable: true });
}
