import type { Level } from './core/message.js';

type Write = (message: string, fields?: Record<string, unknown>) => void;

/**
 * Where messages go; the default writes to the console. The `log` of a workflow and of a step also adds each line to the log that
 * the server keeps of the run, and writes nothing again while saved steps answer.
 */
export interface Log {
  readonly debug: Write;
  readonly info: Write;
  readonly warn: Write;
  readonly error: Write;
}

function toConsole(level: Level): Write {
  return (message, fields) =>
    fields === undefined ? console[level](message) : console[level](message, fields);
}

export const consoleLog: Log = {
  debug: toConsole('debug'),
  info: toConsole('info'),
  warn: toConsole('warn'),
  error: toConsole('error'),
};

/** A log that adds fields to every message. A logger that throws must not fail a run (F10), so its errors are dropped. */
export function withFields(log: Log, fields: Record<string, unknown>): Log {
  return logTo((level, message, more) => {
    try {
      log[level](message, { ...fields, ...more });
    } catch {
      // The user's logger failed; there is nowhere left to say so.
    }
  });
}

/** A log whose messages all go to one function. */
export function logTo(to: (level: Level, message: string, fields?: Record<string, unknown>) => void): Log {
  const write =
    (level: Level): Write =>
    (message, fields) =>
      to(level, message, fields);
  return { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
}
