import { EventEmitter, once } from 'node:events';
import http from 'node:http';
import { Readable } from 'node:stream';
import express from 'express';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Webhook } from 'standardwebhooks';
import { handler as expressHandler } from '../src/adapters/express.js';
import { handler as nodeHandler } from '../src/adapters/node.js';
import { type Handler, Nelkap } from '../src/index.js';
import { callOf, headers, type Listening, listen, requestOf } from './app.js';
import { patience } from './clock.js';
import { FakeServer } from './server.js';

const canary = 'canary-8c1f1f4b2a';
const key = `whsec_${Buffer.from(canary.padEnd(32, '-')).toString('base64')}`;
const log = { debug: vi.fn(), info: vi.fn(), warn: vi.fn(), error: vi.fn() };
const nelkap = new Nelkap({ app: 'shop', logger: log });
const echo = nelkap.workflow(
  { name: 'echo', on: { event: 'order.paid' }, retries: 2 },
  (payload: unknown) => payload,
);
const options = { workflows: [echo], nelkap };

let app: Listening | undefined;

beforeEach(() => {
  vi.stubEnv('SECRET', canary);
  vi.stubEnv('NELKAP_DEV', '1');
});
afterEach(async () => {
  await app?.close();
  app = undefined;
  vi.unstubAllEnvs();
  vi.clearAllMocks();
});

const parsers: [string, express.RequestHandler[]][] = [
  ['no parser', []],
  ['express.json()', [express.json()]],
  ['express.raw()', [express.raw({ type: '*/*', limit: '20mb' })]],
  ['express.text()', [express.text({ type: '*/*', limit: '20mb' })]],
  [
    'a wrapper with a rawBody that comes later',
    [
      (request, _, next) => {
        const kept = Object.assign(request, { rawBody: '' });
        request.setEncoding('utf8').on('data', (part: string) => (kept.rawBody += part));
        next();
      },
    ],
  ],
  [
    'a wrapper with rawBody',
    [
      express.json({
        type: '*/*',
        limit: '20mb',
        verify: (request, _, buffer) => {
          (request as { rawBody?: Buffer }).rawBody = buffer;
        },
      }),
    ],
  ],
];

/** Serves the web handler as hosts of web requests do it on Node. */
function hostOf(web: Handler): http.RequestListener {
  return async (request, response) => {
    const body = ['GET', 'HEAD'].includes(request.method ?? '') ? undefined : request;
    const sent = new Request(`http://${request.headers.host}${request.url}`, {
      method: request.method ?? 'GET',
      headers: Object.entries(request.headers).map(([name, value]): [string, string] => [
        name,
        String(value),
      ]),
      ...(body !== undefined && { body: body as never, duplex: 'half' }),
    });
    const answer = await web(sent);
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    response.end(Buffer.from(await answer.arrayBuffer()));
  };
}

const hosts: [string, () => http.RequestListener][] = [
  ['http', () => nodeHandler(options)],
  ...parsers.map(([name, before]): [string, () => http.RequestListener] => [
    `express with ${name} before`,
    () => {
      const host = express();
      for (const parser of before) host.use(parser);
      host.use('/api/nelkap', expressHandler(options));
      return host;
    },
  ]),
  [
    'express with express.json() behind, by app.all',
    () => {
      const host = express();
      host.all('/api/nelkap', expressHandler(options));
      host.use(express.json());
      return host;
    },
  ],
  ['http with the web handler', () => hostOf(nelkap.handler({ workflows: [echo] }))],
];

