import type { CallMessage } from '../core/message.js';
import { milliseconds } from '../duration.js';
import { withFields } from '../log.js';
import type { HandlerOptions, Nelkap } from '../nelkap.js';
import { Call, type CallAnswer, type CallOptions } from './call.js';
import { byName, type Definition } from './definition.js';
import { describe, type Manifest } from './manifest.js';
import type { Destination } from './destination.js';
import { loadContext, shared } from './process.js';
import type { Scope } from './scope.js';
import type { Settings } from './settings.js';
import { CLOCK_MS_MAX, verify } from './signature.js';
import { Refusal } from './refusal.js';
import { isForwarded, isLoopback, isLoopbackHost, parseRequest } from './request.js';
import { SDK } from './version.js';

export const BODY_BYTES_MAX: number = 16 * 1024 * 1024;
const CONTENT_TYPE = 'application/vnd.nelkap+json';
/** A call signed longer ago binds before it plays (C4). */
const LATE_MS = 5_000;
/** Of the host's time limit, what is kept for the answer: a fifth, at most 15 s. */
const ANSWER_SHARE = 0.2;
const ANSWER_MS_MAX = 15_000;

/** A request as an adapter brings it. */
export interface Incoming {
  readonly method: string;
  readonly header: (name: string) => string | undefined;
  /** The raw bytes; fails with a Refusal. */
  readonly body: () => Promise<Uint8Array>;
  /** The peer's address; undefined where the adapter can't see it. */
  readonly peer: string | undefined;
  readonly isClosed: () => boolean;
  /** Calls back when the connection closes, if it ever does before the answer was delivered. */
  readonly onClose: (then: () => void) => void;
}

/** What an adapter sends. It says `delivered` or `disconnected` to the call then. */
export interface Reply {
  status: number;
  headers: Record<string, string>;
  body: string | null;
  call?: Call;
}

export interface ServerOptions {
  readonly settings: Settings;
  readonly options: HandlerOptions;
  readonly bind: (scope: Scope) => Nelkap;
  /** The client's calls under way: only those. */
  readonly calls: Set<Call>;
  readonly isStopping: () => boolean;
}

/** Answers the server's requests for one handler. Never throws. */
export class Server {
  private readonly given: ServerOptions;
  private readonly definitions: Map<string, Definition>;
  private readonly yieldAfterMs: number | undefined;
  private manifest: Promise<Manifest> | undefined;

  constructor(given: ServerOptions) {
    this.given = given;
    this.definitions = byName(given.options.workflows);
    const { maxDuration } = given.options;
    if (maxDuration === undefined) return;
    const ms = milliseconds(maxDuration, 'maxDuration');
    this.yieldAfterMs = ms - Math.min(ANSWER_MS_MAX, ms * ANSWER_SHARE);
  }

  async reply(incoming: Incoming): Promise<Reply> {
    try {
      return await this.route(incoming);
    } catch (error) {
      if (error instanceof Refusal) return problem(error);
      // Strangers learn nothing of what failed; the app's own log does.
      this.given.settings.log.error('the Nelkap handler failed', { error });
      return problem(
        new Refusal(500, 'internal', 'The SDK failed while it answered; the log of the app says why.'),
      );
    }
  }

  private async route(incoming: Incoming): Promise<Reply> {
    if (incoming.method === 'GET') return json(200, 'application/json', '{"nelkap":true}');
    if (incoming.method !== 'POST')
      return { status: 405, headers: { ...headers(), allow: 'GET, POST' }, body: null };
    const type = incoming.header('content-type')?.split(';')[0]?.trim().toLowerCase();
    if (type !== CONTENT_TYPE) throw new Refusal(415, 'bad_content_type', `Send ${CONTENT_TYPE}.`);
    const body = await incoming.body();
    const isSigned = await this.authorize(incoming, body);
    const protocol = incoming.header('nelkap-protocol');
    if (protocol !== '1') {
      throw new Refusal(
        422,
        'protocol_unsupported',
        `This SDK (${SDK}) speaks protocol 1: upgrade it, or the server.`,
      );
    }
    const request = parseRequest(body);
    if (request.type === 'call') return this.call(incoming, request, isSigned);
    if (request.type === 'verify') return this.verify(request.call, request.limitMs);
    const { text } = await this.described();
    return json(200, CONTENT_TYPE, text);
  }

  private described(): Promise<Manifest> {
    return (this.manifest ??= describe(this.given.settings.app, this.definitions.values()));
  }

  /** True for a signed request; a Refusal for one that may not come in. */
  private async authorize(incoming: Incoming, body: Uint8Array): Promise<boolean> {
    const { settings } = this.given;
    const keys = settings.signingKeys;
    if (keys.length === 0) return this.authorizeUnsigned(incoming);
    const now = shared().clock.now();
    const timestamp = incoming.header('webhook-timestamp');
    const verdict = await verify(
      { id: incoming.header('webhook-id'), timestamp, signature: incoming.header('webhook-signature'), body },
      keys,
      now,
    );
    switch (verdict) {
      case 'valid':
        return true;
      case 'unsigned':
        throw new Refusal(
          401,
          'unsigned',
          'This app takes signed calls only: give the server its NELKAP_SIGNING_KEY.',
        );
      case 'bad_signature':
        throw new Refusal(
          401,
          'bad_signature',
          'No key of this app made this signature: give server and app the same NELKAP_SIGNING_KEY.',
        );
      case 'clock_differs':
        throw clockDiffers(Number(timestamp) * 1_000, now);
    }
  }

