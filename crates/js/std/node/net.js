import { URL } from 'internal/url';
import { clearTimeout, setTimeout } from 'internal/timers';
import native from 'native/net';
import { EventEmitter } from 'node:events';
import { lookup } from 'node:dns/promises';
import { Duplex } from 'node:stream';
import { Bytes } from 'internal/buffer';
import { nextTick } from 'internal/ticks';
import { missing, wrongType } from 'internal/errors';

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
  if (first !== null && typeof first === 'object')
    return [
      first.path === undefined ? { ...first, path: undefined } : { ...first, path: first.path ?? undefined },
      callback,
    ];
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

/** The addresses of a name, as `lookup` of the options or the system finds them. */
function addresses(host, family, own) {
  if (typeof own !== 'function') return lookup(host, { all: true, family });
  return new Promise((resolve, reject) => {
    own(host, { all: true, family, hints: 0 }, (error, found, version) => {
      if (error) reject(error);
      else resolve(Array.isArray(found) ? found : [{ address: found, family: version }]);
    });
  });
}

/** Every address of the name is tried in turn. */
async function open({ host, port = 0, path, family, lookup: own }, found) {
  if (path !== undefined && path !== null) return native.connect('', 0, path);
  host ||= 'localhost';
  const rows = isIP(host) ? [{ address: host, family: isIP(host) }] : await addresses(host, family, own);
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
    super({
      allowHalfOpen: !!options.allowHalfOpen,
      highWaterMark: options.highWaterMark,
      signal: options.signal,
    });
    if (options.fd !== undefined) {
      throw missing('the option fd of net.Socket', 'use net.connect, or the streams of node:fs');
    }
    this.#ready.promise.catch(() => {});
    if (options._handle) {
      this._open(options._handle);
      this.read(0);
    }
  }

  /** The connection is there; `handle` has `read`, `write`, `end` and `destroy`, that of a socket `writeNow`. */
  _open(handle) {
    this.#handle = handle;
    this.connecting = false;
    this.pending = false;
    for (const name of ['localAddress', 'localPort', 'remoteAddress', 'remotePort'])
      this[name] = handle[name];
    this.remoteFamily = handle.remoteAddress && (handle.remoteAddress.includes(':') ? 'IPv6' : 'IPv4');
    this.localFamily = handle.localAddress && (handle.localAddress.includes(':') ? 'IPv6' : 'IPv4');
    this.#ready.resolve(handle);
  }

  connect(...given) {
    const [options, callback] = place(given);
    checkPort(options);
    if (callback) this.once('connect', callback);
    if (options.timeout) this.setTimeout(options.timeout);
    this.connecting = true;
    this.#touched();
    open(options, (...found) => this.emit('lookup', null, ...found)).then(
      (handle) => {
        if (this.destroyed) {
          handle.destroy();
          return;
        }
        this._open(handle);
        this.emit('connect');
        this.emit('ready');
        if (!this.isPaused()) this.read(0);
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
    let bytes;
    try {
      const handle = await this.#ready.promise;
      bytes = await handle.read();
    } catch (error) {
      this.destroy(error);
      return;
    }
    if (this.destroyed) return;
    this.#touched();
    if (bytes !== null) this.bytesRead += bytes.length;
    if (bytes !== null && this._idle) {
      this._idle();
      return;
    }
    try {
      this.push(bytes);
      // The end is told also where nobody reads what is not there.
      if (bytes === null) this.read(0);
    } catch (error) {
      // What a listener throws is its own error, not the connection's, and nobody catches it.
      nextTick(() => {
        throw error;
      });
    }
  }

  _write(chunk, encoding, callback) {
    const written = () => {
      this.bytesWritten += chunk.length;
      this.#touched();
      callback();
    };
    let rest = chunk;
    if (this.#handle?.writeNow) {
      // At once where it can be: what was written before `destroy` is sent, as in Node.
      let done;
      try {
        const now = this.#handle.writeNow(chunk);
        done = now[1];
        rest = chunk.subarray(now[0]);
      } catch (error) {
        callback(error);
        return;
      }
      if (done) {
        written();
        return;
      }
    }
    this.#ready.promise.then((handle) => handle.write(rest)).then(written, callback);
  }

  _writev(chunks, callback) {
    this._write(Bytes.concat(chunks.map(({ chunk }) => chunk)), 'buffer', callback);
  }

  _final(callback) {
    this.#ready.promise.then((handle) => handle.end()).then(() => callback(), callback);
  }

  _destroy(error, callback) {
    clearTimeout(this.#timer);
    this.connecting = false;
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
    this.timeout = milliseconds;
    if (callback && milliseconds === 0) this.removeListener('timeout', callback);
    else if (callback) this.once('timeout', callback);
    if (milliseconds === 0) clearTimeout(this.#timer);
    this.#touched();
    return this;
  }

  destroySoon() {
    if (this.writable) this.end();
    if (this._writableState.finished) this.destroy();
    else this.once('finish', () => this.destroy());
  }

  resetAndDestroy() {
    return this.destroy();
  }

  get bufferSize() {
    return this.writableLength;
  }

  get _handle() {
    return this.destroyed ? null : this.#handle;
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
  #closing = false;
  listening = false;
  maxConnections = undefined;

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
    this.#closing = false;
    native
      .listen(options.host ?? '::', Number(options.port ?? 0), options.path)
      .catch((error) => {
        // Without IPv6 there is still IPv4.
        if (options.host === undefined && options.path === undefined)
          return native.listen('0.0.0.0', Number(options.port ?? 0), undefined);
        throw error;
      })
      .then((handle) => {
        if (this.#closing) {
          handle.close();
          return;
        }
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
      if (this.maxConnections !== undefined && this.#connections.size >= this.maxConnections) {
        const { localAddress, localPort, remoteAddress, remotePort } = accepted;
        this.emit('drop', { localAddress, localPort, remoteAddress, remotePort });
        accepted.destroy();
        continue;
      }
      const socket = new Socket({
        allowHalfOpen: this.#options.allowHalfOpen,
        highWaterMark: this.#options.highWaterMark,
        _handle: accepted,
      });
      if (this.#options.pauseOnConnect) socket.pause();
      socket.server = this;
      socket._server = this;
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
    this.#closing = true;
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

export class SocketAddress {
  constructor({ address, family = 'ipv4', port = 0, flowlabel = 0 } = {}) {
    this.family = `${family}`.toLowerCase();
    this.address = address ?? (this.family === 'ipv6' ? '::' : '127.0.0.1');
    this.port = port;
    this.flowlabel = flowlabel;
  }

  static isSocketAddress(value) {
    return value instanceof SocketAddress;
  }
}

/** An address as a number, with its family. */
function numeric(text, family = isIPv6(text) ? 'ipv6' : 'ipv4') {
  const plain = typeof text === 'string' ? text : text.address;
  if (isIPv4(plain)) {
    return { family: 'ipv4', number: plain.split('.').reduce((sum, part) => sum * 256n + BigInt(part), 0n) };
  }
  if (!isIPv6(plain)) throw wrongType('address', `a valid ${family} address`, text);
  const [left, right] = new URL(`http://[${plain}]/`).hostname
    .slice(1, -1)
    .split('::')
    .map((half) => (half ? half.split(':') : []));
  const parts = right ? [...left, ...Array(8 - left.length - right.length).fill('0'), ...right] : left;
  return { family: 'ipv6', number: parts.reduce((sum, part) => sum * 65536n + BigInt(`0x${part}`), 0n) };
}

export class BlockList {
  #rules = [];

  #add(text, family, from, to) {
    this.#rules.unshift({ text, family, from, to });
  }

  addAddress(address) {
    const { family, number } = numeric(address);
    const shown = typeof address === 'string' ? address : address.address;
    this.#add(`Address: ${family === 'ipv4' ? 'IPv4' : 'IPv6'} ${shown}`, family, number, number);
  }

  addRange(start, end) {
    const [from, to] = [numeric(start), numeric(end)];
    const name = from.family === 'ipv4' ? 'IPv4' : 'IPv6';
    this.#add(
      `Range: ${name} ${start.address ?? start}-${end.address ?? end}`,
      from.family,
      from.number,
      to.number,
    );
  }

  addSubnet(net, prefix) {
    const { family, number } = numeric(net);
    const rest = BigInt((family === 'ipv4' ? 32 : 128) - prefix);
    const from = (number >> rest) << rest;
    const name = family === 'ipv4' ? 'IPv4' : 'IPv6';
    this.#add(`Subnet: ${name} ${net.address ?? net}/${prefix}`, family, from, from + (1n << rest) - 1n);
  }

  check(address) {
    const { family, number } = numeric(address);
    return this.#rules.some((rule) => rule.family === family && number >= rule.from && number <= rule.to);
  }

  get rules() {
    return this.#rules.map(({ text }) => text);
  }

  static isBlockList(value) {
    return value instanceof BlockList;
  }
}

let attemptTimeout = 250;
export const getDefaultAutoSelectFamilyAttemptTimeout = () => attemptTimeout;
export const setDefaultAutoSelectFamilyAttemptTimeout = (milliseconds) => {
  attemptTimeout = milliseconds;
};
export const getDefaultAutoSelectFamily = () => false;
export const setDefaultAutoSelectFamily = () => {};

export { connect as createConnection, Socket as Stream };
export default {
  BlockList,
  Server,
  Socket,
  SocketAddress,
  Stream: Socket,
  connect,
  createConnection: connect,
  createServer,
  getDefaultAutoSelectFamily,
  getDefaultAutoSelectFamilyAttemptTimeout,
  isIP,
  isIPv4,
  isIPv6,
  setDefaultAutoSelectFamily,
  setDefaultAutoSelectFamilyAttemptTimeout,
};
