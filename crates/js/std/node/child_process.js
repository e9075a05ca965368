import { clearTimeout, setTimeout } from 'internal/timers';
import loader from 'native/globals';
import native from 'native/child';
import own from 'native/process';
import { Bytes } from 'internal/buffer';
import { EventEmitter } from 'node:events';
import { Readable, Writable } from 'node:stream';
import process from 'node:process';
import { constants } from 'node:os';
import { absent } from 'internal/absent';
import { abortError, checkString, coded, missing, outOfRange, wrongType, wrongValue } from 'internal/errors';
import { pathOf } from 'internal/fs';

const { signals } = constants;
const custom = Symbol.for('nodejs.util.promisify.custom');

function nameOf(number) {
  return number === null || number === undefined
    ? null
    : (Object.keys(signals).find((name) => signals[name] === number) ?? `SIG${number}`);
}

function numberOf(signal) {
  const number = typeof signal === 'number' ? signal : signals[`${signal}`.toUpperCase()];
  if (number === undefined) throw coded(TypeError, 'ERR_UNKNOWN_SIGNAL', `Unknown signal: ${signal}`);
  return number;
}

const MOST_STREAMS = 64;

/** What a descriptor of the child is: a pipe, nothing, a file, a stream of the plugin's, or a log: `'pipe'`, `'ignore'`, `{ file }`, `{ stream }`, `{ log }`. */
function wayOf(way, at) {
  if (way === undefined || way === null) return at < 3 ? 'pipe' : 'ignore';
  if (way === 'pipe' || way === 'overlapped') return 'pipe';
  if (way === 'ignore') return 'ignore';
  if (way === 'ipc') throw missing("child_process with stdio 'ipc'");
  if (way === 'inherit') {
    if (at > 2) throw missing(`child_process with stdio[${at}] 'inherit'`, 'give it a pipe or a file');
    // The daemon's own streams are not a child's.
    return at === 0 ? 'ignore' : { log: at };
  }
  if (Number.isInteger(way) && way >= 0) {
    if (way > 2) return { file: way };
    return way === 0 || at === 0 ? 'ignore' : { log: way };
  }
  // Members of the plugin's stream, such as `file`, are not ours.
  if (typeof way?.write === 'function' || typeof way?.pipe === 'function') return { stream: way };
  throw wrongValue('stdio', way);
}

function waysOf(stdio) {
  if (!Array.isArray(stdio)) {
    if (!['pipe', 'overlapped', 'ignore', 'inherit', null, undefined].includes(stdio))
      throw wrongValue('stdio', stdio);
    stdio = [stdio, stdio, stdio];
  }
  if (stdio.length > MOST_STREAMS) throw outOfRange('stdio.length', `<= ${MOST_STREAMS}`, stdio.length);
  return Array.from({ length: Math.max(3, stdio.length) }, (_, at) => wayOf(stdio[at], at));
}

/** Refuses to start this program as Node: it would take the script for a command, and a caller may not look at its answer. */
function refuseScript(file, args) {
  if (file !== own.exec) return;
  const first = args.find((each) => !each.startsWith('-')) ?? '';
  const evaluates = args.some((each) =>
    ['-e', '--eval', '-p', '--print', '-r', '--require', '--import'].includes(each),
  );
  if (!evaluates && !/\.[cm]?[jt]s$/.test(first)) return;
  const why = `${file} is ostler and not Node: it cannot run ${evaluates ? 'JavaScript' : first}. Install Node where PATH names it, or set its program where the package has an option for it`;
  // Some packages ignore the error.
  process.emitWarning(why, 'ChildProcessWarning', 'ERR_FEATURE_UNAVAILABLE');
  throw coded(Error, 'ERR_FEATURE_UNAVAILABLE', why);
}

