export { CrashError, crashEverywhere } from './crash.js';
export type { CrashOptions, CrashReport, Scenario } from './crash.js';
export type { LeaveOptions, Mark, Marks } from './marks.js';
export { marks } from './marks.js';
export type { FromOutside, Timing } from './outside.js';
export { hang } from './process.js';
export { testRun } from './run.js';
export type { FakeStep, FakeWorkflow, TestLine, TestOptions, TestRun, TestStep, TestWait } from './run.js';
