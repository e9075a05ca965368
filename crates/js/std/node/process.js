import loader from 'native/globals';
import native from 'native/process';
import { EventEmitter } from 'node:events';
import { coded, outOfRange, wrongType } from 'internal/errors';
import { nextTick } from 'internal/ticks';
import { signals } from 'internal/signals';

export { nextTick };

/** What ends a process in Node ends nothing here: the daemon goes on. */
function refuseExit(what) {
  throw coded(
    Error,
    'ERR_PROCESS_EXIT',
    `${what} does not end the daemon: a plugin is stopped by its configuration`,
  );
}

// A plugin's own copy: what it writes there, its child processes see, and nobody else.
const variables = new Proxy(Object.assign(Object.create(null), native.env()), {
  set(target, name, value) {
    target[name] = `${value}`;
    return true;
  },
  defineProperty(target, name, descriptor) {
    return Reflect.defineProperty(target, name, { ...descriptor, value: `${descriptor.value}` });
  },
});

/** Lines written piece by piece, for the log. */
class LogStream extends EventEmitter {
  #level;
  #rest = '';
  writable = true;
  isTTY = false;
  columns = 80;

  constructor(fd, level) {
    super();
    this.fd = fd;
    this.#level = level;
  }

  write(chunk, encoding, callback) {
    const text = this.#rest + (typeof chunk === 'string' ? chunk : new TextDecoder().decode(chunk));
    const lines = text.split('\n');
    this.#rest = lines.pop();
    for (const line of lines) native.log(this.#level, line);
    const done = typeof encoding === 'function' ? encoding : callback;
    if (done) nextTick(done);
    return true;
  }

  end(chunk, encoding, callback) {
    if (chunk !== undefined) this.write(chunk, encoding, callback);
    if (this.#rest !== '') native.log(this.#level, this.#rest);
    this.#rest = '';
    return this;
  }

  cork() {}
  uncork() {}
  hasColors() {
    return false;
  }
  getColorDepth() {
    return 1;
  }
}

const exact = (milliseconds) => {
  const nanoseconds = BigInt(Math.round(milliseconds * 1e6));
  return [Number(nanoseconds / 1_000_000_000n), Number(nanoseconds % 1_000_000_000n)];
};

export function hrtime(since) {
  const [seconds, nanoseconds] = exact(native.now());
  if (!since) return [seconds, nanoseconds];
  const apart = (seconds - since[0]) * 1e9 + nanoseconds - since[1];
  return [Math.floor(apart / 1e9), apart % 1e9];
}
hrtime.bigint = () => BigInt(Math.round(native.now() * 1e6));

export function memoryUsage() {
  const heapUsed = native.memoryUsed();
  return { rss: native.residentMemory(), heapTotal: heapUsed, heapUsed, external: 0, arrayBuffers: 0 };
}
memoryUsage.rss = () => native.residentMemory();

export function emitWarning(warning, type, code) {
  const options = typeof type === 'object' && type !== null ? type : { type, code };
  const name = options.type ?? (warning instanceof Error ? warning.name : 'Warning');
  const message = warning instanceof Error ? warning.message : `${warning}`;
  native.log('warn', `${options.code ? `[${options.code}] ` : ''}${name}: ${message}`);
  const event =
    warning instanceof Error ? warning : Object.assign(new Error(message), { name, code: options.code });
  nextTick(() => process.emit('warning', event));
}

export function kill(pid, signal = 'SIGTERM') {
  if (typeof pid !== 'number') throw wrongType('pid', 'of type number', pid);
  const number = typeof signal === 'number' ? signal : signals[signal];
  if (number === undefined) throw coded(TypeError, 'ERR_UNKNOWN_SIGNAL', `Unknown signal: ${signal}`);
  if (pid === native.pid() && number !== 0) refuseExit(`process.kill(process.pid, '${signal}')`);
  native.kill(pid, number);
  return true;
}

/** The Node of the plugin's `PATH`, which packages start with a script; without one, this program. */
const program = () => native.find('node', variables.PATH ?? '') ?? native.exec;

let creationMask = 0o022;

let captures;
const process = Object.assign(Object.create(EventEmitter.prototype), {
  title: 'ostler',
  version: 'v22.12.0',
  // Packages request brotli only where it has a version. It is that of the Rust library, like `quickjs`.
  versions: { node: '22.12.0', brotli: '9.1.1', quickjs: native.engine, ostler: native.version },
  release: { name: 'node' },
  arch: native.arch,
  platform: native.platform,
  argv: [native.exec, native.exec],
  argv0: native.exec,
  execArgv: [],
  env: variables,
  pid: native.pid(),
  ppid: 0,
  config: { variables: {} },
  features: {},
  exitCode: undefined,
  stdout: new LogStream(1, 'info'),
  stderr: new LogStream(2, 'error'),
  hrtime,
  nextTick,
  memoryUsage,
  emitWarning,
  kill,
  cwd: () => native.cwd(),
  chdir() {
    throw coded(
      Error,
      'ERR_FEATURE_UNAVAILABLE',
      'process.chdir would move the whole daemon; use absolute paths',
    );
  },
  exit: (code) => process.reallyExit(code),
  abort: () => refuseExit('process.abort()'),
  reallyExit: (code) => refuseExit(`process.exit(${code ?? ''})`),
  uptime: () => native.now() / 1000,
  cpuUsage(before) {
    const [user, system] = native.cpu();
    return { user: user - (before?.user ?? 0), system: system - (before?.system ?? 0) };
  },
  resourceUsage: () => ({
    userCPUTime: native.cpu()[0],
    systemCPUTime: native.cpu()[1],
    maxRSS: native.residentMemory() / 1024,
  }),
  availableMemory: () => native.osFacts().freemem,
  constrainedMemory: () => 0,
  getuid: () => native.user().uid,
  geteuid: () => native.user().uid,
  getgid: () => native.user().gid,
  getegid: () => native.user().gid,
  umask(mask) {
    const before = creationMask;
    if (mask !== undefined) {
      const wanted = typeof mask === 'string' ? parseInt(mask, 8) : mask;
      if (!(wanted >= 0 && wanted <= 0o777)) throw outOfRange('mask', '>= 0 && <= 511', mask);
      creationMask = wanted;
    }
    return before;
  },
  binding() {
    throw coded(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'process.binding is not implemented');
  },
  getBuiltinModule(name) {
    try {
      const module = loader.load(`node:${`${name}`.replace(/^node:/, '')}`);
      return module.default ?? module;
    } catch {
      return undefined;
    }
  },
  setUncaughtExceptionCaptureCallback(callback) {
    if (callback !== null && typeof callback !== 'function')
      throw wrongType('fn', 'of type function or null', callback);
    if (callback && captures) {
      throw coded(
        Error,
        'ERR_UNCAUGHT_EXCEPTION_CAPTURE_ALREADY_SET',
        '`process.setupUncaughtExceptionCapture()` was called while a capture callback was already active',
      );
    }
    if (captures) process.removeListener('uncaughtException', captures);
    captures = callback ? (error) => callback(error) : undefined;
    if (captures) process.prependListener('uncaughtException', captures);
  },
  hasUncaughtExceptionCaptureCallback: () => captures !== undefined,
  setSourceMapsEnabled(enabled) {
    if (typeof enabled !== 'boolean') throw wrongType('val', 'of type boolean', enabled);
    loader.setSourceMaps(enabled);
  },
  // A plugin ends with its configuration, whatever is open.
  ref() {},
  unref() {},
  getgroups: () => [native.user().gid],
  getActiveResourcesInfo: () => [],
  _getActiveHandles: () => [],
  _getActiveRequests: () => [],
  threadCpuUsage: (before) => process.cpuUsage(before),
  finalization: { register() {}, registerBeforeExit() {}, unregister() {} },
  loadEnvFile(path = '.env') {
    const { readFileSync } = loader.load('node:fs');
    const values = loader.load('node:util').parseEnv(readFileSync(path, 'utf8'));
    for (const [name, value] of Object.entries(values)) variables[name] ??= value;
  },
  _rawDebug: (...given) => native.log('debug', given.join(' ')),
  allowedNodeEnvironmentFlags: new Set(),
  // Packages read reports where there are any.
  report: undefined,
});
EventEmitter.init.call(process);
Object.defineProperty(process, 'execPath', {
  configurable: true,
  enumerable: true,
  get: program,
  set(value) {
    Object.defineProperty(process, 'execPath', { value, writable: true });
  },
});
Object.defineProperty(process, Symbol.toStringTag, { value: 'process', configurable: true });
Object.defineProperty(process, 'stdin', {
  configurable: true,
  enumerable: true,
  get() {
    // The daemon's own is not the plugin's to read.
    const { Readable } = loader.load('node:stream');
    const value = Object.assign(
      new Readable({
        read() {
          this.push(null);
        },
      }),
      { fd: 0, isTTY: false },
    );
    Object.defineProperty(process, 'stdin', { value, configurable: true, enumerable: true });
    return value;
  },
});

// What nobody caught is first told to whoever listens here.
process.on('newListener', (name) => {
  if (name !== 'unhandledRejection' && name !== 'uncaughtException') return;
  native.listen((event, error, promise) =>
    process.emit(event, error, event === 'unhandledRejection' ? promise : event),
  );
});

/** `process.stdin` as an export: it is made when it is first used. */
const stdinTraps = {};
for (const trap of ['get', 'set', 'has', 'getPrototypeOf', 'ownKeys', 'getOwnPropertyDescriptor']) {
  stdinTraps[trap] = (target, ...given) => {
    const value = Reflect[trap](process.stdin, ...given.slice(0, trap === 'set' ? 2 : 1));
    return trap === 'get' && typeof value === 'function' ? value.bind(process.stdin) : value;
  };
}
export const stdin = new Proxy({}, stdinTraps);

export const {
  _getActiveHandles,
  _getActiveRequests,
  _rawDebug,
  abort,
  allowedNodeEnvironmentFlags,
  arch,
  argv,
  argv0,
  availableMemory,
  chdir,
  config,
  constrainedMemory,
  cpuUsage,
  cwd,
  env,
  execArgv,
  execPath,
  exit,
  features,
  finalization,
  getActiveResourcesInfo,
  getBuiltinModule,
  getegid,
  geteuid,
  getgid,
  getgroups,
  getuid,
  hasUncaughtExceptionCaptureCallback,
  loadEnvFile,
  pid,
  platform,
  ppid,
  reallyExit,
  ref,
  release,
  report,
  resourceUsage,
  setSourceMapsEnabled,
  setUncaughtExceptionCaptureCallback,
  stderr,
  stdout,
  threadCpuUsage,
  title,
  umask,
  unref,
  uptime,
  version,
  versions,
} = process;
export const on = process.on.bind(process);
export const once = process.once.bind(process);
export const off = process.off.bind(process);
export const emit = process.emit.bind(process);

export default process;
