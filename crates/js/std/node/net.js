import native from 'native/net';
import { EventEmitter } from 'node:events';
import { lookup } from 'node:dns/promises';
import { Duplex } from 'node:stream';
import { wrongType } from 'internal/errors';

export function isIPv4(text) {
  return /^(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}$/.test(`${text}`);
}

export function isIPv6(text) {
  const plain = `${text}`.replace(/%[\w.-]+$/, '');
  return plain.includes(':') && URL.canParse(`http://[${plain}]/`);
}

export function isIP(text) {
  return isIPv4(text) ? 4 : isIPv6(text) ? 6 : 0;
}

/** `(port, host?)`, `(path)` or `(options)`, then perhaps a callback. */
function place(given) {
  const callback = typeof given.at(-1) === 'function' ? given.pop() : undefined;
  const [first, second] = given;
  if (first !== null && typeof first === 'object') return [first, callback];
  if (typeof first === 'string' && !/^\d+$/.test(first)) return [{ path: first }, callback];
  if (first === undefined) return [{ port: 0 }, callback];
  return [{ port: Number(first), host: typeof second === 'string' ? second : undefined }, callback];
}

function checkPort({ port, path }) {
  if (path !== undefined) return;
  if (!Number.isInteger(Number(port)) || port < 0 || port > 65535) {
    throw Object.assign(new RangeError(`Port should be >= 0 and < 65536. Received ${port}.`), {
      code: 'ERR_SOCKET_BAD_PORT',
    });
  }
}

/** Every address of the name is tried in turn. */
async function open({ host = 'localhost', port = 0, path, family }, found) {
  if (path !== undefined) return native.connect('', 0, path);
  const rows = isIP(host)
    ? [{ address: host, family: isIP(host) }]
    : await lookup(host, { all: true, family });
  let failure;
  for (const row of rows) {
    if (!isIP(host)) found(row.address, row.family, host);
    try {
      return await native.connect(row.address, Number(port), undefined);
    } catch (error) {
      failure = Object.assign(error, { address: row.address, port: Number(port) });
    }
  }
  throw failure;
}

export class Socket extends Duplex {
  #handle = null;
  #ready = Promise.withResolvers();
  #timeout = 0;
  #timer = null;
  connecting = false;
  pending = true;
  bytesRead = 0;
  bytesWritten = 0;

  constructor(options = {}) {
    super({ allowHalfOpen: !!options.allowHalfOpen, signal: options.signal });
    this.#ready.promise.catch(() => {});
    if (options._handle) this.#open(options._handle);
  }

