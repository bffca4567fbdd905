import http from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Seen {
  method: string;
  path: string;
  headers: http.IncomingHttpHeaders;
  body: any;
}

/** Answers a request in place of the server; true where it did. */
export type Fault = (response: http.ServerResponse, seen: Seen) => boolean;

/** A small server on loopback: accepts what the protocol allows, keeps what it was told, and fails when told to. */
export class FakeServer {
  readonly seen: Seen[] = [];
  /** Saved entries by call. */
  readonly entries = new Map<string, any[]>();
  readonly ends: any[] = [];
  /** What the next requests of a path meet, one each. */
  readonly faults = new Map<string, Fault[]>();
  /** Outcomes in place of `accepted`, one for each save. */
  readonly outcomes: any[] = [];
  news: any[] = [];
  /** Keys that another run owns. */
  readonly claimed = new Set<string>();
  /** Steps that were started before, by name: a start of theirs is a repeat. */
  readonly started = new Set<string>();
  url = '';
  private readonly http = http.createServer((request, response) => void this.handle(request, response));
  private readonly polls = new Set<(isReplaced: boolean) => void>();
  private watchers: (() => void)[] = [];

  async start(): Promise<this> {
    await new Promise<void>((resolve) => this.http.listen(0, '127.0.0.1', resolve));
    this.url = `http://127.0.0.1:${(this.http.address() as AddressInfo).port}`;
    return this;
  }

  async stop(): Promise<void> {
    for (const answer of this.polls) answer(true);
    this.http.closeAllConnections();
    await new Promise((resolve) => this.http.close(resolve));
  }

  fault(path: string, ...faults: Fault[]): void {
    this.faults.set(path, [...(this.faults.get(path) ?? []), ...faults]);
  }

  paths(path: string): Seen[] {
    return this.seen.filter((each) => each.path.startsWith(path));
  }

  /** Settles once the condition holds, looked at after every request. */
  until(condition: () => boolean): Promise<void> {
    if (condition()) return Promise.resolve();
    return new Promise((resolve) => {
      const look = (): void => {
        if (condition()) resolve();
        else this.watchers.push(look);
      };
      this.watchers.push(look);
    });
  }

  /** Answers the open polls with news, of one playing where a nonce is given, else of each that plays the call. */
  tell(news: any): void {
    this.news.push(news);
    for (const answer of this.polls) answer(false);
  }

  private async handle(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const text = Buffer.concat(parts).toString();
    const { method = '', url: path = '', headers } = request;
    const seen: Seen = { method, path, headers, body: text === '' ? undefined : JSON.parse(text) };
    this.seen.push(seen);
    const fault = this.faults.get(path.split('?')[0] as string)?.shift();
    if (!fault?.(response, seen)) this.answer(seen, response);
    for (const look of this.watchers.splice(0)) look();
  }

  private answer(seen: Seen, response: http.ServerResponse): void {
    const time = new Date().toISOString();
    switch (`${seen.method} ${seen.path}`) {
      case 'POST /v1/saves':
        return reply(response, 200, { time, saves: seen.body.saves.map((save: any) => this.save(save)) });
      case 'POST /v1/ends':
        this.ends.push(...seen.body.ends);
        return reply(response, 200, {
          time,
          ends: seen.body.ends.map((end: any) => ({ call: end.call, status: 'accepted' })),
        });
      case 'POST /v1/heartbeats':
        return this.poll(response, seen, time);
      case 'POST /v1/runs':
        return reply(response, 201, {
          id: seen.body.id ?? 'run_new',
          workflow: seen.body.workflow,
          created: true,
        });
      case 'POST /v1/events': {
        const one = (event: any) => ({ id: event.id ?? 'evt_new', event: event.event, created: true });
        return reply(response, 201, Array.isArray(seen.body) ? seen.body.map(one) : one(seen.body));
      }
      default:
        reply(
          response,
          404,
          { status: 404, code: 'not_found', detail: 'nothing here' },
          'application/problem+json',
        );
    }
  }

