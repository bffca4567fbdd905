type Unit =
  | 'ms'
  | 's'
  | 'm'
  | 'h'
  | 'd'
  | 'w'
  | ' second'
  | ' seconds'
  | ' minute'
  | ' minutes'
  | ' hour'
  | ' hours'
  | ' day'
  | ' days'
  | ' week'
  | ' weeks';

/** Milliseconds, `'5m'`, `'3 days'`, or `{ days: 3, hours: 12 }`. A week has 7 days, a day 24 hours. */
export type Duration =
  | number
  | `${number}${Unit}`
  | {
      weeks?: number;
      days?: number;
      hours?: number;
      minutes?: number;
      seconds?: number;
      milliseconds?: number;
    };

const millisecondsPer: ReadonlyMap<string, number> = new Map([
  ['ms', 1],
  ['millisecond', 1],
  ['s', 1_000],
  ['second', 1_000],
  ['m', 60_000],
  ['minute', 60_000],
  ['h', 3_600_000],
  ['hour', 3_600_000],
  ['d', 86_400_000],
  ['day', 86_400_000],
  ['w', 604_800_000],
  ['week', 604_800_000],
]);

/** Whole milliseconds. Throws a RangeError that names `what` for anything that is no duration, or is negative. */
export function milliseconds(duration: Duration, what: string): number {
  const ms = Math.round(parse(duration));
  if (Number.isSafeInteger(ms) && ms >= 0) return ms;
  throw new RangeError(
    ms < 0
      ? `${what} is negative: give 0 or more`
      : `${what} is no duration: give milliseconds, a text such as '5m' or '3 days', or { hours: 12 }`,
  );
}

/** An instant as the API takes it. Throws a RangeError that names `what` for anything that is none. */
export function instant(time: Date | string, what: string): string {
  const at = time instanceof Date ? time : new Date(isInstant(time) ? time : Number.NaN);
  if (!Number.isNaN(at.getTime())) return at.toISOString();
  throw new RangeError(`${what} is no time: give a Date, or a text such as '2027-01-31T09:00:00Z'`);
}

/** A time of day without its offset from UTC would mean another instant on another machine. */
function isInstant(text: unknown): text is string {
  const format = /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d))?$/i;
  const [, date] = (typeof text === 'string' && format.exec(text)) || [];
  return date !== undefined && isDate(date);
}

/** JavaScript takes February 30 for March 2. */
function isDate(text: string): boolean {
  const at = new Date(text);
  return !Number.isNaN(at.getTime()) && at.toISOString().startsWith(text);
}

function parse(duration: Duration): number {
  if (typeof duration === 'number') return duration;
  if (typeof duration === 'string') {
    const [, count, unit] =
      /^(\d+(?:\.\d+)?) ?([a-z]+?)s?$/.exec(duration.replace(/ms$/, ' millisecond')) ?? [];
    return Number(count) * unitOf(unit === '' || unit === undefined ? 's' : unit);
  }
  if (typeof duration !== 'object' || duration === null) return Number.NaN;
  const given = Object.entries(duration).filter(([, count]) => count !== undefined);
  // A Date, or a class's duration such as Temporal's, has its parts in getters: without them it is no duration of 0.
  if (given.length === 0) return Number.NaN;
  return given.reduce((sum, [unit, count]) => sum + count * unitOf(unit.replace(/s$/, '')), 0);
}

function unitOf(name: string): number {
  return millisecondsPer.get(name) ?? Number.NaN;
}