function prepare(file, args, options, ways) {
  checkString(file, 'file');
  if (file === '')
    throw coded(TypeError, 'ERR_INVALID_ARG_VALUE', "The argument 'file' cannot be empty. Received ''");
  let list = args.map((each) => `${each}`);
  let command = file;
  if (options.shell) {
    const line = [file, ...list].join(' ');
    command = typeof options.shell === 'string' ? options.shell : '/bin/sh';
    list = ['-c', line];
  }
  refuseScript(command, list);
  const env = {};
  const given = options.env ?? process.env;
  for (const name of Object.keys(given)) if (given[name] !== undefined) env[name] = `${given[name]}`;
  return {
    file: command,
    args: list,
    argv0: options.argv0,
    cwd: options.cwd === undefined || options.cwd === null ? undefined : pathOf(options.cwd, 'options.cwd'),
    env,
    uid: options.uid,
    gid: options.gid,
    detached: !!options.detached,
    stdio: ways.map((way) => (way === 'ignore' ? 'ignore' : (way.file ?? 'pipe'))),
  };
}

function split(args, options) {
  if (Array.isArray(args)) return [args, options ?? {}];
  if (args !== null && typeof args === 'object') return [[], args];
  if (args !== undefined && args !== null) throw wrongType('args', 'an instance of Array', args);
  return [[], options ?? {}];
}

function output(read) {
  return new Readable({
    async read() {
      try {
        this.push(await read());
      } catch (error) {
        this.destroy(error);
      }
    },
  });
}

function input(handle) {
  return new Writable({
    write(chunk, encoding, callback) {
      handle.write(chunk).then(() => callback(), callback);
    },
    final(callback) {
      handle.end().then(() => callback(), callback);
    },
    destroy(error, callback) {
      handle.end().then(
        () => callback(error),
        () => callback(error),
      );
    },
  });
}

/** A pipe beside the standard streams, which both ends read and write. */
function both(end) {
  const { Socket } = loader.load('node:net');
  return new Socket({ _handle: end });
}

export class ChildProcess extends EventEmitter {
  #handle = null;
  pid = undefined;
  exitCode = null;
  signalCode = null;
  killed = false;
  connected = false;
  stdin = null;
  stdout = null;
  stderr = null;
  stdio = [null, null, null];
  spawnfile = '';
  spawnargs = [];

  _start(file, args, options) {
    const ways = waysOf(options.stdio ?? 'pipe');
    const prepared = prepare(file, args, options, ways);
    this.spawnfile = prepared.file;
    this.spawnargs = [options.argv0 ?? prepared.file, ...prepared.args];
    try {
      this.#handle = native.spawn(prepared);
    } catch (error) {
      Object.assign(error, {
        syscall: `spawn ${file}`,
        path: file,
        spawnargs: args,
        message: `spawn ${file} ${error.code}`,
      });
      queueMicrotask(() => {
        this.emit('error', error);
        this.emit('close', error.errno, null);
      });
      this.stdio = ways.map((way, at) =>
        way === 'ignore' || way.file !== undefined
          ? null
          : at === 0
            ? new Writable({ write: (c, e, done) => done() })
            : new Readable({
                read() {
                  this.push(null);
                },
              }),
      );
      [this.stdin, this.stdout, this.stderr] = this.stdio;
      return;
    }
    const handle = this.#handle;
    this.pid = handle.pid;
    this.stdio = [
      handle.write ? input(handle) : null,
      handle.stdout ? output(handle.stdout) : null,
      handle.stderr ? output(handle.stderr) : null,
      ...handle.extra.map((end) => (end ? both(end) : null)),
    ];
    const outputs = this.stdio.slice(1).filter(Boolean);
    // Before anybody else may take what they say.
    const drained = Promise.all(
      outputs.map((stream) => new Promise((resolve) => stream.once('close', resolve))),
    );
    for (const [at, way] of ways.entries()) {
      if (typeof way !== 'object' || way.file !== undefined) continue;
      const stream = this.stdio[at];
      if (way.log) stream.pipe(way.log === 1 ? process.stdout : process.stderr, { end: false });
      else if (at === 0 || typeof way.stream.write !== 'function') way.stream.pipe(stream);
      else stream.pipe(way.stream);
      this.stdio[at] = null;
    }
    [this.stdin, this.stdout, this.stderr] = this.stdio;
    queueMicrotask(() => this.emit('spawn'));
    handle.ended.then(
      async ([code, signal]) => {
        this.exitCode = code ?? null;
        this.signalCode = nameOf(signal);
        this.stdin?.destroy();
        this.emit('exit', this.exitCode, this.signalCode);
        // What nobody reads would never end.
        for (const stream of outputs)
          if (stream.readableFlowing === null && stream.listenerCount('readable') === 0) stream.resume();
        await drained;
        this.emit('close', this.exitCode, this.signalCode);
      },
      (error) => this.emit('error', error),
    );
    this.#limit(options);
  }