  private authorizeUnsigned(incoming: Incoming): false {
    const { settings } = this.given;
    const isLocal =
      incoming.peer === undefined ? isLoopbackHost(incoming.header('host')) : isLoopback(incoming.peer);
    if (settings.isDev && isLocal && !isForwarded(incoming.header)) return false;
    throw new Refusal(
      401,
      'unsigned',
      'This app has no signing key: set NELKAP_SIGNING_KEY to that of the server, or for development NELKAP_DEV=1, which takes calls of this machine alone, through no proxy.',
    );
  }

  private async call(incoming: Incoming, message: CallMessage, isSigned: boolean): Promise<Reply> {
    const { settings, calls, isStopping } = this.given;
    const definition = this.definitionFor(message);
    if (!isSigned && message.url !== undefined && !isLoopbackHost(hostOf(message.url))) {
      throw new Refusal(
        400,
        'bad_request',
        'An unsigned call may name only an address of this machine (url).',
      );
    }
    await loadContext();
    const { hash } = await this.described();
    // Nothing is awaited from here until the call is among those that a stop waits for.
    if (isStopping()) return stopping();
    const destination = settings.destination(message.url, isSigned);
    const options = { ...this.optionsFor(message, definition, destination), manifest: hash };
    const call = new Call({
      ...options,
      yieldAfterMs: this.yieldAfterMs,
      onOver: (over) => calls.delete(over),
    });
    calls.add(call);
    incoming.onClose(() => call.disconnected());
    await call.start(isLate(incoming, message, destination.requests.url), () => !incoming.isClosed());
    return replyTo(call, await call.answer);
  }

  /** Plays the run's code against its history, and says what it asks for. Nothing is sent to anyone (D3). */
  private async verify(message: CallMessage, limitMs: number): Promise<Reply> {
    const definition = this.definitionFor(message);
    await loadContext();
    if (this.given.isStopping()) return stopping();
    const destination = this.given.settings.destination(undefined, false);
    const call = new Call({
      ...this.optionsFor(message, definition, destination),
      manifest: '',
      yieldAfterMs: undefined,
      onOver: () => {},
      verifyMs: limitMs,
    });
    await call.start(false, () => true);
    const { body, status, headers: sent } = replyTo(call, await call.answer);
    return { body, status, headers: sent };
  }

  private definitionFor({ run }: CallMessage): Definition {
    const definition = this.definitions.get(run.workflow);
    if (definition !== undefined) return definition;
    const detail = `This app has no workflow '${run.workflow}': give it to the handler.`;
    throw new Refusal(404, 'workflow_unknown', detail);
  }

  private optionsFor(
    message: CallMessage,
    definition: Definition,
    destination: Destination,
  ): Pick<CallOptions, 'message' | 'definition' | 'destination' | 'log' | 'bind'> {
    const { settings, bind } = this.given;
    const { id, workflow } = message.run;
    return { message, definition, destination, log: withFields(settings.log, { run: id, workflow }), bind };
  }
}

function isLate(incoming: Incoming, { call }: CallMessage, url: string): boolean {
  const sentAt = Date.parse(call.sentAt ?? '');
  const signedAt = Number.isNaN(sentAt) ? Number(incoming.header('webhook-timestamp')) * 1_000 : sentAt;
  const { clock, offsets } = shared();
  return clock.now() + (offsets.get(url) ?? 0) - signedAt > LATE_MS;
}

function hostOf(url: string): string | undefined {
  try {
    return new URL(url).host;
  } catch {
    return undefined;
  }
}

function replyTo(call: Call, answer: CallAnswer): Reply {
  if (answer.is === 'answer') return { ...json(200, CONTENT_TYPE, answer.text), call };
  const detail = 'The saved steps could not be read, or the connection was gone.';
  return { ...problem(new Refusal(500, 'internal', detail)), ...(answer.is === 'none' && { call }) };
}

/** A 503 only raises a question, and another process of the app may answer it (C1). */
function stopping(): Reply {
  const reply = problem(
    new Refusal(503, 'stopping', 'This process of the app is stopping; another one goes on.'),
  );
  return { ...reply, headers: { ...reply.headers, 'retry-after': '1', connection: 'close' } };
}

function clockDiffers(serverMs: number, appMs: number): Refusal {
  const appTime = new Date(appMs).toISOString();
  const named = Number.isNaN(serverMs) ? 'unreadable' : new Date(Math.min(serverMs, 8.64e15)).toISOString();
  const minutes = CLOCK_MS_MAX / 60_000;
  const detail = `The server's clock says ${named}, the app's ${appTime}, more than ${minutes} minutes apart: set them right.`;
  return new Refusal(401, 'clock_differs', detail, { appTime });
}

function headers(): Record<string, string> {
  return { 'nelkap-sdk': SDK, 'cache-control': 'no-store' };
}

function json(status: number, type: string, body: string): Reply {
  return { status, headers: { ...headers(), 'content-type': type }, body };
}

function problem({ status, code, message, extra }: Refusal): Reply {
  const title = code.charAt(0).toUpperCase() + code.slice(1).replaceAll('_', ' ');
  const body = JSON.stringify({ type: 'about:blank', title, status, code, detail: message, ...extra });
  return json(status, 'application/problem+json', body);
}
