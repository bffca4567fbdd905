export type { Duration } from './duration.js';
export {
  NelkapError,
  NonRetriableError,
  PayloadError,
  ResultError,
  RetryAfterError,
  RunCancelledError,
  RunFailedError,
  RunSkippedError,
  StepCutOffError,
  StepError,
  StepInterruptedError,
  TimeoutError,
} from './errors.js';
export type * from './event.js';
export type { JsonValue, NotJson, Savable, Stored } from './json.js';
export type { Log } from './log.js';
export { Nelkap, nelkap } from './nelkap.js';
export type { Handler, HandlerOptions, NelkapOptions } from './nelkap.js';
export type * from './run.js';
export type * from './schedule.js';
export type { StandardSchemaV1 } from './schema.js';
export type * from './step.js';
export type * from './workflow.js';
