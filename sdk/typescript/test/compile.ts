import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** The package's folder, with a slash at its end. */
export const root: string = fileURLToPath(new URL('..', import.meta.url));
/** The compilers that users may have: the oldest and the newest that are supported, and one between. */
export const versions: readonly string[] = ['typescript-5.9', 'typescript-6.0', 'typescript'];

/** What the compiler says of a line; of no line where `file` is empty. */
export interface Problem {
  file: string;
  line: number;
  text: string;
}

/** Compiles a folder with a tsconfig.json, and gives what the compiler says of it. */
export function compile(version: string, folder: string): Promise<Problem[]> {
  const { version: number } = JSON.parse(readFileSync(`${root}node_modules/${version}/package.json`, 'utf8'));
  const name = Number(number.split('.')[0]) >= 7 ? 'bin/tsc' : 'lib/tsc.js';
  const args = [`${root}node_modules/${version}/${name}`, '-p', folder, '--pretty', 'false'];
  return new Promise((resolve) => {
    execFile(process.execPath, args, { cwd: root, maxBuffer: 1e8 }, (_, stdout) => resolve(problems(stdout)));
  });
}

function problems(output: string): Problem[] {
  const found: Problem[] = [];
  for (const line of output.split('\n')) {
    const [, file, at, text] = /^(\S+)\((\d+),\d+\): error (.*)$/.exec(line) ?? [];
    if (file !== undefined && text !== undefined) found.push({ file, line: Number(at), text });
    else if (line.startsWith(' ')) (found.at(-1) as Problem).text += ` ${line.trim()}`;
    else if (line !== '') found.push({ file: '', line: 0, text: line });
  }
  return found;
}
