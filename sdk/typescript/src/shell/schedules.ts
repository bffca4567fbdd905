import { stringify } from '../core/text.js';
import { encode } from '../core/value.js';
import type { NelkapError } from '../errors.js';
import type { Schedule, ScheduleOptions, SchedulePage, Schedules } from '../schedule.js';
import { checkName, definitionOf, refuseOthers, scheduleOf } from './definition.js';
import { type Exchange, exchange, REQUEST_LIMIT_MS } from './http.js';
import { shared } from './process.js';
import { addressFor, isFrozen, persist, type Sender } from './send.js';

/** The schedules of the server that `sender` speaks to. Each request may be repeated: the second changes nothing. */
export function schedulesOf(sender: () => Sender): Schedules {
  const once = (from: Sender, method: Exchange['method'], path: string, body?: object): Promise<unknown> => {
    const sent = body === undefined ? {} : { body: stringify(body) };
    const request = { method, path: `/v1/schedules${path}`, ...sent, limitMs: REQUEST_LIMIT_MS };
    return exchange(addressFor(from), shared().clock, request);
  };
  const ask: (method: Exchange['method'], path: string, body?: object) => Promise<unknown> = (...request) => {
    const from = sender();
    return persist(undefined, () => once(from, ...request));
  };
  /** Code that must leave no mark sees the schedule as it is. */
  const act = async (method: 'PUT' | 'POST', id: string, verb: string, body?: object): Promise<Schedule> => {
    const path = pathOf(id);
    return (await (isFrozen(sender().scope) ? ask('GET', path) : ask(method, path + verb, body))) as Schedule;
  };
  return {
    put: async (id, options) => act('PUT', id, '', bodyOf(id, options)),
    get: async (id) => (await ask('GET', pathOf(id))) as Schedule,
    list: async (options) => (await ask('GET', queryOf(options))) as SchedulePage,
    pause: (id) => act('POST', id, '/pause'),
    resume: (id) => act('POST', id, '/resume'),
    delete: async (id) => {
      const path = pathOf(id);
      const from = sender();
      if (isFrozen(from.scope)) return;
      let tries = 0;
      await persist(undefined, () => {
        tries += 1;
        return once(from, 'DELETE', path).catch((error: unknown) => {
          // An answer may have been lost, or the run's code have been played before: then it is gone already.
          const isFirst = tries === 1 && from.scope === undefined;
          if (isFirst || (error as NelkapError).code !== 'not_found') throw error;
        });
      });
    },
  };
}

function pathOf(id: string): string {
  return `/${encodeURIComponent(checkName(id, 'a schedule'))}`;
}

function queryOf(options: { cursor?: string; limit?: number } = {}): string {
  refuseOthers(options, ['cursor', 'limit'], 'the list of schedules');
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(options)) if (value !== undefined) query.set(name, `${value}`);
  return query.size === 0 ? '' : `?${query}`;
}

function bodyOf(id: string, options: ScheduleOptions): object {
  const what = `the schedule '${id}'`;
  refuseOthers(options, ['workflow', 'schedule', 'timezone', 'catchUp', 'payload', 'paused'], what);
  const { workflow, schedule, timezone, catchUp, payload, paused } = options;
  const { name, app } = definitionOf(workflow);
  return {
    workflow: name,
    app: app(),
    ...scheduleOf({ schedule, timezone, catchUp }, what),
    payload: encode(payload, 'payload'),
    paused,
  };
}
