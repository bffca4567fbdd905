import type { EndMessage, News, Save, SaveOutcome } from '../core/message.js';
import { BESIDE_BYTES_MIN } from '../core/outbox.js';
import { bytesOf, Encoded, stringify } from '../core/text.js';
import { NelkapError } from '../errors.js';
import type { Log } from '../log.js';
import type { Call } from './call.js';
import { type Address, exchange } from './http.js';
import { Line, type Round } from './line.js';
import { Poll } from './poll.js';
import { type Clock, randomHex, type Shared } from './process.js';

/** Protocol, *Saves*: one request is at most 8 MiB; the rest is room for its envelope. */
const REQUEST_BYTES_MAX = 8 * 1024 * 1024 - 64 * 1024;
/** A page of 4 MiB over a slow line takes its time; a dead line must not hold the next try for ever. */
const READ_LIMIT_MS = 30_000;
const HEARTBEAT_MS = 5_000;
const OFFSETS_MAX = 100;
/** Ends that wait for the API, in UTF-16 units of their text: a process keeps no more while the API is away (C11). */
const KEPT_UNITS_MAX = 64 * 1024 * 1024;

interface Part {
  call: Call;
  save: Save;
  text: string;
}

/**
 * Where calls are saved: one per process, address and key. Sends their saves and ends, each with one request in flight,
 * and keeps contact (C1, C7). Holds the calls that are played, and nothing of one that is over.
 */
export class Destination {
  /** By the nonce of the playing. */
  readonly calls: Map<string, Call> = new Map();
  /** Those that must be named at once: their connection closed, or they can't be saved (C1). */
  readonly urgent: Set<Call> = new Set();
  /**
   * Names it to the server as a process (C7). Two that speak to one server, such as with two keys, list different calls: under one
   * name each would deny the other's.
   */
  private readonly process = randomHex(16);
  private readonly shared: Shared;
  private readonly key: string;
  private readonly address: Address;
  private readonly log: Log;
  private readonly saves: Line;
  private readonly ends: Line;
  private readonly poll: Poll;
  private readonly saving = new Set<Call>();
  /** The text of each end that is not accepted yet, oldest first, and their sum. */
  private readonly ending = new Map<Call, string>();
  private endingUnits = 0;
  /** When the first request of those that failed in a row was sent; undefined when the last one was answered. */
  private silentSince: number | undefined;
  /** The last request that saves failed. */
  private isAway = false;
  /** Calls whose save must travel alone: a request with others was refused for its framing. */
  private readonly alone = new Set<Call>();
  private carried: Part | undefined;

  constructor(shared: Shared, key: string, address: Address, log: Log) {
    this.shared = shared;
    this.key = key;
    this.address = address;
    this.log = log;
    const pauseMax = (): number => this.heartbeatMs / 2;
    this.saves = new Line(shared.clock, () => this.saveRound(), pauseMax);
    this.ends = new Line(shared.clock, () => this.endRound(), pauseMax);
    this.poll = new Poll(this);
  }

  get clock(): Clock {
    return this.shared.clock;
  }

  /** Where a call's own requests (`run`, `emit`) go. */
  get requests(): Address {
    return this.address;
  }

  /** The least interval of its calls. */
  get heartbeatMs(): number {
    let least = HEARTBEAT_MS;
    for (const call of this.calls.values()) least = Math.min(least, call.heartbeatMs);
    return least;
  }

  add(call: Call): void {
    // With its last call it left the map; a call that was on its way brings it back.
    if (!this.shared.destinations.has(this.key)) this.shared.destinations.set(this.key, this);
    this.calls.set(call.fence.nonce, call);
    this.poll.changed(call);
  }

  /** Forgets a call that is over, and itself with the last one. */
  remove(call: Call): void {
    this.calls.delete(call.fence.nonce);
    this.urgent.delete(call);
    this.saving.delete(call);
    this.alone.delete(call);
    this.forgetEnd(call);
    if (this.carried?.call === call) this.carried = undefined;
    this.poll.changed();
    if (this.calls.size > 0) return;
    this.silentSince = undefined;
    const { destinations } = this.shared;
    if (destinations.get(this.key) === this) destinations.delete(this.key);
  }

