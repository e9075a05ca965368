// What a worker runs first: it sets itself up as it was started, and imports its module.

import native from 'native/worker';
import { decode, encode, portOf } from 'internal/messaging';
import { thread } from 'internal/worker-state';
import { createRequire } from 'node:module';
import process from 'node:process';

const started = native.setup();
const { data: given } = decode(started);
Object.assign(thread, {
  id: started.threadId,
  name: given.name,
  data: given.workerData,
  port: portOf(started.port),
  limits: given.limits,
  environment: given.environment,
});

function replace(target, values) {
  for (const name of Object.keys(target)) delete target[name];
  Object.assign(target, values);
}
replace(process.env, given.env);
process.argv.splice(1, Infinity, ...(given.file ? [given.file] : ['[worker eval]']), ...given.argv);

/** Bytes of what nobody caught. */
native.onFailure((error, kind, limit) => {
  if (kind !== 'error') return encode(limit).data;
  try {
    return encode(error).data;
  } catch {
    return encode(new Error(String(error?.message ?? error))).data;
  }
});

const code = () => Number(process.exitCode ?? 0);
let left = false;
function leave(status) {
  if (left) return;
  left = true;
  process.exitCode = status;
  process.emit('exit', status);
}

native.onEnd(() => {
  process.emit('beforeExit', code());
  leave(code());
  native.setExitCode(code());
});

process.reallyExit = (status = code()) => {
  leave(Number(status));
  native.exit(code());
  // Nothing further of the worker runs.
  for (;;);
};
for (const name of ['abort', 'chdir']) {
  process[name] = () => {
    throw Object.assign(new TypeError(`process.${name}() is not supported in workers`), {
      code: 'ERR_WORKER_UNSUPPORTED_OPERATION',
    });
  };
}

function evaluate(source) {
  const require = createRequire(`${process.cwd()}/[worker eval]`);
  const module = { exports: {} };
  const run = new Function('exports', 'require', 'module', '__filename', '__dirname', source);
  run.call(module.exports, module.exports, require, module, '[worker eval]', '.');
}

native.online();
queueMicrotask(() => {
  if (given.file) native.import(given.file);
  else evaluate(given.code);
});
