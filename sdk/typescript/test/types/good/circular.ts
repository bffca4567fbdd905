// Workflows that start themselves and one another.
import { nelkap, type Workflow } from 'nelkap';

export const poll2 = nelkap.workflow('poll', async (n: number): Promise<void> => { await nelkap.step.run('next', () => nelkap.run(poll2, n + 1)); });
export const poll3 = nelkap.workflow('poll', async (n: number, { log }): Promise<void> => { log.info('x'); await nelkap.step.run('next', () => nelkap.run(poll3, n + 1)); });
export const poll4: Workflow<number, void> = nelkap.workflow('poll', async (n: number) => { await nelkap.step.run('next', () => nelkap.run(poll4, n + 1)); });
export const poll5 = nelkap.workflow('poll', async (n: number) => { await nelkap.step.run('next', () => nelkap.run(nelkap.ref<Workflow<number, void>>('poll'), n + 1)); });
export const ping: Workflow<number, void> = nelkap.workflow('ping', async (n: number) => { await nelkap.step.run('pong', () => nelkap.run(pong, n)); });
export const pong: Workflow<number, void> = nelkap.workflow('pong', async (n: number) => { await nelkap.step.run('ping', () => nelkap.run(ping, n)); });
export const poll = nelkap.workflow('poll', async (n: number) => { await nelkap.step.run('next', () => nelkap.run(poll, n + 1)); });
export const poll8 = nelkap.workflow('poll', async (n: number): Promise<string> => { if (n > 3) return 'x'; return nelkap.step.invoke('next', poll8, n + 1); });
export const tick: Workflow<number, void> = nelkap.workflow('tick', async (n: number) => { await nelkap.step.invoke('tock', tock, n); });
export const tock: Workflow<number, void> = nelkap.workflow('tock', async (n: number) => { await nelkap.step.invoke('tick', tick, n); });
