import { sizeOf } from './item.js';
import type { LogLines } from './log-lines.js';
import type { EndMessage, Fence, Item, Save } from './message.js';
import { bytesOf, stringify } from './text.js';

/** An item over this size travels in a request of its own (protocol, *Saves*). */
export const BESIDE_BYTES_MIN: number = 256 * 1024;
/** What one playing puts into one save, in UTF-16 units: at most 6 MiB in UTF-8, so that it fits into a request. */
const SAVE_UNITS_MAX = 2 * 1024 * 1024;
const ANSWER_BYTES_MAX = 16 * 1024 * 1024;
/** Room for the lines of the log in an answer: those of a save that was not answered, and those after it. */
const LOG_BYTES_MAX = 2 * 1024 * 1024;

/** What a playing has to save, in order, and the save that is under way: one at a time. */
export class Outbox {
  private items: Item[] = [];
  private readonly lines: LogLines;
  private sent: { message: Save; again: boolean } | undefined;
  /** The last try of the save that is under way failed. */
  isFailing = false;

  constructor(lines: LogLines) {
    this.lines = lines;
  }

  get isEmpty(): boolean {
    return this.items.length === 0;
  }

  /** A save was sent, and is not answered. */
  get isSending(): boolean {
    return this.sent !== undefined;
  }

  put(item: Item): void {
    this.items.push(item);
  }

  /** The next save to send; after `again` it is the same one. Null while one is under way, or for want of items. */
  next(fence: Fence, seen: number, mayBeEmpty: boolean): Save | null {
    if (this.sent?.again) {
      this.sent.again = false;
      return this.sent.message;
    }
    if (this.isSending || (this.isEmpty && !mayBeEmpty && !this.lines.areDue)) return null;
    const logs = this.lines.take();
    const message = { ...fence, seen, items: this.gather(), ...(logs.length > 0 && { logs }) };
    this.sent = { message, again: false };
    return message;
  }

  /** The save has to be sent again, unchanged. */
  again(): void {
    if (this.sent === undefined) return;
    this.sent.again = true;
    this.isFailing = true;
  }

  /** The save was answered; undefined where none is under way. */
  answered(): Save | undefined {
    const save = this.sent?.message;
    this.sent = undefined;
    this.isFailing = false;
    return save;
  }

  /** Lets everything go that was not sent. */
  clear(): void {
    this.items = [];
  }

  /** Gives an answer what no save has brought to the server: results, as many as fit (C11), and lines of the log. */
  addTo(message: EndMessage): void {
    const unsaved = this.unsaved(ANSWER_BYTES_MAX - LOG_BYTES_MAX - stringify(message).length * 3);
    if (unsaved.length > 0) message.unsaved = unsaved;
    const logs = [...(this.sent?.message.logs ?? []), ...this.lines.takeLast()];
    if (logs.length > 0) message.logs = logs;
  }

  private unsaved(bytes: number): Item[] {
    const items = [...(this.sent?.message.items ?? []), ...this.items].filter(
      ({ op }) => op === 'completed' || op === 'failed',
    );
    let left = bytes;
    const over = items.findIndex((item) => (left -= bytesOf(stringify(item)) + 1) < 0);
    return over === -1 ? items : items.slice(0, over);
  }

  private gather(): Item[] {
    let units = 0;
    let besides = false;
    const fitting = this.items.findIndex((item, at) => {
      const size = sizeOf(item);
      const big = size > BESIDE_BYTES_MIN;
      units += size;
      const stops = at > 0 && (big || besides || units > SAVE_UNITS_MAX);
      besides = big;
      return stops;
    });
    return this.items.splice(0, fitting === -1 ? this.items.length : fitting);
  }
}
