import { PayloadError } from '../errors.js';
import type { StandardSchemaV1 } from '../schema.js';
import type { Definition } from './definition.js';

type Checked = { value: unknown } | { error: unknown };

/** The payload as the workflow's schema makes it. A payload that does not fit fails the run for good. */
export async function payloadFor({ name, schema }: Definition, payload: unknown): Promise<Checked> {
  if (schema === undefined) return { value: payload };
  try {
    const result = await schema['~standard'].validate(payload);
    if (result.issues === undefined) return { value: result.value };
    const issues = result.issues.map((issue) => ({ message: issue.message, path: pathOf(issue) }));
    const list = issues.map((issue) => `${issue.path}: ${issue.message}`).join('; ');
    return { error: new PayloadError(`The payload does not fit workflow '${name}': ${list}`, issues) };
  } catch (error) {
    return { error };
  }
}

function pathOf(issue: StandardSchemaV1.Issue): string {
  let path = 'payload';
  for (const part of issue.path ?? []) {
    const key = typeof part === 'object' && part !== null ? part.key : part;
    path += typeof key === 'number' ? `[${key}]` : `.${String(key)}`;
  }
  return path;
}
