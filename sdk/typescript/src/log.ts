type Write = (message: string, fields?: Record<string, unknown>) => void;

/** Where messages go; the default writes to the console. */
export interface Log {
  readonly debug: Write;
  readonly info: Write;
  readonly warn: Write;
  readonly error: Write;
}

type Level = 'debug' | 'info' | 'warn' | 'error';

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
  const write =
    (level: Level): Write =>
    (message, more) => {
      try {
        log[level](message, { ...fields, ...more });
      } catch {
        // The user's logger failed; there is nowhere left to say so.
      }
    };
  return { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
}