  /** The call has something to save. */
  save(call: Call): void {
    this.saving.add(call);
    this.saves.nudge();
  }

  /** The call has something to save again, with the next round after the pause. */
  saveAgain(call: Call): void {
    this.saving.add(call);
  }

  /** Delivers an end through the API, however long it takes (C10). */
  end(call: Call, message: EndMessage): void {
    const { nonce: _, ...end } = message;
    const text = stringify({ ...call.fence, end });
    this.forgetEnd(call);
    this.ending.set(call, text);
    this.endingUnits += text.length;
    this.bound();
    this.urge(call);
    this.ends.nudge();
  }

  /** Lets the oldest ends go when they are too many to keep: their calls are cut, and unsaved steps repeat (C11). */
  private bound(): void {
    for (const call of this.ending.keys()) {
      if (this.endingUnits <= KEPT_UNITS_MAX) return;
      this.forgetEnd(call);
      call.endAccepted();
    }
  }

  private forgetEnd(call: Call): void {
    this.endingUnits -= this.ending.get(call)?.length ?? 0;
    this.ending.delete(call);
  }

  /** Names the call at once: its connection closed, or it can't be saved (C1). */
  urge(call: Call): void {
    this.urgent.add(call);
    this.poll.changed(call);
  }

  /** The call can be saved again. */
  calm(call: Call): void {
    this.urgent.delete(call);
  }

  /** One request of ours, which the server may hold for `heldMs`; the server's time in its answer corrects our clock. */
  async send(path: string, body: object, heldMs = 0, signal?: AbortSignal): Promise<Answer> {
    const text = stringify({ process: this.process, ...body });
    const sentAt = this.clock.now();
    try {
      const answer = await exchange(this.address, this.clock, {
        method: 'POST',
        path,
        body: text,
        // What is swallowed on its way must be tried again well before a lease ends.
        limitMs: heldMs + Math.min(10_000, Math.max(1_000, this.heartbeatMs * 0.9)),
        signal,
      });
      this.silentSince = undefined;
      this.learnTime(answer);
      return answer as Answer;
    } catch (error) {
      if (!signal?.aborted) this.silentSince ??= sentAt;
      throw error;
    }
  }

  /** Says once that what runs do is not saved, and why: an address that is wrong shows nowhere else. Without an error it is saved again. */
  private tell(error?: unknown): void {
    const isAway = error !== undefined;
    if (isAway === this.isAway) return;
    this.isAway = isAway;
    const { url } = this.address;
    if (isAway) this.log.warn("the server can't be reached; trying again", { url, error: messageOf(error) });
    else this.log.info('the server can be reached again', { url });
  }

  /** Reads a page of a call's saved steps. */
  async read(call: Call, after: number, signal: AbortSignal): Promise<unknown> {
    const { call: id, token, nonce } = call.fence;
    const answer = await exchange(this.address, this.clock, {
      method: 'GET',
      path: `/v1/calls/${encodeURIComponent(id)}/steps?after=${after}`,
      headers: { 'nelkap-token': token, 'nelkap-nonce': nonce },
      limitMs: READ_LIMIT_MS,
      signal,
    });
    this.learnTime(answer);
    return answer;
  }

  private learnTime(answer: unknown): void {
    const time = Date.parse(String((answer as { time?: unknown } | null)?.time));
    if (Number.isNaN(time)) return;
    if (this.shared.offsets.size >= OFFSETS_MAX) this.shared.offsets.clear();
    this.shared.offsets.set(this.address.url, time - this.clock.now());
  }

  private async saveRound(): Promise<Round> {
    const parts = this.gather();
    if (parts.length === 0) return 'idle';
    return this.sendSaves(parts);
  }

  /** The saves of one request. Large ones are sent beside, at once (protocol, *Saves*). */
  private gather(): Part[] {
    const parts: Part[] = [];
    let bytes = 0;
    for (const part of this.parts()) {
      if (part.text.length > BESIDE_BYTES_MIN) {
        void this.sendSaves([part]).then((round) => this.sentBeside(part.call, round));
        continue;
      }
      bytes += bytesOf(part.text);
      const fits = parts.length === 0 || (bytes <= REQUEST_BYTES_MAX && this.together(parts, part));
      if (!fits) {
        this.carried = part;
        break;
      }
      parts.push(part);
    }
    return parts;
  }

