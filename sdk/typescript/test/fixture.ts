/** The workflows that transcripts play, over any way to run a step. */
export type RunStep = (name: string) => Promise<unknown>;

export const fixtures = {
  'one step': (step: RunStep) => step('a'),
  'two steps': async (step: RunStep) => [await step('a'), await step('b')],
  'same name': async (step: RunStep) => [await step('a'), await step('a'), await step('a')],
  caught: (step: RunStep) => step('a').catch((error: Error) => error.message),
  throws: async (step: RunStep) => {
    await step('a');
    throw new Error('no');
  },
  nothing: async (_: RunStep) => {},
  'side by side': (step: RunStep) => Promise.all([step('a'), step('b')]),
  race: (step: RunStep) => Promise.race([step('a'), step('b')]),
};
