import { appendFileSync } from 'node:fs';
import { nelkap, type StepContext, type StepFunction, type Stored } from 'nelkap';
import { shop } from './order.js';
import { settings } from './settings.js';

/** The `nelkap.step` of a run whose bodies are counted. */
export interface MarkedStep {
  run<T>(name: string, fn: StepFunction<T>): Promise<Stored<T>>;
}

/**
 * Gives a `step` that does what `nelkap.step` does, and adds a line to a file each time a body runs. The demo and the
 * tests count the lines; an app of your own uses `nelkap.step` itself.
 */
export function marked(run: string, order: string): MarkedStep {
  return {
    run<T>(name: string, fn: StepFunction<T>): Promise<Stored<T>> {
      const counted = (context: StepContext) => {
        mark({ app: shop, run, step: name, order, attempt: context.attempt, process: process.pid });
        return fn(context);
      };
      // What T is can't be checked here, where it is open; the caller's function was checked already.
      return nelkap.step.run<T>(name, counted as StepFunction<T>);
    },
  };
}

function mark(body: Record<string, unknown>): void {
  if (settings.marks !== undefined) appendFileSync(settings.marks, `${JSON.stringify(body)}\n`);
}
