import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('..', import.meta.url));
const versions = ['typescript-5.9', 'typescript-6.0', 'typescript'];
const folders = ['bare', 'good', 'declared', 'refused'];

interface Problem {
  file: string;
  line: number;
  text: string;
}

/** Compiles a folder of test/types and gives what the compiler says of it. */
function compile(version: string, folder: string): Promise<Problem[]> {
  const { version: number } = JSON.parse(readFileSync(`${root}node_modules/${version}/package.json`, 'utf8'));
  const name = Number(number.split('.')[0]) >= 7 ? 'bin/tsc' : 'lib/tsc.js';
  const args = [`${root}node_modules/${version}/${name}`, '-p', `test/types/${folder}`, '--pretty', 'false'];
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

/** The lines that say `// refused: …`, and what the compiler must say there. */
function marked(folder: string): Map<string, string> {
  const lines = new Map<string, string>();
  for (const name of readdirSync(`${root}test/types/${folder}`).filter((each) => each.endsWith('.ts'))) {
    const file = `test/types/${folder}/${name}`;
    for (const [at, line] of readFileSync(root + file, 'utf8')
      .split('\n')
      .entries()) {
      const text = /\/\/ refused:(.*)$/.exec(line)?.[1];
      if (text !== undefined) lines.set(`${file}:${at + 1}`, text.trim());
    }
  }
  return lines;
}

const cases = versions.flatMap((version) => folders.map((folder) => [version, folder] as const));

test.each(cases)(
  '%s refuses in %s what is marked, and nothing else',
  { timeout: 120_000 },
  async (version, folder) => {
    const expected = marked(folder);
    const found = await compile(version, folder);
    const surprises = found.filter(({ file, line }) => !expected.has(`${file}:${line}`));
    expect(surprises).toEqual([]);
    for (const [place, text] of expected) {
      const said = found.filter(({ file, line }) => `${file}:${line}` === place).map((each) => each.text);
      expect(said.join(' '), `${place} is refused`).toContain(text === '' ? 'TS' : text);
    }
  },
);