  #open(handle) {
    this.#handle = handle;
    this.connecting = false;
    this.pending = false;
    for (const name of ['localAddress', 'localPort', 'remoteAddress', 'remotePort'])
      this[name] = handle[name];
    this.remoteFamily = handle.remoteAddress && (handle.remoteAddress.includes(':') ? 'IPv6' : 'IPv4');
    this.#ready.resolve(handle);
  }

  connect(...given) {
    const [options, callback] = place(given);
    checkPort(options);
    if (callback) this.once('connect', callback);
    this.connecting = true;
    open(options, (...found) => this.emit('lookup', null, ...found)).then(
      (handle) => {
        if (this.destroyed) {
          handle.destroy();
          return;
        }
        this.#open(handle);
        this.emit('connect');
        this.emit('ready');
      },
      (error) => {
        this.connecting = false;
        this.#ready.reject(error);
        this.destroy(error);
      },
    );
    return this;
  }

  #touched() {
    if (this.#timeout === 0) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.emit('timeout'), this.#timeout);
    this.#timer.unref();
  }

  async _read() {
    try {
      const handle = await this.#ready.promise;
      const bytes = await handle.read();
      this.#touched();
      if (bytes !== null) this.bytesRead += bytes.length;
      this.push(bytes);
    } catch (error) {
      this.destroy(error);
    }
  }

  _write(chunk, encoding, callback) {
    this.#ready.promise
      .then((handle) => handle.write(chunk))
      .then(() => {
        this.bytesWritten += chunk.length;
        this.#touched();
        callback();
      }, callback);
  }

  _final(callback) {
    this.#ready.promise.then((handle) => handle.end()).then(() => callback(), callback);
  }

  _destroy(error, callback) {
    clearTimeout(this.#timer);
    this.#handle?.destroy();
    callback(error);
  }

  get readyState() {
    if (this.connecting) return 'opening';
    if (!this.#handle || this.destroyed) return 'closed';
    return this.writable ? (this.readable ? 'open' : 'writeOnly') : 'readOnly';
  }

  address() {
    return {
      address: this.localAddress,
      port: this.localPort,
      family: this.localAddress?.includes(':') ? 'IPv6' : 'IPv4',
    };
  }

  setTimeout(milliseconds, callback) {
    this.#timeout = milliseconds;
    if (callback) this.once('timeout', callback);
    if (milliseconds === 0) clearTimeout(this.#timer);
    this.#touched();
    return this;
  }

  destroySoon() {
    if (this.writable) this.end();
    if (this._writableState.finished) this.destroy();
    else this.once('finish', () => this.destroy());
  }

  setNoDelay() {
    return this;
  }
  setKeepAlive() {
    return this;
  }
  setEncoding(encoding) {
    return super.setEncoding(encoding);
  }
  ref() {
    return this;
  }
  unref() {
    return this;
  }
}

export class Server extends EventEmitter {
  #handle = null;
  #connections = new Set();
  #options;
  listening = false;

  constructor(options, listener) {
    super();
    if (typeof options === 'function') [options, listener] = [{}, options];
    this.#options = options ?? {};
    if (listener) this.on('connection', listener);
  }

  listen(...given) {
    const [options, callback] = place(given);
    checkPort(options);
    if (callback) this.once('listening', callback);
    native
      .listen(options.host ?? '::', Number(options.port ?? 0), options.path)
      .catch((error) => {
        // Without IPv6 there is still IPv4.
        if (options.host === undefined && options.path === undefined)
          return native.listen('0.0.0.0', Number(options.port ?? 0), undefined);
        throw error;
      })
      .then((handle) => {
        this.#handle = handle;
        this._path = options.path;
        this.listening = true;
        this.emit('listening');
        void this.#serve(handle);
      })
      .catch((error) => this.emit('error', error));
    options.signal?.addEventListener('abort', () => this.close(), { once: true });
    return this;
  }

  async #serve(handle) {
    for (;;) {
      let accepted;
      try {
        accepted = await handle.accept();
      } catch (error) {
        this.emit('error', error);
        continue;
      }
      if (!accepted) break;
      const socket = new Socket({ ...this.#options, _handle: accepted });
      socket.server = this;
      this.#connections.add(socket);
      socket.once('close', () => {
        this.#connections.delete(socket);
        this.#closed();
      });
      this.emit('connection', socket);
    }
  }

  #closed() {
    if (!this.listening && this.#connections.size === 0) queueMicrotask(() => this.emit('close'));
  }

  address() {
    if (!this.#handle) return null;
    if (this._path !== undefined) return this._path;
    const { address, port } = this.#handle;
    return { address, port, family: address.includes(':') ? 'IPv6' : 'IPv4' };
  }

  close(callback) {
    if (callback) {
      if (this.listening) this.once('close', () => callback());
      else
        queueMicrotask(() =>
          callback(Object.assign(new Error('Server is not running.'), { code: 'ERR_SERVER_NOT_RUNNING' })),
        );
    }
    if (this.listening) {
      this.listening = false;
      this.#handle.close();
      this.#closed();
    }
    return this;
  }

  getConnections(callback) {
    queueMicrotask(() => callback(null, this.#connections.size));
    return this;
  }

  ref() {
    return this;
  }
  unref() {
    return this;
  }
  async [Symbol.asyncDispose]() {
    await new Promise((resolve) => this.close(resolve));
  }
}

export function createServer(options, listener) {
  return new Server(options, listener);
}

export function connect(...given) {
  const [options] = place([...given].filter((each) => typeof each !== 'function'));
  if (options === undefined) throw wrongType('options', 'of type object, number or string', options);
  return new Socket(options).connect(...given);
}

export const getDefaultAutoSelectFamily = () => false;
export const setDefaultAutoSelectFamily = () => {};

export { connect as createConnection, Socket as Stream };
export default {
  Server,
  Socket,
  Stream: Socket,
  connect,
  createConnection: connect,
  createServer,
  getDefaultAutoSelectFamily,
  isIP,
  isIPv4,
  isIPv6,
  setDefaultAutoSelectFamily,
};