describe.each(hosts)('%s', (_, host) => {
  const post = (body: string | Uint8Array, more: Record<string, string> = {}): Promise<Response> =>
    fetch((app as Listening).url, { method: 'POST', headers: { ...headers, ...more }, body: body as string });

  beforeEach(async () => {
    app = await listen(host());
  });

  test('plays a call', async () => {
    const payload = { text: 'é😀\u2028\ud800', n: 1e21 };
    const answer = await post(JSON.stringify(callOf('echo', { run: { payload } })));
    expect(answer.status).toBe(200);
    expect(answer.headers.get('content-type')).toBe('application/vnd.nelkap+json');
    expect(answer.headers.get('nelkap-sdk')).toMatch(/^typescript\/\d/);
    expect(await answer.json()).toMatchObject({ type: 'completed', output: payload });
  });

  test('plays a signed call and refuses any other', async () => {
    vi.stubEnv('NELKAP_SIGNING_KEY', key);
    const body = JSON.stringify(callOf('echo', { run: { payload: '😀\r\n' } }));
    const seconds = Math.floor(Date.now() / 1_000);
    const signature = new Webhook(key).sign('msg_1', new Date(seconds * 1_000), body);
    const signed = {
      'webhook-id': 'msg_1',
      'webhook-timestamp': `${seconds}`,
      'webhook-signature': signature,
    };
    expect(await (await post(body, signed)).json()).toMatchObject({ type: 'completed' });
    expect((await post(`${body} `, signed)).status).toBe(401);
    expect(await (await post(body)).json()).toMatchObject({ status: 401, code: 'unsigned' });
    const late = { ...signed, 'webhook-timestamp': `${seconds - 600}` };
    late['webhook-signature'] = new Webhook(key).sign('msg_1', new Date((seconds - 600) * 1_000), body);
    const refused: any = await (await post(body, late)).json();
    expect(refused).toMatchObject({ code: 'clock_differs', appTime: expect.any(String) });
    expect(refused.detail).toContain(new Date((seconds - 600) * 1_000).toISOString());
  });

  test('no method gives anything away', async () => {
    vi.stubEnv('NELKAP_SIGNING_KEY', key);
    for (const method of ['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'POST']) {
      const answer = await fetch((app as Listening).url, {
        method,
        ...(method === 'POST' && { headers, body: '{"type":"describe"}' }),
      });
      const text = await answer.text();
      const all = text + JSON.stringify([...answer.headers]);
      expect(all).not.toContain(canary);
      expect(all).not.toContain('echo');
      expect(answer.headers.get('nelkap-sdk')).toMatch(/^typescript\//);
      if (method === 'GET') expect([answer.status, text]).toEqual([200, '{"nelkap":true}']);
      else if (method === 'POST') expect(answer.status).toBe(401);
      else expect([answer.status, text]).toEqual([405, '']);
    }
  });

  test('a body over 16 MiB is refused while it is read', async () => {
    const answer = await post(`{${' '.repeat(16 * 1024 * 1024)}}`);
    expect(await answer.json()).toMatchObject({ status: 413, code: 'body_too_large' });
  });

  test('a body of 1 MiB in pieces is fine', async () => {
    const text = JSON.stringify(callOf('echo', { run: { payload: '😀'.repeat(300_000) } }));
    const pieces = new ReadableStream({
      start(controller) {
        const bytes = new TextEncoder().encode(text);
        for (let at = 0; at < bytes.length; at += 65_537) controller.enqueue(bytes.subarray(at, at + 65_537));
        controller.close();
      },
    });
    const answer = await fetch((app as Listening).url, {
      method: 'POST',
      headers,
      body: pieces,
      duplex: 'half',
    } as RequestInit);
    expect(((await answer.json()) as any).output).toHaveLength(600_000);
  });
});

test('a body that express.json() has parsed has lost its bytes, and the refusal says so', async () => {
  const host = express();
  host.use(express.json({ type: '*/*' }));
  host.use('/api/nelkap', expressHandler(options));
  app = await listen(host);
  const answer = await fetch(app.url, { method: 'POST', headers, body: JSON.stringify(callOf('echo')) });
  expect(await answer.json()).toMatchObject({
    code: 'bad_request',
    detail: expect.stringContaining('read the body before'),
  });
});

const web = nelkap.handler({ workflows: [echo] });

test('describe gives triggers as they were given, events and webhooks', async () => {
  const fn = (): void => {};
  const workflows = [
    nelkap.workflow({ name: 'a', on: { webhook: 'shop' } }, fn),
    nelkap.workflow(
      { name: 'b', on: [{ event: 'order.paid' }, { webhook: 'shop' }, { webhook: 'a/b' }] },
      fn,
    ),
  ];
  const answer = await nelkap.handler({ workflows })(requestOf({ type: 'describe' }));
  expect(await answer.text()).toContain(
    '"workflows":[{"name":"a","triggers":[{"webhook":"shop"}]},' +
      '{"name":"b","triggers":[{"event":"order.paid"},{"webhook":"shop"},{"webhook":"a/b"}]}]',
  );
});

test('describe gives the manifest, sorted, with the hash of its workflows', async () => {
  const names = ['b', '\uffff', '😀', 'a'].map((name) =>
    nelkap.workflow({ name, timeout: '2h', lease: '5m' }, () => 1),
  );
  const answer = await nelkap.handler({ workflows: [...names, echo] })(requestOf({ type: 'describe' }));
  const text = await answer.text();
  const manifest = JSON.parse(text);
  expect(manifest).toMatchObject({ app: 'shop', sdk: { language: 'typescript' }, protocol: 1 });
  expect(manifest.workflows.map((each: any) => each.name)).toEqual(['a', 'b', 'echo', '\uffff', '😀']);
  expect(manifest.workflows[2]).toEqual({ name: 'echo', triggers: [{ event: 'order.paid' }], retries: 2 });
  expect(manifest.workflows[0]).toEqual({ name: 'a', timeoutMs: 7_200_000, leaseMs: 300_000 });
  const { createHash } = await import('node:crypto');
  const list = text.slice(text.indexOf('"workflows":') + 12, -1);
  expect(manifest.hash).toBe(createHash('sha256').update(list).digest('hex'));
});

test.each<[string, unknown, Record<string, string>, number, string]>([
  [
    'another content type',
    { type: 'describe' },
    { 'content-type': 'application/json' },
    415,
    'bad_content_type',
  ],
  ['another protocol', { type: 'describe' }, { 'nelkap-protocol': '2' }, 422, 'protocol_unsupported'],
  ['another type', { type: 'verify' }, {}, 400, 'bad_request'],
  ['no object', 5, {}, 400, 'bad_request'],
  ['null', null, {}, 400, 'bad_request'],
  ['a call without a run', { type: 'call' }, {}, 400, 'bad_request'],
  ['an unknown workflow', callOf('constructor'), {}, 404, 'workflow_unknown'],
  [
    'a foreign address in an unsigned call',
    callOf('echo', { url: 'http://evil.example' }),
    {},
    400,
    'bad_request',
  ],
  ['a foreign host', { type: 'describe' }, { host: 'shop.example' }, 401, 'unsigned'],
  ...[
    { 'x-forwarded-for': '1.2.3.4' },
    { 'x-forwarded-for': '127.0.0.1, 1.2.3.4' },
    { 'x-forwarded-for': '' },
    { 'x-forwarded-host': 'shop.example' },
    { 'x-real-ip': '1.2.3.4' },
    { forwarded: 'for=127.0.0.1' },
  ].map((more): [string, unknown, Record<string, string>, number, string] => [
    `what was forwarded (${JSON.stringify(more)})`,
    { type: 'describe' },
    more,
    401,
    'unsigned',
  ]),
])('%s is refused', async (_, message, more, status, code) => {
  const answer = await web(requestOf(message, more));
  expect(answer.headers.get('content-type')).toBe('application/problem+json');
  expect(await answer.json()).toMatchObject({
    status,
    code,
    title: expect.any(String),
    detail: expect.any(String),
  });
  expect(answer.headers.get('nelkap-sdk')).toMatch(/^typescript\//);
});

test('an unsigned call from elsewhere is told what NELKAP_DEV=1 lets in', async () => {
  const refused = await web(requestOf({ type: 'describe' }, { 'x-forwarded-for': '1.2.3.4' }));
  const says =
    /: set NELKAP_SIGNING_KEY .* NELKAP_DEV=1, which takes calls of this machine alone, through no proxy/;
  expect(await refused.json()).toMatchObject({ code: 'unsigned', detail: expect.stringMatching(says) });
});

test('in development a host may add forwarding headers of its own, as Next.js does', async () => {
  const added = { 'x-forwarded-for': '::ffff:127.0.0.1', 'x-forwarded-host': 'localhost:3000' };
  const more = { ...added, 'x-forwarded-port': '3000', 'x-forwarded-proto': 'http' };
  expect((await web(requestOf({ type: 'describe' }, more))).status).toBe(200);
});

test.each(['true', '0', '1 ', 'yes'])('NELKAP_DEV=%s is not development', async (value) => {
  vi.stubEnv('NELKAP_DEV', value);
  expect((await web(requestOf({ type: 'describe' }))).status).toBe(401);
});

test('a broken key fails the request, and only the log knows why', async () => {
  vi.stubEnv('NELKAP_SIGNING_KEY', canary);
  const answer = await web(
    requestOf(
      { type: 'describe' },
      { 'webhook-id': 'x', 'webhook-timestamp': '1', 'webhook-signature': 'v1,x' },
    ),
  );
  const text = await answer.text();
  expect(answer.status).toBe(500);
  expect(text).toContain('"code":"internal"');
  expect(text).not.toContain('bytes');
  expect(log.error).toHaveBeenCalledTimes(1);
});

test('two workflows of one name, references and strangers are refused when the handler is made', () => {
  const twin = nelkap.workflow('echo', () => 2);
  expect(() => nelkap.handler({ workflows: [echo, twin] })).toThrow(/two workflows are named 'echo'/);
  expect(() => nelkap.handler({ workflows: [nelkap.ref('x')] })).toThrow(/is a reference/);
  expect(() => nelkap.handler({ workflows: [{ name: 'x' }] })).toThrow(/no workflow/);
  expect(() => nelkap.handler({ workflows: [echo, echo] })).not.toThrow();
});

test('a client that goes away while its body is read disturbs nobody', async () => {
  app = await listen(nodeHandler(options));
  const gone = http.request(app.url, { method: 'POST', headers: { ...headers, 'content-length': 1_000 } });
  gone.on('error', () => {});
  await new Promise((resolve) => gone.write('{', resolve));
  gone.destroy();
  const answer = await fetch(app.url);
  expect(await answer.json()).toEqual({ nelkap: true });
  expect(log.error).not.toHaveBeenCalled();
});

test('a body that the web handler can not read is refused, and is no failure of the SDK', async () => {
  const used = requestOf(callOf('echo'));
  used.body?.getReader();
  expect(await (await web(used)).json()).toMatchObject({
    status: 400,
    detail: expect.stringContaining('read the body before'),
  });
  const broken = new ReadableStream({ start: (controller) => controller.error(new Error('aborted')) });
  const cut = new Request('http://127.0.0.1', {
    method: 'POST',
    headers,
    body: broken,
    duplex: 'half',
  } as never);
  expect(await (await web(cut)).json()).toMatchObject({ status: 400, detail: 'The body was cut off.' });
  expect(log.error).not.toHaveBeenCalled();
});

/** A response of Node's whose connection breaks: `writableFinished` is true once the answer was handed to the system. */
class Breaking extends EventEmitter {
  statusCode = 0;
  writableFinished = false;
  setHeader(): void {}
  write(): boolean {
    return true;
  }
  end(): void {
    this.writableFinished = true;
    this.emit('written');
  }
}

test.each([
  ['that finished and then closed', ['finish', 'close'], 0],
  ['that closed before it finished, though it was written', ['close'], 1],
  ['that failed, though it was written', ['error', 'close'], 1],
])('the answer on a connection %s goes through the API as often as it must', async (_, events, ends) => {
  const server = await new FakeServer().start();
  const client = new Nelkap({ app: 'shop', url: server.url, logger: log });
  const w = client.workflow('w', () => client.step.run('a', () => 1));
  const response = new Breaking();
  const written = once(response, 'written');
  const message = callOf('w');
  const request = Object.assign(Readable.from([JSON.stringify(message)]), {
    method: 'POST',
    headers: { host: '127.0.0.1', ...headers },
    socket: { remoteAddress: '127.0.0.1' },
  });
  void nodeHandler({ workflows: [w], nelkap: client })(request, response);
  await written;
  for (const event of events) response.emit(event);
  await client.stop();
  expect(server.ends.map(({ call, end }) => [call, end.type])).toEqual(
    Array.from({ length: ends }, () => [message.call.id, 'completed']),
  );
  await server.stop();
});

test.each([
  ['while the code runs', (response: http.ServerResponse) => once(response.end('late'), 'finish')],
  ['just before the handler does', (response: http.ServerResponse) => response.end('late')],
  [
    'in part',
    (response: http.ServerResponse) => response.write('la') && setImmediate(() => response.end('te')),
  ],
])('where a middleware answers the request %s, the answer goes through the API once', async (_, answer) => {
  const server = await new FakeServer().start();
  const client = new Nelkap({ app: 'shop', url: server.url, logger: log });
  let answered: http.ServerResponse | undefined;
  const w = client.workflow('w', () =>
    client.step.run('a', async () => {
      await answer(answered as http.ServerResponse);
    }),
  );
  const serve = nodeHandler({ workflows: [w], nelkap: client });
  app = await listen((request, response) => {
    answered = response;
    void serve(request, response);
  });
  const message = callOf('w');
  const response = await fetch(app.url, { method: 'POST', headers, body: JSON.stringify(message) });
  expect(await response.text()).toBe('late');
  await client.stop();
  expect(server.ends.map(({ call, end }) => [call, end.type])).toEqual([[message.call.id, 'completed']]);
  await server.stop();
});

// Rule C10. Whoever waits for the stop ends the process then, and an answer that is not sent is a cut.
test('when a stop is over, a host of web requests has sent its answers', async () => {
  const server = await new FakeServer().start();
  const client = new Nelkap({ app: 'shop', url: server.url, logger: log });
  let finish: ((value: number) => void) | undefined;
  const held = () => new Promise<number>((resolve) => (finish = resolve));
  const w = client.workflow('w', () => client.step.run('a', held));
  const serve = hostOf(client.handler({ workflows: [w] }));
  let sent: http.ServerResponse | undefined;
  app = await listen((request, response) => serve(request, (sent = response)));
  const answer = fetch(app.url, { method: 'POST', headers, body: JSON.stringify(callOf('w')) });
  await vi.waitUntil(() => finish !== undefined, patience);
  const stopped = client.stop();
  finish?.(1);
  await stopped;
  expect(sent?.writableEnded).toBe(true);
  expect(await (await answer).json()).toMatchObject({ type: 'completed', output: 1 });
  await server.stop();
});
