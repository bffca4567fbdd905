import { expect, test } from 'vitest';
import { callOf, play } from './app.js';
import { faults, reply } from './server.js';
import { apiKey, nelkap, server } from './stage.js';

const made = {
  id: 'report of c_1',
  workflow: 'report',
  app: 'shop',
  schedule: '0 9 * * 1',
  timezone: 'Europe/Berlin',
  catchUp: 'none',
  payload: { customer: 'c_1' },
  declared: false,
  paused: false,
  nextAt: '2027-01-04T08:00:00.000Z',
  createdAt: '2027-01-01T00:00:00.000Z',
};
const path = '/v1/schedules/report%20of%20c_1';
const report = (): ReturnType<typeof nelkap.ref> => nelkap.ref('report');

/** Answers the next request of a path. */
function answer(at: string, body: unknown, status = 200): void {
  server.fault(at, (response) => {
    reply(response, status, body, status < 400 ? 'application/json' : 'application/problem+json');
    return true;
  });
}

function gone(): void {
  server.fault(path, (response) => {
    response.writeHead(204);
    response.end();
    return true;
  });
}

test('a schedule is put, looked at, paused, let go on and removed', async () => {
  answer(path, made);
  const options = {
    workflow: report(),
    schedule: '0 9 * * 1',
    timezone: 'Europe/Berlin',
    payload: { at: new Date(0) },
  };
  expect(await nelkap.schedules.put(made.id, options)).toEqual(made);
  answer(path, made);
  expect(await nelkap.schedules.get(made.id)).toEqual(made);
  answer(`${path}/pause`, { ...made, paused: true, nextAt: null });
  expect(await nelkap.schedules.pause(made.id)).toMatchObject({ paused: true, nextAt: null });
  answer(`${path}/resume`, made);
  expect(await nelkap.schedules.resume(made.id)).toEqual(made);
  gone();
  expect(await nelkap.schedules.delete(made.id)).toBeUndefined();
  expect(server.seen.map(({ method, path: at }) => `${method} ${at}`)).toEqual([
    `PUT ${path}`,
    `GET ${path}`,
    `POST ${path}/pause`,
    `POST ${path}/resume`,
    `DELETE ${path}`,
  ]);
  expect(server.seen[0]?.body).toEqual({
    workflow: 'report',
    schedule: '0 9 * * 1',
    timezone: 'Europe/Berlin',
    payload: { at: '1970-01-01T00:00:00.000Z' },
  });
  expect(server.seen[0]?.headers.authorization).toBe(`Bearer ${apiKey}`);
});

test('schedules are listed by pages', async () => {
  answer('/v1/schedules', { data: [made], nextCursor: 'x y' });
  const page = await nelkap.schedules.list({ limit: 1 });
  expect(page.data).toEqual([made]);
  answer('/v1/schedules', { data: [], nextCursor: null });
  await nelkap.schedules.list({ cursor: page.nextCursor as string });
  answer('/v1/schedules', { data: [], nextCursor: null });
  await nelkap.schedules.list();
  expect(server.seen.map((seen) => seen.path)).toEqual([
    '/v1/schedules?limit=1',
    '/v1/schedules?cursor=x+y',
    '/v1/schedules',
  ]);
});

test('a workflow of the app names it, and a paused schedule says so', async () => {
  answer(path, made);
  const workflow = nelkap.workflow('report', () => {});
  await nelkap.schedules.put(made.id, { workflow, schedule: '@daily', catchUp: 'last', paused: true });
  expect(server.seen[0]?.body).toEqual({
    workflow: 'report',
    app: 'shop',
    schedule: '@daily',
    catchUp: 'last',
    paused: true,
  });
});

test('what the server refuses is an error of its code, and what may pass is tried again', async () => {
  const detail = 'there is no schedule "report of c_1": GET /v1/schedules lists those that there are';
  answer(path, { status: 404, code: 'not_found', detail }, 404);
  await expect(nelkap.schedules.get(made.id)).rejects.toMatchObject({
    name: 'NelkapError',
    code: 'not_found',
    status: 404,
    detail,
  });
  answer(path, { status: 404, code: 'not_found', detail }, 404);
  await expect(nelkap.schedules.delete(made.id)).rejects.toMatchObject({ code: 'not_found' });
  server.fault(path, faults.status(503));
  answer(path, made);
  expect(await nelkap.schedules.get(made.id)).toEqual(made);
});

test('a schedule whose removal was answered into the void is gone', async () => {
  server.fault(path, faults.closed);
  answer(path, { status: 404, code: 'not_found', detail: 'gone' }, 404);
  expect(await nelkap.schedules.delete(made.id)).toBeUndefined();
});

test('a schedule is removed twice in a run, whose code may be played again', async () => {
  const none = { status: 404, code: 'not_found', detail: 'there is no such schedule' };
  const w = nelkap.workflow('w', async () => {
    await nelkap.schedules.delete(made.id);
    return nelkap.step.run('stop', () => nelkap.schedules.delete(made.id));
  });
  for (let n = 0; n < 2; n++) answer(path, none, 404);
  expect(await play(nelkap.handler({ workflows: [w] }), callOf('w'))).toMatchObject({ type: 'completed' });
});

test('a page that knows nothing of schedules removes none', async () => {
  server.fault(path, faults.closed);
  answer(path, { message: 'no such page' }, 404);
  await expect(nelkap.schedules.delete(made.id)).rejects.toMatchObject({ status: 404 });
});

test('what makes no sense is refused before it is sent', async () => {
  const put = (id: string, options: object): Promise<string> =>
    nelkap.schedules
      .put(id, { workflow: report(), schedule: '@daily', ...options })
      .then(String, (error: Error) => error.message);
  expect(await put('', {})).toBe('a schedule needs a name: give a text that is not empty');
  expect(await put('x', { workflow: {} })).toContain('this is no workflow');
  expect(await put('x', { schedule: ' ' })).toContain("the schedule 'x' is no text");
  expect(await put('x', { catchUp: 'some' })).toContain("catchUp of the schedule 'x' is none of");
  expect(await put('x', { payload: 1n })).toContain('payload is a bigint');
  expect(await put('x', { cron: '@daily' })).toContain(
    "the schedule 'x' has the option 'cron', which there is not",
  );
  await expect(nelkap.schedules.list({ page: 2 } as never)).rejects.toThrow("has the option 'page'");
  expect(server.seen).toEqual([]);
});

test('code that is verified changes no schedule, cancels no run and starts no replay', async () => {
  const w = nelkap.workflow('w', async () => {
    const { schedules } = nelkap;
    const put = await schedules.put(made.id, { workflow: report(), schedule: '@daily' });
    await schedules.pause(made.id);
    await schedules.delete(made.id);
    const run = await nelkap.cancel('run_1');
    const replay = await nelkap.replay('run_1');
    await nelkap.step.sleep(`${put.schedule} ${run.status} ${replay.workflow} ${replay.id.slice(0, 4)}`, 5);
  });
  for (let n = 0; n < 2; n++) {
    answer(path, made);
    answer('/v1/runs/run_1', { id: 'run_1', workflow: 'v', status: 'running' });
  }
  const { run, steps } = callOf('w');
  const verify = { type: 'verify', run, steps, limitMs: 5_000 };
  expect(await play(nelkap.handler({ workflows: [w] }), verify)).toMatchObject({
    asked: [{ name: '0 9 * * 1 running v run_' }],
  });
  expect(new Set(server.seen.map(({ method }) => method))).toEqual(new Set(['GET']));
});
