import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { wholeCall } from './transcript.js';

let count = 0;

/** A call's message for a workflow. */
export function callOf(
  workflow: string,
  parts: { run?: object; call?: object; steps?: object; ending?: object; url?: string } = {},
): any {
  const id = ++count;
  const call = { id: `call_${id}`, epoch: 1, token: `token_${id}`, heartbeatMs: 5_000, ...parts.call };
  const message = wholeCall(
    {
      run: { id: `run_${id}`, root: `run_${id}`, ...parts.run },
      call,
      steps: parts.steps,
      ending: parts.ending,
    },
    workflow,
  );
  return parts.url === undefined ? message : { ...message, url: parts.url };
}

export const headers = { 'content-type': 'application/vnd.nelkap+json', 'nelkap-protocol': '1' };

/** A web request as the server sends it in development. */
export function requestOf(message: unknown, more: Record<string, string> = {}): Request {
  return new Request('http://127.0.0.1/api/nelkap', {
    method: 'POST',
    headers: { host: '127.0.0.1', ...headers, ...more },
    body: JSON.stringify(message),
  });
}

export interface Listening {
  url: string;
  close(): Promise<void>;
}

/** Serves an app on loopback. */
export async function listen(listener: http.RequestListener): Promise<Listening> {
  const server = http.createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/api/nelkap`;
  return {
    url,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** The answer to a call that is sent to a handler. */
export async function play(handler: (request: Request) => Promise<Response>, message: unknown): Promise<any> {
  const response = await handler(requestOf(message));
  return { status: response.status, ...((await response.json()) as object) };
}
