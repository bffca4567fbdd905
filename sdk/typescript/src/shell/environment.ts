/** Reads a variable when it is needed, never when a module loads: hosts set them late, and some have no `process`. */
export function variable(name: string): string | undefined {
  const value = (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env?.[
    name
  ];
  return value === undefined || value === '' ? undefined : value;
}
