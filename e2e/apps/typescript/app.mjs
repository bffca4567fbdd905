// The app of the TypeScript SDK in the tests: it carries out plans (../../plan/plan.go) and leaves marks, as ../go does. The tests
// copy it beside a copy of the built package, so that `nelkap` is found as any app finds it.
import { randomUUID } from 'node:crypto';
import { existsSync, openSync, writeSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { NonRetriableError, nelkap, RetryAfterError } from 'nelkap';
import { handler } from 'nelkap/node';

const { pid, env } = process;
const name = env.NELKAP_APP;
const event = `${name}.heard`;
const marks = openSync(env.E2E_MARKS, 'a');

/** Appends a line, in one write: a kill leaves whole lines. */
function mark(fields) {
  const at = performance.timeOrigin + performance.now();
  writeSync(marks, `${JSON.stringify({ step: '', attempt: 0, id: '', ...fields, pid, at })}\n`);
}

/** Waits until a gate is open for this process, or for this attempt; false when the signal is aborted first. */
async function wait(gate, signal, attempt) {
  const file = path.join(env.E2E_GATES, gate);
  const names = [file, `${file}.${pid}`, `${file}.attempt${attempt}`];
  while (!names.some((name) => existsSync(name))) {
    if (signal.aborted) return false;
    await pause(10);
  }
  return true;
}

/** Every step's body. */
async function body(run, step, { attempt, signal }) {
  const mine = { run, step: step.name, attempt, id: randomUUID() };
  mark({ kind: 'body', ...mine });
  if (step.takesMs) await pause(step.takesMs);
  if (step.gate && !(await wait(step.gate, signal, attempt))) {
    mark({ kind: 'aborted', ...mine, why: signal.reason.message });
  }
  if (step.fails) throw new NonRetriableError(step.fails);
  if (attempt <= (step.throws ?? 0)) throw new RetryAfterError(`attempt ${attempt} throws`, 20);
  const result = { id: mine.id, pid };
  const small = { steps: [{ name: 'small' }], parent: run };
  if (step.child) result.child = (await nelkap.run(planned, small)).id;
  if (step.emit) result.event = (await nelkap.emit({ event, payload: small })).id;
  if (step.gate) mark({ kind: 'ended', ...mine });
  return result;
}

/** Does one step. */
async function one(run, step) {
  if (step.sleepsMs) await nelkap.step.sleep(step.name, step.sleepsMs);
  else if (step.waitsFor) await nelkap.step.waitForEvent(step.name, { event: step.waitsFor });
  else if (step.invokes) await nelkap.step.invoke(step.name, planned, { steps: step.invokes, parent: run });
  else if (step.calls) await callback(run, step.name);
  else if (step.beside) await Promise.all(step.beside.map((each) => one(run, each)));
  else await nelkap.step.run(step.name, (context) => body(run, step, context));
}

/** Waits for what is posted at an address that it leaves in a mark. */
async function callback(run, name) {
  const made = await nelkap.step.callback(name);
  mark({ kind: 'address', run, step: name, url: made.url });
  await made.wait();
}

/** The function of every workflow. */
async function play(plan, { run, signal }) {
  const added = env.E2E_VERSION === '2' ? [{ name: 'added' }] : [];
  const steps = [...added, ...(plan.steps ?? [])];
  for (let i = 1; i <= (plan.repeat ?? 0); i++) steps.push({ name: `step ${i}` });
  for (const step of steps) {
    if (env.E2E_VERSION === '3') step.name = `renamed ${step.name}`;
    await one(run.id, step);
  }
  if (plan.gate) {
    mark({ kind: 'outside', run: run.id });
    await wait(plan.gate, signal);
  }
  return { steps: steps.length, pid };
}

const planned = nelkap.workflow('planned', play);
const heard = nelkap.workflow({ name: 'heard', on: { event } }, play);
const hooked = nelkap.workflow({ name: 'hooked', on: { event: `webhook.${name}` } }, (hook, context) =>
  play(hook.json, context),
);
const workflows = [planned, heard, hooked].filter((each) => each.name !== env.E2E_WITHOUT);

const server = http.createServer(handler({ workflows }));
const [host, port] = env.E2E_ADDR.split(':');
server.listen(Number(port), host);

process.on('SIGTERM', async () => {
  await nelkap.stop();
  server.close(() => process.exit(0));
  server.closeAllConnections();
});
