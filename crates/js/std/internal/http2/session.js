// A session of HTTP/2: one connection, and the streams on it.

import clock from 'native/process';
import tls from 'node:tls';
import { EventEmitter } from 'node:events';
import { Bytes } from 'internal/buffer';
import { checkFunction, checkObject, coded, missing, outOfRange, wrongType } from 'internal/errors';
import { nextTick } from 'internal/ticks';
import { clearTimeout, setImmediate, setTimeout } from 'internal/timers';
import {
  CANCEL,
  INTERNAL_ERROR,
  NO_ERROR,
  bytesOf,
  checkSettings,
  defaultSettings,
  learn,
  pack,
  refusal,
} from 'internal/http2/common';

const MOST_PINGS = 10;
const BOUND = Symbol('session');
const FORBIDDEN = new Set('emit end pause read resume write setEncoding setKeepAlive setNoDelay'.split(' '));
const OF_SESSION = new Set(['destroy', 'setTimeout', 'ref', 'unref']);

class NghttpError extends Error {}

const isBytes = (value) => ArrayBuffer.isView(value);

/** The base of sessions: a subclass has `type`, and `_open(settings)`, which answers the native side. */
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
  /** Settings that the peer has not acknowledged: those that the native side knows, and others. */
  #acknowledgements = [];
  #inserted = [];
  #local = { ...defaultSettings(), enablePush: this.type === 0 };
  #localKnown = null;
  #remote = null;
  #window = 0;
  #lastId = -1;
  #timeout = 0;
  #timer = null;
  encrypted = undefined;
  alpnProtocol = undefined;

  constructor(options, socket) {
    super();
    if (socket[BOUND] !== undefined) throw refusal('SOCKET_BOUND');
    this.#options = options;
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
    const session = this._open(settings);
    this.#native = session;
    this.#window = session.windowSize;
    this.#acknowledgements.push({ settings, call: { left: 1, since: clock.now() } });
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
    nextTick(() => this._serve(session));
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
        const asked = (given[0] ? this.#inserted : this.#acknowledgements).shift();
        if (!asked) break;
        this.#local = { ...this.#local, ...asked.settings };
        this.#local.maxHeaderSize = this.#local.maxHeaderListSize;
        this.#localKnown = null;
        asked.call.left -= 1;
        if (asked.call.left > 0) break;
        const { localSettings } = this;
        asked.call.callback?.(null, localSettings, clock.now() - asked.call.since);
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
      case 'reset': {
        const stream = this.#streams.get(given[0]);
        if (stream) this._heard(stream, name, given[1]);
        else if (given[0] > this.#lastId) this._early(given[0], name, given[1]);
        break;
      }
    }
  }

  /** A frame for a stream that no program knows yet. */
  _early() {}

  _heard(stream, name, value) {
    if (name === 'ended') stream._ended(value);
    // One that ends without an error ends where its last bytes are read.
    else if (value !== NO_ERROR) stream._lose(value);
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
  /** What a server does on its connection. */
  _serve() {}

  get goawayCode() {
    return this.#goawayCode ?? NO_ERROR;
  }
  get goawayLastStreamID() {
    return this.#goawayLast ?? 0;
  }
  get pendingSettingsAck() {
    return this.#acknowledgements.length + this.#inserted.length > 0;
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
    this._live();
    if (typeof size !== 'number') throw wrongType('windowSize', 'of type number', size);
    if (!Number.isInteger(size) || size < 0 || size > 2 ** 31 - 1)
      throw outOfRange('windowSize', '>= 0 && <= 2147483647', size);
    this._whenConnected(() => {
      this.#window = this.#native.window(size);
    });
  }

  setNextStreamID() {
    throw missing('Http2Session.setNextStreamID', 'streams are numbered from 1');
  }

  _live() {
    if (this.#destroyed) throw refusal('INVALID_SESSION');
  }

  _whenConnected(run) {
    if (!this.#connecting) run();
    else this.once('connect', () => this.#native && run());
  }

  ping(payload, callback) {
    this._live();
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
    this._live();
    checkObject(settings, 'settings');
    checkSettings(settings);
    if (callback) checkFunction(callback, 'callback');
    for (const name of ['enablePush', 'enableConnectProtocol'])
      if (settings[name] === true)
        throw missing(`Http2Session.settings with ${name}: true`, 'leave it out, or set it to false');
    const { initialWindowSize, ...others } = settings;
    if (others.maxHeaderSize !== undefined) others.maxHeaderListSize ??= others.maxHeaderSize;
    const changesWindow = initialWindowSize !== undefined;
    const insertsOthers = !changesWindow || Object.values(others).some((value) => value !== undefined);
    this._whenConnected(() => {
      const call = { left: Number(changesWindow) + Number(insertsOthers), callback, since: clock.now() };
      if (insertsOthers) {
        this.#inserted.push({ settings: others, call });
        this.#native.settings(pack(this.#bounded(others)));
      }
      if (changesWindow) {
        this.#acknowledgements.push({ settings: { initialWindowSize }, call });
        this.#native.streamWindow(initialWindowSize);
      }
    });
  }

  /** What is sent of settings that the native side holds to what the session began with: never more than that. */
  #bounded(settings) {
    const began = {
      headerTableSize: 4096,
      maxFrameSize: 16384,
      maxHeaderListSize: 65535,
      ...this.#options.settings,
    };
    const sent = { ...settings };
    for (const name of ['headerTableSize', 'maxFrameSize', 'maxHeaderListSize'])
      if (sent[name] !== undefined) sent[name] = Math.min(sent[name], began[name]);
    delete sent.maxHeaderSize;
    return sent;
  }

  goaway(code = NO_ERROR, last = 0, data = undefined) {
    this._live();
    if (data !== undefined && !isBytes(data))
      throw wrongType('opaqueData', 'an instance of Buffer, TypedArray, or DataView', data);
    if (typeof code !== 'number') throw wrongType('code', 'of type number', code);
    if (typeof last !== 'number') throw wrongType('lastStreamID', 'of type number', last);
    this._whenConnected(() => this.#native.goaway(code, last, data));
  }

  close(callback) {
    if (this.#closed || this.#destroyed) return;
    this.#closed = true;
    if (typeof callback === 'function') this.once('close', callback);
    this.goaway();
    // A server still has to send that it closes; programs look at the socket until then.
    if (this.type === 0) setImmediate(() => this.#rest());
    else this.#rest();
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
    for (const { call } of [...this.#acknowledgements.splice(0), ...this.#inserted.splice(0)]) {
      call.callback?.(refusal('SETTINGS_CANCEL'));
      call.callback = undefined;
    }
    this.#native?.close(code);
  }

  /** A stream that waits for its turn. */
  _wait(stream) {
    this.#pending.add(stream);
  }

  /** A stream that has begun. */
  _hold(stream, handle) {
    this.#pending.delete(stream);
    this.#streams.set(handle.id, stream);
    this.#lastId = handle.id;
  }

  get _native() {
    return this.#native;
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
}