  #limit({ timeout, killSignal = 'SIGTERM', signal }) {
    if (timeout > 0) {
      const timer = setTimeout(() => this.kill(killSignal), timeout);
      this.once('exit', () => clearTimeout(timer));
    }
    if (signal) {
      const give = () => {
        if (this.kill(killSignal)) this.emit('error', abortError(signal));
      };
      if (signal.aborted) queueMicrotask(give);
      else {
        signal.addEventListener('abort', give, { once: true });
        this.once('exit', () => signal.removeEventListener('abort', give));
      }
    }
  }

  kill(signal = 'SIGTERM') {
    const number = numberOf(signal);
    const reached = this.#handle?.kill(number) ?? false;
    if (reached && number !== 0) this.killed = true;
    return reached;
  }

  ref() {}
  unref() {}
  disconnect() {}
  [Symbol.dispose]() {
    if (!this.killed) this.kill();
  }
}
Object.defineProperty(ChildProcess.prototype, '_start', { enumerable: false });

export function spawn(file, args, options) {
  const [list, settings] = split(args, options);
  const child = new ChildProcess();
  child._start(file, list, settings);
  return child;
}

function collect(child, file, args, options, callback) {
  const encoding = options.encoding === undefined ? 'utf8' : options.encoding;
  const most = options.maxBuffer ?? 1024 * 1024;
  const pieces = { stdout: [], stderr: [] };
  let failure = null;
  for (const name of ['stdout', 'stderr']) {
    let length = 0;
    child[name]?.on('data', (chunk) => {
      length += chunk.length;
      if (length > most) {
        failure ??= coded(
          RangeError,
          'ERR_CHILD_PROCESS_STDIO_MAXBUFFER',
          `${name} maxBuffer length exceeded`,
        );
        child.kill(options.killSignal ?? 'SIGTERM');
      }
      pieces[name].push(
        length > most ? chunk.subarray(0, Math.max(0, chunk.length - (length - most))) : chunk,
      );
    });
  }
  let done = false;
  const finish = (code, signal) => {
    if (done) return;
    done = true;
    const [stdout, stderr] = ['stdout', 'stderr'].map((name) => {
      const all = Bytes.concat(pieces[name]);
      return encoding && encoding !== 'buffer' ? all.toString(encoding) : all;
    });
    if (!failure && (code !== 0 || signal)) {
      const line = [file, ...args].join(' ');
      failure = Object.assign(new Error(`Command failed: ${line}\n${stderr}`), { code: code ?? null });
    }
    if (failure)
      Object.assign(
        failure,
        { killed: child.killed, signal: signal ?? null, cmd: [file, ...args].join(' ') },
        { stdout, stderr },
      );
    callback?.(failure, stdout, stderr);
  };
  child.on('error', (error) => {
    failure = error;
    finish(null, null);
  });
  child.on('close', finish);
  return child;
}

export function execFile(file, args, options, callback) {
  if (typeof args === 'function') [args, options, callback] = [[], {}, args];
  else if (typeof options === 'function') [options, callback] = [undefined, options];
  const [list, settings] = split(args, options);
  return collect(spawn(file, list, { ...settings, stdio: 'pipe' }), file, list, settings, callback);
}

export function exec(command, options, callback) {
  if (typeof options === 'function') [options, callback] = [{}, options];
  const settings = { ...options, shell: options?.shell ?? true };
  return collect(spawn(command, [], { ...settings, stdio: 'pipe' }), command, [], settings, callback);
}

