// A session of HTTP/2, as a client: one connection, and the streams on it.

import native from 'native/http2';
import clock from 'native/process';
import net from 'node:net';
import tls from 'node:tls';
import { EventEmitter } from 'node:events';
import { Bytes } from 'internal/buffer';
import {
  abortError,
  checkFunction,
  checkObject,
  coded,
  missing,
  outOfRange,
  wrongType,
} from 'internal/errors';
import { isToken } from 'internal/http1/common';
import { nextTick } from 'internal/ticks';
import { clearTimeout, setImmediate, setTimeout } from 'internal/timers';
import { URL } from 'internal/url';
import {
  CANCEL,
  INTERNAL_ERROR,
  NO_ERROR,
  bytesOf,
  checkSettings,
  defaultSettings,
  learn,
  refusal,
  rowsOf,
} from 'internal/http2/common';
import { ClientHttp2Stream } from 'internal/http2/stream';

const MOST_PINGS = 10;
const WITHOUT_BODY = new Set(['DELETE', 'GET', 'HEAD']);
const BOUND = Symbol('session');
const FORBIDDEN = new Set('emit end pause read resume write setEncoding setKeepAlive setNoDelay'.split(' '));
const OF_SESSION = new Set(['destroy', 'setTimeout', 'ref', 'unref']);

class NghttpError extends Error {}

const isBytes = (value) => ArrayBuffer.isView(value);

/** Settings that a session has before it begins. */
function initialSettings(given) {
  const settings = given !== null && typeof given === 'object' ? { ...given } : {};
  checkSettings(settings);
  if (settings.enablePush === true)
    throw missing('the setting enablePush of http2.connect', 'leave it out; the server then pushes nothing');
  if (settings.maxHeaderSize !== undefined) settings.maxHeaderListSize ??= settings.maxHeaderSize;
  return settings;
}

export class Http2Session extends EventEmitter {
  #native = null;
  #socket;
  #proxy = null;
  #emptied = null;
  #options;
  #connecting = true;
  #closed = false;
  #destroyed = false;
  #destroyCode = NO_ERROR;
  #goawayCode = null;
  #goawayLast = null;
  #streams = new Map();
  #pending = new Set();
  #pings = [];
  #acknowledgements = [];
  #local = { ...defaultSettings(), enablePush: false };
  #localKnown = null;
  #remote = null;
  #window = 0;
  #lastId = -1;
  #timeout = 0;
  #timer = null;
  #authority;
  #protocol;
  encrypted = undefined;
  alpnProtocol = undefined;

