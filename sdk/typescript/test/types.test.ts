import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { compile, root, versions } from './compile.js';

const folders = ['bare', 'good', 'declared', 'refused'];

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
    const found = await compile(version, `test/types/${folder}`);
    const surprises = found.filter(({ file, line }) => !expected.has(`${file}:${line}`));
    expect(surprises).toEqual([]);
    for (const [place, text] of expected) {
      const said = found.filter(({ file, line }) => `${file}:${line}` === place).map((each) => each.text);
      expect(said.join(' '), `${place} is refused`).toContain(text === '' ? 'TS' : text);
    }
  },
);
