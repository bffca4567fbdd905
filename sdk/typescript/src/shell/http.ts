import { NelkapError } from '../errors.js';
import type { Clock } from './process.js';

/** An address and how to speak to it. */
export interface Address {
  readonly url: string;
  readonly apiKey: string | undefined;
  readonly fetch: typeof fetch;
  /** Limits requests in place of the clock that they are given. */
  readonly clock?: Clock;
}

export interface Exchange {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE';
  path: string;
  /** JSON text. */
  body?: string;
  headers?: Record<string, string>;
  /** After so long without an answer the request counts as failed; a large body gets more. */
  limitMs: number;
  signal?: AbortSignal | undefined;
}

/** What is swallowed on its way must be tried again while whoever asked still waits. */
export const REQUEST_LIMIT_MS: number = 15_000;
/** What even a slow line takes of a body. */
const UNITS_PER_MS = 128;

/** One request and its JSON answer. Every failure is a NelkapError: status 0 where no answer came. */
export async function exchange(address: Address, clock: Clock, request: Exchange): Promise<unknown> {
  const { method, path, body } = request;
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  const limitMs = request.limitMs + (body?.length ?? 0) / UNITS_PER_MS;
  const cancel = (address.clock ?? clock).after(limitMs, abort);
  request.signal?.addEventListener('abort', abort);
  if (request.signal?.aborted) abort();
  try {
    const response = await address.fetch.call(globalThis, join(address.url, path), {
      method,
      redirect: 'manual',
      headers: headersOf(address, request),
      signal: controller.signal,
      ...(body !== undefined && { body }),
    });
    return await read(response, address.url).catch((error: unknown) => {
      note(error, response);
      throw error;
    });
  } catch (error) {
    throw error instanceof NelkapError ? error : unreachable(address.url, error);
  } finally {
    cancel();
    request.signal?.removeEventListener('abort', abort);
  }
}

function join(url: string, path: string): string {
  return url.replace(/\/+$/, '') + path;
}

function headersOf(address: Address, request: Exchange): Record<string, string> {
  return {
    accept: 'application/json',
    ...(request.body !== undefined && { 'content-type': 'application/json' }),
    ...(address.apiKey !== undefined && { authorization: `Bearer ${address.apiKey}` }),
    ...request.headers,
  };
}

async function read(response: Response, url: string): Promise<unknown> {
  const text = await response.text();
  if (response.status === 204) return undefined;
  // An app answers every GET with JSON, and is no server.
  const type = response.headers.get('nelkap-sdk')
    ? 'an app'
    : (response.headers.get('content-type') ?? 'nothing');
  if (response.status >= 300 && response.status < 400) {
    const to = response.headers.get('location') ?? 'nowhere';
    throw new NelkapError(
      'redirected',
      response.status,
      `${url} redirects to ${to}: set NELKAP_URL to the server itself`,
    );
  }
  if (/^application\/([\w.+-]+\+)?json\b/i.test(type)) {
    const parsed = parse(text);
    if (response.ok && parsed !== undefined) return parsed;
    if (!response.ok) throw fromProblem(response.status, parsed);
  }
  throw new NelkapError(
    'unexpected_answer',
    response.status,
    `${url} answered ${response.status} with ${type} instead of JSON: is NELKAP_URL the address of a Nelkap server?`,
  );
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function fromProblem(status: number, parsed: unknown): NelkapError {
  const problem = (typeof parsed === 'object' && parsed !== null ? parsed : {}) as Record<string, unknown>;
  const code = typeof problem['code'] === 'string' ? problem['code'] : `http_${status}`;
  const said = [problem['detail'], problem['title']].find((text) => typeof text === 'string' && text !== '');
  return new NelkapError(code, status, typeof said === 'string' ? said : `the server answered ${status}`);
}

function unreachable(url: string, cause: unknown): NelkapError {
  const { message, code }: { message?: string; code?: string } =
    (cause as Error | undefined)?.cause ?? cause ?? {};
  const why = message || code; // an error of several addresses has no message
  const detail = `no Nelkap server answers at ${url} (${why}): start one (nelkap dev), or set NELKAP_URL to where it is`;
  return new NelkapError('unreachable', 0, detail, { cause });
}

/** The pauses that refusals asked for. Beside the errors: a field of theirs would be saved with a step's failure. */
const pauses: WeakMap<object, number> = new WeakMap();

function note(error: unknown, { status, headers }: Response): void {
  const seconds = headers.get('retry-after') ?? '';
  if (!(error instanceof NelkapError) || (status !== 429 && status !== 503)) return;
  if (/^\d{1,9}$/.test(seconds)) pauses.set(error, Number(seconds) * 1_000);
}

/** The pause that a 429 or 503 asked for with `Retry-After` in seconds; 0 where none did. */
export function askedPauseMs(error: unknown): number {
  return pauses.get(error as object) ?? 0;
}

/** Whether the same request may succeed a moment later. A 2xx or 4xx that is not ours comes from something in between. */
export function isPassing(error: unknown): boolean {
  return error instanceof NelkapError && [0, 429, 502, 503, 504].includes(error.status);
}
