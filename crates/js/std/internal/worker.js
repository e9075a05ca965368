// `Worker`: an engine on its own thread, within the memory of the plugin.

import native from 'native/worker';
import { EventEmitter } from 'node:events';
import { Readable } from 'node:stream';
import { resolve, isAbsolute } from 'node:path';
import { fileURLToPath } from 'node:url';
import process from 'node:process';
import { decode, encode, portOf } from 'internal/messaging';
import { thread } from 'internal/worker-state';
import { coded, missing, wrongType } from 'internal/errors';

export const SHARE_ENV = Symbol.for('nodejs.worker_threads.SHARE_ENV');

/** JavaScript nests calls in this much memory if nothing else is said. */
const STACK_MB = 2;

function fileOf(filename) {
  if (filename instanceof URL) {
    if (filename.protocol === 'file:') return fileURLToPath(filename);
    throw coded(TypeError, 'ERR_INVALID_URL_SCHEME', 'The URL must be of scheme file');
  }
  if (typeof filename !== 'string') {
    throw wrongType('filename', 'of type string or an instance of URL', filename);
  }
  if (isAbsolute(filename) || /^\.\.?[\\/]/.test(filename)) return resolve(filename);
  throw coded(
    TypeError,
    'ERR_WORKER_PATH',
    "The worker script or module filename must be an absolute path or a relative path starting with './' or '../'. " +
      `Received "${filename}"`,
  );
}

/** What a worker may take, in megabytes: at most what the plugin may. */
function limited(given = {}) {
  const most = Math.floor(process.constrainedMemory() / 2 ** 20);
  const number = (name) => {
    const value = given[name];
    if (value !== undefined && typeof value !== 'number') {
      throw wrongType(`options.resourceLimits.${name}`, 'of type number', value);
    }
    return value > 0 ? value : undefined;
  };
  const [old, young, stack] = ['maxOldGenerationSizeMb', 'maxYoungGenerationSizeMb', 'stackSizeMb'].map(
    number,
  );
  const heap = old === undefined ? undefined : old + (young ?? 0);
  const own = heap === undefined ? undefined : most > 0 ? Math.min(heap, most) : heap;
  const limits = {
    // There is one heap, without a part for what is young or for code.
    maxYoungGenerationSizeMb: 0,
    maxOldGenerationSizeMb: own ?? most,
    codeRangeSizeMb: 0,
    stackSizeMb: Math.min(stack ?? STACK_MB, STACK_MB),
  };
  return { limits, memory: own === undefined ? undefined : Math.floor(own * 2 ** 20) };
}

function environment(given) {
  if (given === SHARE_ENV) {
    throw missing('Worker with env: SHARE_ENV', 'leave env out, and the worker has a copy of process.env');
  }
  if (given === undefined || given === null) return { ...process.env };
  if (typeof given !== 'object') {
    throw wrongType(
      'options.env',
      'of type object or one of undefined, null, or worker_threads.SHARE_ENV',
      given,
    );
  }
  return Object.fromEntries(Object.entries(given).map(([name, value]) => [name, `${value}`]));
}

/** The stream of a worker's output, which packages show or pass on; reading it throws. */
function output(name) {
  const stream = new Readable({ read() {} });
  const refuse = () => {
    throw missing(
      `worker.${name}`,
      "a worker's output is in the log of the plugin; send messages with postMessage",
    );
  };
  for (const use of ['pipe', 'read', 'resume', 'iterator', Symbol.asyncIterator])
    Object.defineProperty(stream, use, { value: refuse, configurable: true, writable: true });
  for (const listen of ['on', 'once', 'addListener', 'prependListener']) {
    const usual = stream[listen];
    const value = (event, listener) =>
      event === 'data' || event === 'readable' ? refuse() : Reflect.apply(usual, stream, [event, listener]);
    Object.defineProperty(stream, listen, { value, configurable: true, writable: true });
  }
  return stream;
}

export class Worker extends EventEmitter {
  #stdout;
  #stderr;
  #handle;
  #port;
  #id;
  #limits;
  #exit = null;
  #ending;

  constructor(filename, options = {}) {
    super();
    for (const name of ['stdin', 'stdout', 'stderr']) {
      if (options[name]) throw missing(`Worker with ${name}`, 'send messages with postMessage');
    }
    const file = options.eval ? undefined : fileOf(filename);
    if (options.eval && typeof filename !== 'string') throw wrongType('filename', 'of type string', filename);
    if (options.argv !== undefined && !Array.isArray(options.argv)) {
      throw wrongType('options.argv', 'an instance of Array', options.argv);
    }
    const { limits, memory } = limited(options.resourceLimits);
    const { data, ports } = encode(
      {
        file,
        code: options.eval ? filename : undefined,
        name: `${options.name ?? ''}`,
        workerData: options.workerData ?? null,
        env: environment(options.env),
        argv: (options.argv ?? []).map(String),
        environment: thread.environment,
        limits,
      },
      options.transferList,
    );
    const stack = Math.floor(limits.stackSizeMb * 2 ** 20);
    this.#limits = limits;
    try {
      this.#handle = native.start({ data, ports, memory, stack }, (event, bytes, code) =>
        this.#hear(event, bytes, code),
      );
    } catch (error) {
      throw coded(Error, 'ERR_WORKER_INIT_FAILED', `Worker initialization failure: ${error.message}`);
    }
    this.#id = this.#handle.threadId;
    this.#port = portOf(this.#handle.port);
    this.#port.on('message', (message) => this.emit('message', message));
    this.#port.on('messageerror', (error) => this.emit('messageerror', error));
  }

  #hear(event, bytes, code) {
    if (event === 'online') {
      this.emit('online');
      return;
    }
    // What it sent comes before what became of it.
    this.#port._drain();
    if (event !== 'exit') {
      this.emit('error', this.#failure(event, bytes));
      return;
    }
    this.#exit = code;
    this.#id = -1;
    this.#limits = {};
    this.#handle.ended();
    this.#port.close();
    this.emit('exit', code);
    this.#ending?.resolve(code);
  }

  #failure(kind, bytes) {
    if (kind === 'memory') {
      return coded(
        Error,
        'ERR_WORKER_OUT_OF_MEMORY',
        'Worker terminated due to reaching memory limit: JS heap out of memory',
      );
    }
    const told = bytes.length > 0 ? decode({ data: bytes, ports: [] }).data : 'nothing more is known';
    return kind === 'busy' ? coded(Error, 'ERR_OPERATION_FAILED', `The worker ${told}`) : told;
  }

  get threadId() {
    return this.#id;
  }

  get resourceLimits() {
    return { ...this.#limits };
  }

  get stdin() {
    return null;
  }

  get stdout() {
    return (this.#stdout ??= output('stdout'));
  }

  get stderr() {
    return (this.#stderr ??= output('stderr'));
  }

  get performance() {
    throw missing('worker.performance');
  }

  postMessage(value, options) {
    if (this.#exit !== null) return;
    this.#port.postMessage(value, options);
  }

  terminate(callback) {
    if (typeof callback === 'function') this.once('exit', (code) => callback(null, code));
    if (this.#exit !== null) return Promise.resolve();
    this.#ending ??= Promise.withResolvers();
    this.#handle.terminate();
    return this.#ending.promise;
  }

  ref() {}
  unref() {}

  getHeapSnapshot() {
    throw missing(
      'worker.getHeapSnapshot',
      'the host measures the memory of plugins; use process.memoryUsage',
    );
  }

  async [Symbol.asyncDispose]() {
    await this.terminate();
  }
}
