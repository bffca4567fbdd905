import type { CallMessage } from '../core/message.js';
import { Refusal } from './refusal.js';

type Request = { type: 'describe' } | CallMessage;

/** The server's message, or a Refusal for what is none. Only what the SDK would trip over is looked at. */
export function parseRequest(body: Uint8Array): Request {
  let message: Partial<Omit<CallMessage, 'type'>> & { type?: unknown };
  try {
    message = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body));
  } catch {
    throw bad('the body is no JSON in UTF-8');
  }
  if (typeof message !== 'object' || message === null) throw bad('the body is no object');
  if (message.type === 'describe') return { type: 'describe' };
  if (message.type !== 'call') throw bad("type is neither 'describe' nor 'call'");
  const { run, call, steps } = message;
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