function promised(start) {
  return (...given) => {
    let child;
    const promise = new Promise((resolve, reject) => {
      child = start(...given, (error, stdout, stderr) =>
        error ? reject(error) : resolve({ stdout, stderr }),
      );
    });
    promise.child = child;
    return promise;
  };
}
Object.defineProperty(exec, custom, {
  value: promised((command, options, callback) =>
    typeof options === 'function' ? exec(command, options) : exec(command, options, callback),
  ),
});
Object.defineProperty(execFile, custom, { value: promised((...given) => execFile(...given)) });

export function spawnSync(file, args, options) {
  const [list, settings] = split(args, options);
  const ways = waysOf(settings.stdio ?? 'pipe');
  const given = settings.input;
  const lost = ways.findIndex((way, at) => at > 2 && way !== 'ignore' && way.file === undefined);
  if (lost > 0)
    throw missing(
      `child_process.spawnSync with stdio[${lost}]`,
      'use child_process.spawn, or give it a file',
    );
  if (given === undefined && ways[0] === 'pipe') ways[0] = 'ignore';
  const bytes =
    typeof given === 'string'
      ? Bytes.from(given, settings.encoding === 'buffer' ? 'utf8' : settings.encoding)
      : given;
  const answer = native.run({
    ...prepare(file, list, settings, ways),
    input: bytes,
    timeout: settings.timeout || undefined,
    maxBuffer: settings.maxBuffer === Infinity ? undefined : (settings.maxBuffer ?? 1024 * 1024),
    killSignal: numberOf(settings.killSignal ?? 'SIGTERM'),
  });
  if (answer.error) {
    Object.assign(answer.error, {
      syscall: `spawnSync ${file}`,
      path: file,
      spawnargs: list,
      message: `spawnSync ${file} ${answer.error.code}`,
    });
    return {
      error: answer.error,
      pid: 0,
      status: null,
      signal: null,
      output: null,
      stdout: null,
      stderr: null,
    };
  }
  const decode = (raw, at) => {
    const way = ways[at];
    if (way.log) {
      if (raw.length > 0) (way.log === 1 ? process.stdout : process.stderr).write(Bytes.from(raw));
      return null;
    }
    if (way === 'ignore' || way.file !== undefined) return null;
    if (typeof way.stream?.write === 'function') {
      if (raw.length > 0) way.stream.write(Bytes.from(raw));
      return null;
    }
    const buffer = Bytes.from(raw.buffer);
    return settings.encoding && settings.encoding !== 'buffer' ? buffer.toString(settings.encoding) : buffer;
  };
  const [stdout, stderr] = [decode(answer.stdout, 1), decode(answer.stderr, 2)];
  const [status, signal] = answer.ended;
  const result = {
    pid: answer.pid,
    output: [null, stdout, stderr],
    stdout,
    stderr,
    status: status ?? null,
    signal: nameOf(signal),
  };
  if (answer.timedOut)
    result.error = coded(Error, 'ETIMEDOUT', `spawnSync ${file} ETIMEDOUT`, {
      errno: -110,
      syscall: `spawnSync ${file}`,
    });
  else if (answer.overflowed)
    result.error = coded(Error, 'ENOBUFS', `spawnSync ${file} ENOBUFS`, {
      errno: -105,
      syscall: `spawnSync ${file}`,
    });
  return result;
}

function checked(result, line) {
  if (result.error) throw Object.assign(result.error, result);
  if (result.status !== 0) {
    const told = result.stderr && result.stderr.length > 0 ? `\n${result.stderr}` : '';
    throw Object.assign(new Error(`Command failed: ${line}${told}`), result);
  }
  return result.stdout;
}

export function execFileSync(file, args, options) {
  const [list, settings] = split(args, options);
  const result = spawnSync(file, list, settings);
  if (settings.stdio === undefined && result.stderr?.length > 0) process.stderr.write(result.stderr);
  return checked(result, [file, ...list].join(' '));
}

export function execSync(command, options = {}) {
  const result = spawnSync(command, [], { ...options, shell: options.shell ?? true });
  if (options.stdio === undefined && result.stderr?.length > 0) process.stderr.write(result.stderr);
  return checked(result, command);
}

export const fork = absent('child_process.fork', 'use child_process.spawn');

export default { ChildProcess, exec, execFile, execFileSync, execSync, fork, spawn, spawnSync };
