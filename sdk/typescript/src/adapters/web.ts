import { Refusal } from '../shell/refusal.js';
import { BODY_BYTES_MAX, type Incoming, type Reply, type Server } from '../shell/serve.js';

/** Serves web-standard requests. */
export async function serveWeb(server: Server, request: Request): Promise<Response> {
  const reply = await server.reply(incoming(request));
  // Whether the host delivers it can't be seen here: a lost answer is a cut (C10).
  if (request.signal?.aborted) reply.call?.disconnected();
  else reply.call?.delivered();
  return new Response(reply.body, { status: reply.status, headers: headersOf(reply) });
}

/** `connection` is forbidden in a Response on some hosts. */
function headersOf({ headers: { connection: _, ...rest } }: Reply): Record<string, string> {
  return rest;
}

function incoming(request: Request): Incoming {
  return {
    method: request.method,
    header: (name) => request.headers.get(name) ?? undefined,
    body: () => read(request),
    peer: undefined,
    isClosed: () => request.signal?.aborted ?? false,
    onClose: (then) => request.signal?.addEventListener('abort', then, { once: true }),
  };
}

async function read(request: Request): Promise<Uint8Array> {
  if (request.bodyUsed || request.body?.locked) throw alreadyRead();
  const reader = request.body?.getReader();
  if (reader === undefined) return new Uint8Array();
  const body = new Collected();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) body.add(part.value);
  } catch (error) {
    throw cutOff(error);
  }
  return body.bytes();
}

/** What a body is refused with whose reading failed: its own refusal, or that it came to no end. */
export function cutOff(error: unknown): Refusal {
  return error instanceof Refusal ? error : new Refusal(400, 'bad_request', 'The body was cut off.');
}

export function alreadyRead(): Refusal {
  return new Refusal(
    400,
    'bad_request',
    'Something read the body before Nelkap could check its signature: mount the handler before it, or keep the raw body.',
  );
}

/** A body as it comes in, up to its limit. */
export class Collected {
  private readonly parts: Uint8Array[] = [];
  private length = 0;

  add(part: Uint8Array): void {
    this.length += part.length;
    if (this.length > BODY_BYTES_MAX) {
      throw new Refusal(413, 'body_too_large', `The body has more than ${BODY_BYTES_MAX} bytes.`);
    }
    this.parts.push(part);
  }

  bytes(): Uint8Array {
    const whole = new Uint8Array(this.length);
    let at = 0;
    for (const part of this.parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }
}
