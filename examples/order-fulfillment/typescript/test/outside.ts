import { inject } from 'vitest';
import { postJson, request } from '../src/http.js';

export const outside = new URL(inject('outside'));

export interface Counts {
  charges: number;
  refunds: number;
  emails: number;
  tickets: number;
}

/** What was done outside so far, by all test files together. */
export async function counts(): Promise<Counts> {
  return request<Counts>(new URL('/control/counts', outside));
}

/** Has the next request to a path fail after its effect. */
export async function failNext(path: string): Promise<void> {
  await fetch(new URL('/control/failures', outside), postJson({ path, status: 500 }));
}

/** Stops the next request with such a key before its effect ("work") or after it ("answer"). */
export async function hold(path: string, keyPrefix: string, at: 'work' | 'answer') {
  const { id } = await request<{ id: string }>(
    new URL('/control/holds', outside),
    postJson({ path, keyPrefix, at }),
  );
  const url = new URL(`/control/holds/${id}`, outside);
  return {
    /** Comes back once a request is held. */
    async holding(): Promise<void> {
      const wait = new URL(url);
      wait.searchParams.set('waitMs', '20000');
      const state = await request<{ holding: boolean }>(wait);
      if (!state.holding) throw new Error('No request came to be held.');
    },
    async release(): Promise<void> {
      await fetch(url, { method: 'DELETE' });
    },
  };
}
