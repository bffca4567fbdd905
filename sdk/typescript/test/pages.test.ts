import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { compile, root, versions } from './compile.js';

let project: string;

// The programs of the README, one after the other in one file, and of the documentation, each in its own, in a project that has the package as users have it.
beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), 'nelkap-pages-'));
  mkdirSync(join(project, 'node_modules'));
  symlinkSync(root, join(project, 'node_modules/nelkap'));
  symlinkSync(join(root, 'node_modules/@types'), join(project, 'node_modules/@types'));
  writeFileSync(join(project, 'package.json'), '{ "private": true, "type": "module" }');
  const base = join(root, 'test/types/base.json');
  writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ extends: base, include: ['*.ts'] }));
  for (const [at, program] of programs().entries()) writeFileSync(join(project, `page${at}.ts`), program);
});
afterAll(() => rmSync(project, { recursive: true, force: true }));

function pages(): string[] {
  const docs = join(root, '../../docs');
  const found = existsSync(docs) ? readdirSync(docs, { recursive: true, encoding: 'utf8' }) : [];
  return [
    join(root, 'README.md'),
    ...found.filter((name) => name.endsWith('.md')).map((name) => join(docs, name)),
  ];
}

function programs(): string[] {
  return pages()
    .map((page) =>
      Array.from(readFileSync(page, 'utf8').matchAll(/^```ts\n(.*?)^```$/gms), ([, code = '']) => code),
    )
    .flatMap((blocks, page) => (page === 0 ? [blocks.join('\n')] : blocks));
}

test('the README has programs', () => {
  expect(programs().length).toBeGreaterThan(0);
});

test.each(versions)('the programs on the pages compile with %s', { timeout: 120_000 }, async (version) => {
  expect(await compile(version, project)).toEqual([]);
});