  /**
   * A poll replaces the one before it, which is answered at once and empty. News is told until its call is named no more:
   * an answer may be lost.
   */
  private poll(response: http.ServerResponse, seen: Seen, time: string): void {
    const answer = (isReplaced: boolean): void => {
      const calls = isReplaced ? [] : this.newsFor(seen);
      if (calls.length === 0 && !isReplaced) return;
      this.polls.delete(answer);
      if (!response.writableEnded) reply(response, 200, { time, calls });
    };
    for (const older of this.polls) older(true);
    response.once('close', () => this.polls.delete(answer));
    this.polls.add(answer);
    answer(false);
  }

  private newsFor(seen: Seen): any[] {
    const told = this.news.flatMap((each) =>
      seen.body.calls
        .filter((named: any) => named.call === each.call && (each.nonce ?? named.nonce) === named.nonce)
        .map((named: any) => ({ ...each, nonce: named.nonce })),
    );
    const isAsked = (each: any): boolean =>
      each.status === 'named?' && told.some((one) => one.call === each.call);
    this.news = this.news.filter((each) => !isAsked(each));
    return told;
  }

  private save(save: any): any {
    const outcome = this.outcomes.shift();
    if (outcome !== undefined) return { call: save.call, ...outcome };
    const entries = this.entries.get(save.call) ?? [];
    this.entries.set(save.call, entries);
    const isOthers = save.items.some((item: any) => item.once === true && this.claimed.has(item.key));
    if (isOthers) return { call: save.call, status: 'ended' };
    const items = save.items.map((item: any) => this.item(item, entries));
    return { call: save.call, status: 'accepted', items, entries: [], ending: null };
  }

  private item(item: any, entries: any[]): any {
    if (item.op === 'start') return { status: 'started', again: this.started.has(item.name) };
    if (item.op === 'wait') return { status: 'waiting' };
    if (item.op === 'failed' && item.retriable && item.attempt <= item.retries) {
      return { status: 'retrying', attempt: item.attempt, retryInMs: 1_000 };
    }
    const made = { claim: !this.claimed.has(item.key), callback }[item.op as string];
    const output = made === undefined ? {} : { output: made };
    const there = entries.find((each) => each.name === item.name && each.number === item.number);
    const status = made === undefined && item.op !== 'undo' ? item.op : 'completed';
    if (there === undefined) entries.push({ ...item, ...output, entry: entries.length + 1, status });
    return { status: 'saved', entry: there?.entry ?? entries.length, ...output };
  }
}

const callback = { url: 'http://127.0.0.1:6355/callbacks/t', token: 't' };

export function reply(
  response: http.ServerResponse,
  status: number,
  body: unknown,
  type = 'application/json',
): void {
  response.writeHead(status, { 'content-type': type });
  response.end(typeof body === 'string' ? body : JSON.stringify(body));
}

/** Faults of what lies between. */
export const faults = {
  /** The request takes no effect and its connection closes. */
  closed: ((response) => Boolean(response.socket?.destroy())) as Fault,
  /** It is never answered, as on a connection that died without a word. */
  swallowed: (() => true) as Fault,
  halfAnswer: ((response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': '1000' });
    response.write('{"time":"2026');
    setImmediate(() => response.socket?.destroy());
    return true;
  }) as Fault,
  status:
    (status: number): Fault =>
    (response) => {
      reply(
        response,
        status,
        { status, code: `http_${status}`, detail: 'not now' },
        'application/problem+json',
      );
      return true;
    },
  html: ((response) => {
    reply(response, 200, '<h1>Welcome</h1>', 'text/html');
    return true;
  }) as Fault,
  redirect: ((response) => {
    response.writeHead(302, { location: '/login' });
    response.end();
    return true;
  }) as Fault,
};
