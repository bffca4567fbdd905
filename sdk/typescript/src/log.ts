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

/** A user's logger. One that throws must not fail a run (F10), so its errors are dropped. */
export function guarded(log: Log): Log {
  return logTo((level, ...line) => {
    try {
      log[level](...line);
    } catch {
      // There is nowhere left to say so.
    }
  });
}

/** A log that adds fields to every message. */
export function withFields(log: Log, fields: Record<string, unknown>): Log {
  return logTo((level, message, more) => log[level](message, { ...fields, ...more }));
}

/** A log whose messages all go to one function. */
export function logTo(to: (level: Level, ...line: Parameters<Write>) => void): Log {
  const write =
    (level: Level): Write =>
    (...line) =>
      to(level, ...line);
  return { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
}