  constructor(options, socket, authority, protocol) {
    super();
    if (socket[BOUND] !== undefined) throw refusal('SOCKET_BOUND');
    this.#options = options;
    this.#authority = authority;
    this.#protocol = protocol;
    this.#socket = socket;
    Object.defineProperty(socket, BOUND, { value: this, configurable: true, writable: true });
    socket.on('error', (error) => {
      if (socket[BOUND] !== this) return;
      if (error.code === 'ECONNRESET' && this.#goawayCode !== null) this.destroy();
      else this.destroy(error);
    });
    socket.on('close', () => this.#disconnected());
    if (socket.connecting || socket.secureConnecting)
      socket.once(socket instanceof tls.TLSSocket ? 'secureConnect' : 'connect', () => this.#begin());
    else this.#begin();
  }

  #begin() {
    const socket = this.#socket;
    nextTick(() => this.emit('connect', this, socket));
    if (this.#destroyed) return;
    this.#connecting = false;
    this.encrypted = !!socket.encrypted;
    this.alpnProtocol = this.encrypted ? socket.alpnProtocol : 'h2c';
    const { settings } = this.#options;
    const session = native.session(settings);
    this.#native = session;
    this.#window = session.windowSize;
    this.#acknowledgements.push({ settings, since: clock.now() });
    socket.on('data', (bytes) => {
      this._touch();
      const [full, ...frames] = session.push(bytes);
      if (full) {
        socket.pause();
        session.drained().then(() => socket.resume());
      }
      for (const [name, ...given] of frames) {
        if (this.#destroyed) return;
        this.#heard(name, given);
      }
    });
    socket.on('end', () => session.end());
    void this.#send(session, socket);
    session.ended().catch((error) => {
      // The server's own goodbye was heard before, and so was the end of the connection.
      if (this.#destroyed || this.#goawayCode !== null || socket.destroyed || socket.readableEnded) return;
      this.destroy(coded(NghttpError, 'ERR_HTTP2_ERROR', 'Protocol error', { errno: -505, cause: error }));
    });
  }

  async #send(session, socket) {
    for (;;) {
      const bytes = await session.take();
      if (bytes === null || socket.destroyed) break;
      if (!socket.write(bytesOf(bytes)) && !socket.destroyed) {
        await new Promise((resolve) => {
          const go = () => {
            socket.removeListener('drain', go);
            socket.removeListener('close', go);
            resolve();
          };
          socket.on('drain', go);
          socket.on('close', go);
        });
      }
    }
    if (socket.destroyed) return;
    socket.end(() => {
      if (!this.#closed) setImmediate(() => socket.destroy());
    });
    socket.resume();
  }

  #heard(name, given) {
    switch (name) {
      case 'settings': {
        this.#remote ??= defaultSettings();
        this.#remote = { ...this.#remote };
        learn(this.#remote, given[0]);
        this.emit('remoteSettings', this.#remote);
        break;
      }
      case 'acknowledged': {
        const asked = this.#acknowledgements.shift();
        if (!asked) break;
        this.#local = { ...this.#local, ...asked.settings };
        this.#local.maxHeaderSize = this.#local.maxHeaderListSize;
        this.#localKnown = null;
        const { localSettings } = this;
        asked.callback?.(null, localSettings, clock.now() - asked.since);
        this.emit('localSettings', localSettings);
        break;
      }
      case 'ping':
        this.emit('ping', bytesOf(given[0]));
        break;
      case 'pong': {
        const payload = bytesOf(given[0]);
        const at = this.#pings.findIndex((ping) => ping.payload.equals(payload));
        if (at < 0) break;
        const [{ callback, since }] = this.#pings.splice(at, 1);
        callback(null, clock.now() - since, payload);
        break;
      }
      case 'goaway': {
        const [code, last, data] = given;
        const opaque = data.length > 0 ? bytesOf(data) : undefined;
        this.#goawayCode = code;
        this.#goawayLast = last;
        nextTick(() => this.emit('goaway', code, last, opaque));
        if (code === NO_ERROR) this.close();
        else this.destroy(refusal('SESSION_ERROR', code), NO_ERROR);
        break;
      }
      case 'ended':
        this.#streams.get(given[0])?._ended(given[1]);
        break;
      case 'reset': {
        const [id, code] = given;
        // One that ends without an error ends where its last bytes are read.
        if (code !== NO_ERROR) this.#streams.get(id)?._lose(code);
        break;
      }
    }
  }

  #disconnected() {
    const socket = this.#socket;
    if (socket[BOUND] !== this) return;
    socket[BOUND] = undefined;
    const error = this.#connecting ? coded(Error, 'ERR_SOCKET_CLOSED', 'Socket is closed') : undefined;
    for (const stream of [...this.#pending]) stream.close(CANCEL);
    if (this.#destroyed) return;
    this.#closed = true;
    this.#destroyed = true;
    const done = () => {
      this.#end(NO_ERROR, error);
      nextTick(() => this.#gone(error));
    };
    for (const stream of [...this.#streams.values()]) stream._lose(CANCEL);
    if (this.#streams.size === 0) done();
    // Streams that read hand on what came before.
    else this.#emptied = done;
  }

  #gone(error) {
    if (error) this.emit('error', error);
    this.emit('close');
  }

  get connecting() {
    return this.#connecting;
  }
  get closed() {
    return this.#closed;
  }
  get destroyed() {
    return this.#destroyed;
  }
  get type() {
    return 1;
  }
  get goawayCode() {
    return this.#goawayCode ?? NO_ERROR;
  }
  get goawayLastStreamID() {
    return this.#goawayLast ?? 0;
  }
  get pendingSettingsAck() {
    return this.#acknowledgements.length > 0;
  }
  get originSet() {
    if (!this.encrypted || this.#destroyed) return undefined;
    const { servername, remotePort } = this.#socket;
    return [`https://${servername}${remotePort === 443 ? '' : `:${remotePort}`}`];
  }

  get localSettings() {
    if (this.#destroyed || this.#connecting) return {};
    this.#localKnown ??= { ...this.#local };
    return this.#localKnown;
  }

  get remoteSettings() {
    if (this.#destroyed || this.#connecting) return {};
    this.#remote ??= defaultSettings();
    return this.#remote;
  }

  get state() {
    if (this.#destroyed || this.#connecting) return {};
    const [local, remote] = this.#native.windows();
    return {
      effectiveLocalWindowSize: this.#window,
      effectiveRecvDataLength: Math.max(0, this.#window - local),
      nextStreamID: this.#lastId + 2,
      localWindowSize: this.#window,
      lastProcStreamID: 0,
      remoteWindowSize: remote,
      outboundQueueSize: this.#pending.size,
    };
  }

  /** The socket, to look at. */
  get socket() {
    const socket = this.#socket;
    const unbound = () => socket[BOUND] !== this;
    this.#proxy ??= new Proxy(this, {
      get: (session, name) => {
        if (OF_SESSION.has(name)) return session[name].bind(session);
        if (FORBIDDEN.has(name)) throw refusal('NO_SOCKET_MANIPULATION');
        if (unbound()) throw refusal('SOCKET_UNBOUND');
        const value = socket[name];
        return typeof value === 'function' ? value.bind(socket) : value;
      },
      getPrototypeOf: () => {
        if (unbound()) throw refusal('SOCKET_UNBOUND');
        return Reflect.getPrototypeOf(socket);
      },
      set: (session, name, value) => {
        if (FORBIDDEN.has(name)) throw refusal('NO_SOCKET_MANIPULATION');
        if (OF_SESSION.has(name)) session[name] = value;
        else if (unbound()) throw refusal('SOCKET_UNBOUND');
        else socket[name] = value;
        return true;
      },
    });
    return this.#proxy;
  }

  setLocalWindowSize(size) {
    this.#live();
    if (typeof size !== 'number') throw wrongType('windowSize', 'of type number', size);
    if (!Number.isInteger(size) || size < 0 || size > 2 ** 31 - 1)
      throw outOfRange('windowSize', '>= 0 && <= 2147483647', size);
    this.#whenConnected(() => {
      this.#window = this.#native.window(size);
    });
  }

  setNextStreamID() {
    throw missing('Http2Session.setNextStreamID', 'streams are numbered from 1');
  }

  #live() {
    if (this.#destroyed) throw refusal('INVALID_SESSION');
  }

  #whenConnected(run) {
    if (!this.#connecting) run();
    else this.once('connect', () => this.#native && run());
  }

  ping(payload, callback) {
    this.#live();
    if (typeof payload === 'function') [payload, callback] = [undefined, payload];
    if (payload) {
      if (!isBytes(payload))
        throw wrongType('payload', 'an instance of Buffer, TypedArray, or DataView', payload);
      if (payload.byteLength !== 8) throw refusal('PING_LENGTH');
    }
    checkFunction(callback, 'callback');
    if (this.#connecting || this.#closed) {
      nextTick(() => callback(refusal('PING_CANCEL')));
      return undefined;
    }
    if (this.#pings.length >= (this.#options.maxOutstandingPings ?? MOST_PINGS)) {
      callback(refusal('PING_CANCEL'));
      return false;
    }
    const since = clock.now();
    const sent = Bytes.alloc(8);
    if (payload) sent.set(bytesOf(payload));
    else sent.writeDoubleLE(since + this.#pings.length / 1e6);
    this.#pings.push({ payload: sent, callback, since });
    this.#native.ping(sent);
    return true;
  }

  settings(settings, callback) {
    this.#live();
    checkObject(settings, 'settings');
    checkSettings(settings);
    if (callback) checkFunction(callback, 'callback');
    const names = Object.keys(settings).filter((name) => settings[name] !== undefined);
    const fixed = names.filter((name) => name !== 'initialWindowSize');
    if (fixed.length > 0 || names.length === 0)
      throw missing(
        `Http2Session.settings with ${fixed.join(', ') || 'no setting'}`,
        'give it to http2.connect, in the option settings; initialWindowSize can be changed',
      );
    this.#whenConnected(() => {
      this.#acknowledgements.push({ settings: { ...settings }, callback, since: clock.now() });
      this.#native.streamWindow(settings.initialWindowSize);
    });
  }

  goaway(code = NO_ERROR, last = 0, data = undefined) {
    this.#live();
    if (data !== undefined && !isBytes(data))
      throw wrongType('opaqueData', 'an instance of Buffer, TypedArray, or DataView', data);
    if (typeof code !== 'number') throw wrongType('code', 'of type number', code);
    if (typeof last !== 'number') throw wrongType('lastStreamID', 'of type number', last);
    this.#whenConnected(() => this.#native.goaway(code, last, data));
  }

  close(callback) {
    if (this.#closed || this.#destroyed) return;
    this.#closed = true;
    if (typeof callback === 'function') this.once('close', callback);
    this.goaway();
    this.#rest();
  }

  /** Ends a closed session whose last stream is gone. */
  #rest() {
    if (this.#closed && !this.#destroyed && this.#streams.size === 0 && this.#pending.size === 0)
      this.destroy();
  }

  destroy(error = NO_ERROR, code = undefined) {
    if (this.#destroyed) return;
    this.#emptied = null;
    if (typeof error === 'number')
      [code, error] = [error, error === NO_ERROR ? undefined : refusal('SESSION_ERROR', error)];
    error ??= undefined;
    this.#end(code ?? (error ? INTERNAL_ERROR : NO_ERROR), error);
    const socket = this.#socket;
    if (socket[BOUND] === this) socket[BOUND] = undefined;
    if (socket.destroyed) {
      nextTick(() => this.#gone(error));
      return;
    }
    socket.once('close', () => this.#gone(error));
    if (this.#native === null) socket.destroy();
  }

  #end(code, error) {
    this.#destroyed = true;
    this.#destroyCode = code;
    this.setTimeout(0);
    this.removeAllListeners('timeout');
    if (this.#pending.size > 0) {
      const cancelled = refusal('STREAM_CANCEL', error);
      if (error) cancelled.cause = error;
      for (const stream of [...this.#pending]) stream.destroy(cancelled);
    }
    for (const stream of [...this.#streams.values()]) stream.destroy(error);
    for (const { callback } of this.#pings.splice(0)) callback(refusal('PING_CANCEL'));
    for (const { callback } of this.#acknowledgements.splice(0)) callback?.(refusal('SETTINGS_CANCEL'));
    this.#native?.close(code);
  }

  _code() {
    return this.#goawayCode || this.#destroyCode;
  }

  _closed(stream) {
    this.#pending.delete(stream);
    this.#streams.delete(stream.id);
    if (this.#emptied && this.#streams.size === 0) {
      this.#emptied();
      this.#emptied = null;
    }
    setImmediate(() => this.#rest());
  }

  _touch() {
    if (this.#timeout === 0 || this.#destroyed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.emit('timeout'), this.#timeout).unref();
  }

  setTimeout(milliseconds, callback) {
    this.#timeout = milliseconds;
    if (callback && milliseconds === 0) this.removeListener('timeout', callback);
    else if (callback) this.once('timeout', callback);
    clearTimeout(this.#timer);
    this._touch();
    return this;
  }

  ref() {}
  unref() {}

  request(given, options) {
    this.#live();
    if (this.#closed) throw refusal('GOAWAY_SESSION');
    this._touch();
    if (given !== undefined) checkObject(given, 'headers');
    if (options !== undefined) checkObject(options, 'options');
    const headers = Object.assign(Object.create(null), given);
    for (const name of Object.keys(headers))
      if (name[0] !== ':' && name && !isToken(name))
        throw coded(
          TypeError,
          'ERR_INVALID_HTTP_TOKEN',
          `Header name must be a valid HTTP token ["${name}"]`,
        );
    this.#complete(headers);
    const { endStream = WITHOUT_BODY.has(headers[':method']), waitForTrailers, signal } = options ?? {};
    if (typeof endStream !== 'boolean') throw wrongType('options.endStream', 'of type boolean', endStream);
    const { head, rows } = rowsOf(headers, true);
    if (head[':authority'] === undefined && headers.host !== undefined)
      head[':authority'] = `${headers.host}`;
    const stream = new ClientHttp2Stream(this, headers, { endStream, waitForTrailers });
    this.#pending.add(stream);
    if (endStream) stream.end();
    if (signal) this.#follow(signal, stream);
    if (this.#connecting) this.once('connect', () => this.#begun(stream, head, rows, endStream));
    else this.#begun(stream, head, rows, endStream);
    return stream;
  }

  /** The pseudo-headers that nobody gave. */
  #complete(headers) {
    headers[':method'] ??= 'GET';
    if (headers[':method'] !== 'CONNECT' || headers[':protocol'] !== undefined) {
      if (headers[':authority'] === undefined && headers.host === undefined)
        headers[':authority'] = this.#authority;
      headers[':scheme'] ??= this.#protocol.slice(0, -1);
      headers[':path'] ??= '/';
      return;
    }
    if (headers[':authority'] === undefined) throw refusal('CONNECT_AUTHORITY');
    if (headers[':scheme'] !== undefined) throw refusal('CONNECT_SCHEME');
    if (headers[':path'] !== undefined) throw refusal('CONNECT_PATH');
  }

  #follow(signal, stream) {
    if (typeof signal !== 'object' || !('aborted' in signal))
      throw wrongType('options.signal', 'an instance of AbortSignal', signal);
    const abort = () => stream.destroy(abortError(signal));
    if (signal.aborted) {
      abort();
      return;
    }
    signal.addEventListener('abort', abort, { once: true });
    stream.once('close', () => signal.removeEventListener('abort', abort));
  }

  #begun(stream, head, rows, endStream) {
    if (stream.destroyed || this.#destroyed) return;
    if (this.#closed) {
      stream.destroy(refusal('GOAWAY_SESSION'));
      return;
    }
    let handle;
    try {
      handle = this.#native.request(head, rows, endStream);
    } catch (error) {
      stream.destroy(error);
      return;
    }
    this.#pending.delete(stream);
    this.#streams.set(handle.id, stream);
    this.#lastId = handle.id;
    stream._begin(handle);
  }
}

export class ClientHttp2Session extends Http2Session {}

export function connect(authority, options, listener) {
  if (typeof options === 'function') [options, listener] = [undefined, options];
  if (options !== undefined) checkObject(options, 'options');
  const given = { ...options, settings: initialSettings(options?.settings) };
  if (typeof authority === 'string') authority = new URL(authority);
  if (authority === null || typeof authority !== 'object')
    throw wrongType('authority', 'of type string or an instance of Object or URL', authority);
  const protocol = authority.protocol || given.protocol || 'https:';
  const port = `${authority.port || (protocol === 'http:' ? 80 : 443)}`;
  const host = (authority.hostname || authority.host || 'localhost').replace(/^\[(.*)\]$/, '$1');
  const session = new ClientHttp2Session(
    given,
    connection(authority, given, protocol, port, host),
    `${given.servername || (host.includes(':') ? `[${host}]` : host)}:${port}`,
    protocol,
  );
  if (typeof listener === 'function') session.once('connect', listener);
  return session;
}

/** Through `node:net` and `node:tls`, as every other connection. */
function connection(authority, options, protocol, port, host) {
  if (typeof options.createConnection === 'function') return options.createConnection(authority, options);
  if (protocol === 'http:') return net.connect({ port, host, ...options });
  if (protocol !== 'https:') throw refusal('UNSUPPORTED_PROTOCOL', protocol);
  const servername = net.isIP(host) ? undefined : host;
  return tls.connect({ servername, ...options, port, host, ALPNProtocols: options.ALPNProtocols ?? ['h2'] });
}
