#!/usr/bin/env node
// Runs the program of the package for this platform, which npm installs as an optional dependency.

import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import process from 'node:process';

const require = createRequire(import.meta.url);
const platform = `${process.platform}-${process.arch}`;
const name = `@ostler/${platform}`;

let program;
try {
  program = require.resolve(`${name}/bin/ostler`);
} catch {
  const known = Object.keys(require('../package.json').optionalDependencies);
  process.stderr.write(
    known.includes(name)
      ? `ostler: the package ${name} is not installed; install ostler again without --omit=optional\n`
      : `ostler: no program for ${platform}; there are ${known.join(', ')}. Build it from source with cargo.\n`,
  );
  process.exit(1);
}

const args = process.argv.slice(2);
if (typeof process.execve === 'function') {
  try {
    process.execve(program, [program, ...args], process.env);
  } catch {
    // Not on this platform: as a child, below.
  }
}

const child = spawn(program, args, { stdio: 'inherit' });
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGUSR2']) {
  process.on(signal, () => child.kill(signal));
}
child.on('error', (error) => {
  process.stderr.write(`ostler: cannot run ${program}: ${error.message}\n`);
  process.exit(1);
});
child.on('exit', (code, signal) => {
  if (signal === null) {
    process.exit(code);
  }
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
