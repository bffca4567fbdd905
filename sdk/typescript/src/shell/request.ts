import type { CallMessage, VerifyMessage } from '../core/message.js';
import { Refusal } from './refusal.js';

type Request = { type: 'describe' } | CallMessage | { type: 'verify'; call: CallMessage; limitMs: number };

/** The server's message, or a Refusal for what is none. Only what the SDK would trip over is looked at. */
export function parseRequest(body: Uint8Array): Request {
  let message: { type?: unknown };
  try {
    message = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch {
    throw bad('the body is no JSON in UTF-8');
  }
  if (typeof message !== 'object' || message === null) throw bad('the body is no object');
  switch (message.type) {
    case 'describe':
      return { type: 'describe' };
    case 'call':
      return parseCall(message as Partial<CallMessage>);
    case 'verify': {
      const { limitMs, ...rest } = message as Partial<VerifyMessage>;
      if (!isPositive(limitMs)) throw bad('limitMs is missing');
      const call = parseCall({ ...rest, call: noCall } as object);
      // There is no call of which more pages could be asked for.
      call.steps.next = null;
      return { type: 'verify', call, limitMs: limitMs as number };
    }
    default:
      throw bad("type is none of 'describe', 'call' and 'verify'");
  }
}

/** Stands for the call of a run that is verified: nothing of it is ever sent. */
const noCall: CallMessage['call'] = { id: '-', token: '-', cuts: 0, leaseMs: 1, heartbeatMs: 1 };

function parseCall(message: Partial<CallMessage>): CallMessage {
  const { run, call, steps, ending } = message;
  const isWhole =
    isText(run?.id) &&
    isText(run?.workflow) &&
    isText(run?.root) &&
    isText(call?.id) &&
    isText(call?.token) &&
    isPositive(call?.leaseMs) &&
    isPositive(call?.heartbeatMs) &&
    Array.isArray(steps?.entries) &&
    Array.isArray(steps.waiting ?? []) &&
    Array.isArray(steps.begun ?? []) &&
    (ending === undefined || (isText(ending?.reason) && typeof ending.entries === 'number')) &&
    (message.url === undefined || isText(message.url));
  if (!isWhole) throw bad('the call lacks a field that the protocol asks for');
  return {
    ...message,
    type: 'call',
    call: { ...(call as CallMessage['call']), cuts: call?.cuts ?? 0 },
    steps: {
      entries: steps?.entries ?? [],
      next: steps?.next ?? null,
      retrying: steps?.retrying ?? [],
      waiting: steps?.waiting ?? [],
      begun: steps?.begun ?? [],
    },
    run: {
      ...(run as CallMessage['run']),
      event: run?.event ?? null,
      restart: run?.restart ?? 0,
      attempt: run?.attempt ?? 1,
    },
  };
}

function bad(detail: string): Refusal {
  return new Refusal(400, 'bad_request', `This is no request of protocol 1: ${detail}.`);
}

function isText(value: unknown): boolean {
  return typeof value === 'string' && value !== '';
}

function isPositive(value: unknown): boolean {
  return typeof value === 'number' && value > 0;
}

/** An address of this machine, as a socket shows it. */
export function isLoopback(address: string): boolean {
  return /^(::ffff:)?127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/i.test(address) || address === '::1';
}

/** A `Host` of this machine. */
export function isLoopbackHost(host: string | undefined): boolean {
  const [, name] = /^(\[[^\]]*\]|[^:]*)(?::\d+)?$/.exec(host ?? '') ?? [];
  if (name === undefined) return false;
  return name.toLowerCase() === 'localhost' || name === '[::1]' || isLoopback(name);
}

/** Whether a request came by way of another machine. Next.js adds such headers by itself, and they name this one then. */
export function isForwarded(header: (name: string) => string | undefined): boolean {
  const names = (name: string, isOurs: (of: string) => boolean): boolean =>
    header(name)
      ?.split(',')
      .some((of) => !isOurs(of.trim())) ?? false;
  return (
    header('forwarded') !== undefined ||
    names('x-forwarded-for', isLoopback) ||
    names('x-real-ip', isLoopback) ||
    names('x-forwarded-host', isLoopbackHost)
  );
}
