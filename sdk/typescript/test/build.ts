import { execFileSync } from 'node:child_process';

/** The package and type tests look at what is built, so it is built once, before any of them. */
export function setup(): void {
  execFileSync('npm', ['run', '--silent', 'build'], {
    cwd: new URL('..', import.meta.url),
    stdio: 'inherit',
  });
}
