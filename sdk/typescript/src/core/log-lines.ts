import type { Level, LogLine, StepName } from './message.js';
import { Named } from './step.js';
import type { Encoded } from './text.js';

/** What a playing keeps that was not sent (protocol, section 6). */
const LINES_MAX = 1_000;
/** What a save or an answer takes of them, in UTF-16 units: it fits into a request beside the results that a save has. */
const UNITS_MAX = 256 * 1024;
/** What a line takes beside its texts. */
const LINE_UNITS = 256;
/** Lines of a handler count from here on, so that none is taken for one that the function wrote after the same entry. */
const HANDLER_LINES = 10_000;

/** A line as the code wrote it. */
export interface Written {
  readonly at: string;
  readonly level: Level;
  readonly message: string;
  readonly fields?: Encoded;
}

/** Where a line was written: in a step's attempt, or outside steps after an entry. */
export type Place =
  | { readonly step: StepName; readonly attempt: number }
  | { readonly entry: number; readonly attempt: number; readonly isHandler: boolean };

/** The lines of the log that wait for a save or the answer, and the numbers by which the server keeps each once. */
export class LogLines {
  /** They have waited long enough: they are sent though there is nothing to save. */
  areDue = false;
  private lines: LogLine[] = [];
  private dropped = 0;
  private entry = -1;
  private count = 0;
  /** How many lines each attempt of a step has written. */
  private readonly counts = new Named<number[]>();

  get isEmpty(): boolean {
    return this.lines.length === 0;
  }

  /** Takes a line, and gives it as it travels. Too many are dropped, and the next says how many were. */
  add(written: Written, place: Place): LogLine {
    const isFull = this.lines.length >= LINES_MAX;
    if (isFull) this.dropped += 1;
    else if (this.dropped > 0) this.lines.push(this.droppedLine(written.at, place));
    const line = this.numbered(written, place);
    if (!isFull) this.lines.push(line);
    return line;
  }

  /** Those that travel next. */
  take(): LogLine[] {
    let units = 0;
    const over = this.lines.findIndex((line) => (units += sizeOf(line)) > UNITS_MAX);
    const taken = this.lines.splice(0, over === -1 ? this.lines.length : over);
    this.areDue = !this.isEmpty;
    return taken;
  }

  /** Those that travel in the answer: what does not fit is dropped. */
  takeLast(): LogLine[] {
    const taken = this.take();
    this.dropped += this.lines.length;
    const [last] = taken.slice(-1);
    if (last !== undefined && this.dropped > 0) taken.push(this.droppedLine(last.at, placeOf(last)));
    return taken;
  }

  private droppedLine(at: string, place: Place): LogLine {
    const message = `${this.dropped} lines were dropped`;
    this.dropped = 0;
    return this.numbered({ at, level: 'warn', message }, place);
  }

  private numbered(written: Written, place: Place): LogLine {
    const { attempt } = place;
    if ('step' in place) return { ...written, step: place.step, attempt, line: this.countIn(place) };
    const { entry, isHandler } = place;
    this.count = entry === this.entry ? this.count + 1 : 1;
    this.entry = entry;
    return { ...written, entry, attempt, line: this.count + (isHandler ? HANDLER_LINES : 0) };
  }

  private countIn({ step, attempt }: Place & { step: StepName }): number {
    const counts = this.counts.get(step) ?? [];
    this.counts.set(step, counts);
    return (counts[attempt] = (counts[attempt] ?? 0) + 1);
  }
}

function placeOf({ step, entry = 0, attempt, line }: LogLine): Place {
  return step === undefined ? { entry, attempt, isHandler: line > HANDLER_LINES } : { step, attempt };
}

function sizeOf({ message, fields }: LogLine): number {
  return message.length + (fields?.text.length ?? 0) + LINE_UNITS;
}
