import { type HandlerOptions, type Nelkap, nelkap as defaultClient, serverOf } from '../nelkap.js';
import type { Incoming, Reply } from '../shell/serve.js';
import { alreadyRead, Collected, cutOff } from './web.js';

/** The parts of Node's request that are used; structural, so that no @types/node is needed. */
export interface NodeRequest extends AsyncIterable<Uint8Array | string> {
  method?: string | undefined;
  url?: string | undefined;
  headers: Record<string, string | string[] | undefined>;
  socket?: { remoteAddress?: string | undefined; destroyed?: boolean };
}

/** The parts of Node's response that are used. */
export interface NodeResponse {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  write(chunk: Uint8Array): boolean;
  end(chunk?: string | Uint8Array): unknown;
  once(event: string, listener: (...args: any[]) => void): unknown;
}

/** What wrappers and body parsers leave on a request, and what Node has beyond the least. */
interface Extra {
  rawBody?: unknown;
  body?: unknown;
  readableEnded?: boolean;
  destroyed?: boolean;
  headersSent?: boolean;
}

export interface NodeHandlerOptions extends HandlerOptions {
  /** The client whose settings count; the default one otherwise. */
  nelkap?: Nelkap;
}

/**
 * The handler for `http.createServer`, and for what builds on it. Mount it on a path of its own, such as
 * `/api/nelkap`; body parsers before it may stay. The promise never rejects.
 */
export function handler(
  options: NodeHandlerOptions,
): (request: NodeRequest, response: NodeResponse) => Promise<void> {
  const { nelkap = defaultClient, ...rest } = options;
  const server = serverOf(nelkap, rest);
  return async (request, response) => {
    const connection = new Connection(response);
    const reply = await server.reply(incoming(request, connection));
    connection.write(reply);
  };
}

/**
 * A response's connection: `close` without `finish` before it is the lost one; with it, it is every request's end. Node's own
 * `writableFinished` does not tell them apart: it is true too when the connection broke under an answer that was written.
 * A `finish` of an answer that is not ours (a middleware's, after its time limit) loses it as well.
 */
class Connection {
  isClosed = false;
  private readonly response: NodeResponse & Extra;
  private isFinished = false;
  private reply: Reply | undefined;
  private onLost: (() => void) | undefined;

  constructor(response: NodeResponse) {
    this.response = response;
    this.isClosed = this.response.destroyed === true;
    response.once('finish', () => this.finished());
    response.once('close', () => this.closed());
    // Without a listener a broken pipe would end the process (N5).
    response.once('error', () => this.closed());
  }

  whenLost(then: () => void): void {
    this.onLost = then;
  }

  write(reply: Reply): void {
    const { response } = this;
    if (this.isClosed || response.headersSent === true) {
      this.isClosed = true;
      reply.call?.disconnected();
      return;
    }
    this.reply = reply;
    response.statusCode = reply.status;
    for (const [name, value] of Object.entries(reply.headers)) response.setHeader(name, value);
    if (reply.body === null) response.end();
    else response.end(reply.body);
  }

  private finished(): void {
    if (this.reply === undefined) return this.closed();
    this.isFinished = true;
    this.reply.call?.delivered();
  }

  private closed(): void {
    if (this.isClosed || this.isFinished) return;
    this.isClosed = true;
    this.onLost?.();
  }
}

function incoming(request: NodeRequest & Extra, connection: Connection): Incoming {
  return {
    method: request.method ?? 'GET',
    header: (name) => {
      const value = request.headers[name];
      return Array.isArray(value) ? value.join(', ') : value;
    },
    body: () => read(request),
    peer: request.socket?.remoteAddress,
    isClosed: () => connection.isClosed || request.socket?.destroyed === true,
    onClose: (then) => connection.whenLost(then),
  };
}

const encoder = new TextEncoder();

/** The raw bytes: as a wrapper has kept them, unless it only begins to, else from the stream. A parsed body has lost them. */
async function read(request: NodeRequest & Extra): Promise<Uint8Array> {
  for (const kept of [request.rawBody, request.body]) {
    if ((kept instanceof Uint8Array || typeof kept === 'string') && kept.length > 0) {
      const body = new Collected();
      body.add(typeof kept === 'string' ? encoder.encode(kept) : kept);
      return body.bytes();
    }
  }
  if (request.readableEnded === true) throw alreadyRead();
  const body = new Collected();
  try {
    for await (const part of request) body.add(typeof part === 'string' ? encoder.encode(part) : part);
  } catch (error) {
    throw cutOff(error);
  }
  return body.bytes();
}