  private *parts(): Iterable<Part> {
    const carried = this.carried;
    this.carried = undefined;
    if (carried !== undefined) yield carried;
    for (const call of this.saving) {
      this.saving.delete(call);
      const save = call.nextSave();
      if (save !== null) yield { call, save, text: stringify(save) };
    }
  }

  private together(parts: readonly Part[], part: Part): boolean {
    const first = parts[0] as Part;
    return (
      first.call.manifest === part.call.manifest && !this.alone.has(first.call) && !this.alone.has(part.call)
    );
  }

  private sentBeside(call: Call, round: Round): void {
    if (round === 'answered') return this.saves.nudge();
    // The pause of a failed large save is its own: others go on.
    this.saving.delete(call);
    this.clock.after(this.heartbeatMs / 4, () => this.save(call));
  }

  private async sendSaves(parts: readonly Part[]): Promise<Round> {
    const manifest = (parts[0] as Part).call.manifest;
    try {
      const answer = await this.send('/v1/saves', { manifest, saves: parts.map((part) => part.save) });
      const outcomes = answer.saves;
      if (!Array.isArray(outcomes) || outcomes.length !== parts.length) throw misunderstood();
      this.tell();
      return this.saved(parts, outcomes as SaveOutcome[]);
    } catch (error) {
      return this.unsent(parts, error);
    }
  }

  private saved(parts: readonly Part[], outcomes: readonly SaveOutcome[]): Round {
    let round: Round = 'answered';
    for (const [at, { call }] of parts.entries()) {
      const outcome = outcomes[at] as SaveOutcome;
      this.alone.delete(call);
      if (outcome.status === 'later') round = 'again';
      call.saved(outcome);
    }
    return round;
  }

  private unsent(parts: readonly Part[], error: unknown): Round {
    const status = error instanceof NelkapError ? error.status : 0;
    const isRefused = status === 400 || status === 413;
    if (!isRefused) this.tell(error);
    for (const { call } of parts) {
      if (call.isOver) continue;
      if (isRefused && parts.length === 1) {
        call.saved({ status: 'invalid', detail: status === 413 ? tooLarge(parts) : messageOf(error) });
        continue;
      }
      if (isRefused) this.alone.add(call);
      this.saving.add(call);
      call.unsent(this.silentSince ?? this.clock.now());
      this.urge(call);
    }
    return isRefused ? 'answered' : 'again';
  }

  private async endRound(): Promise<Round> {
    const calls: Call[] = [];
    const ends: Encoded[] = [];
    let bytes = 0;
    for (const [call, text] of this.ending) {
      bytes += bytesOf(text);
      if (calls.length > 0 && bytes > REQUEST_BYTES_MAX) break;
      calls.push(call);
      ends.push(new Encoded(text));
    }
    if (calls.length === 0) return 'idle';
    try {
      const answer = await this.send('/v1/ends', { ends });
      if (!Array.isArray(answer.ends) || answer.ends.length !== calls.length) throw misunderstood();
      this.tell();
      return this.ended(calls, answer.ends as { status: string }[]);
    } catch (error) {
      this.tell(error);
      return 'again';
    }
  }

  private ended(calls: readonly Call[], outcomes: readonly { status: string }[]): Round {
    let round: Round = 'answered';
    for (const [at, call] of calls.entries()) {
      if (outcomes[at]?.status === 'later') round = 'again';
      else {
        this.forgetEnd(call);
        call.endAccepted();
      }
    }
    return round;
  }
}

interface Answer {
  saves?: unknown;
  ends?: unknown;
  calls?: News[];
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : 'a save was refused';
}

/** The protocol has room for it, so that something between app and server has less. */
function tooLarge([part]: readonly Part[]): string {
  const bytes = bytesOf(part?.text ?? '');
  return `a save of ${bytes} bytes was refused with 413 (let what stands between them take ${REQUEST_BYTES_MAX})`;
}

function misunderstood(): NelkapError {
  return new NelkapError('unexpected_answer', 0, 'the server answered something else than the protocol says');
}
