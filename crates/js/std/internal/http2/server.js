// Servers of HTTP/2: their sessions, and the streams that clients open.

import native from 'native/http2';
import { Server as NetServer } from 'node:net';
import { Server as TlsServer } from 'node:tls';
import { checkFunction, checkObject, missing, wrongType } from 'internal/errors';
import { connectionListener, methods, setUp } from 'internal/http1/server';
import { clearTimeout, setTimeout } from 'internal/timers';
import { nextTick } from 'internal/ticks';
import { checkSettings, objectOf, refusal, rowsOf } from 'internal/http2/common';
import { Http2ServerRequest, Http2ServerResponse, onServerStream } from 'internal/http2/compat';
import { Http2Session } from 'internal/http2/session';
import { Http2Stream } from 'internal/http2/stream';

const REFUSED_STREAM = 7;
const END_STREAM = 1;
const END_HEADERS = 4;
const WITHOUT_BODY = new Set([204, 205, 304]);
/** How long a connection may take to agree on a protocol that no server speaks. */
const UNKNOWN_PROTOCOL = 10_000;

/** Headers as an object; a list has names and values in turn. */
function gathered(given) {
  const headers = Object.create(null);
  if (!Array.isArray(given)) {
    if (given !== undefined && given !== null && typeof given !== 'object')
      throw wrongType('headers', 'an instance of Array or Object', given);
    return Object.assign(headers, given);
  }
  for (let at = 0; at < given.length; at += 2) {
    const name = `${given[at]}`.toLowerCase();
    const value = given[at + 1];
    headers[name] = headers[name] === undefined ? value : [headers[name], value].flat();
  }
  return headers;
}

export class ServerHttp2Stream extends Http2Stream {
  #head;
  #responded = false;

  constructor(session, handle, headers) {
    super(session, undefined, { endStream: false });
    this.#head = headers[':method'] === 'HEAD';
    this._accept(handle);
  }

  get headersSent() {
    return this.#responded;
  }

  get headRequest() {
    return this.#head;
  }

  #live() {
    if (this.destroyed || this.closed) throw refusal('INVALID_STREAM');
  }

  _proceed() {
    this.respond();
  }

  respond(given, options) {
    this.#live();
    if (this.#responded) throw refusal('HEADERS_SENT');
    if (options !== undefined) checkObject(options, 'options');
    const headers = gathered(given);
    const status = (headers[':status'] = headers[':status'] === undefined ? 200 : headers[':status'] | 0);
    if (status < 200 || status > 599) throw refusal('STATUS_INVALID', headers[':status']);
    const sendDate = options?.sendDate;
    if ((sendDate === undefined || sendDate) && headers.date === undefined)
      headers.date = new Date().toUTCString();
    const endStream = !!options?.endStream || this.#head || WITHOUT_BODY.has(status);
    const { rows } = rowsOf(headers, true);
    this._touch();
    this.#responded = true;
    this._native.respond(status, rows, endStream);
    this._responded(headers, { endStream, waitForTrailers: !!options?.waitForTrailers });
  }

  additionalHeaders(given) {
    this.#live();
    if (this.#responded) throw refusal('HEADERS_AFTER_RESPOND');
    checkObject(given, 'headers');
    const headers = Object.assign(Object.create(null), given);
    const status = headers[':status'] === undefined ? undefined : headers[':status'] | 0;
    if (status === 101) throw refusal('STATUS_101');
    if (status === undefined || status < 100 || status > 199)
      throw refusal('INVALID_INFO_STATUS', headers[':status']);
    const { rows } = rowsOf(headers, true);
    this.sentInfoHeaders ??= [];
    this.sentInfoHeaders.push(headers);
    this._native.inform(status, rows);
  }

  pushStream(headers, options, callback) {
    if (typeof options === 'function') [options, callback] = [undefined, options];
    checkFunction(callback, 'callback');
    throw refusal('PUSH_DISABLED');
  }

  respondWithFD() {
    throw missing('Http2Stream.respondWithFD', 'pipe a stream of node:fs into it');
  }

  respondWithFile() {
    throw missing('Http2Stream.respondWithFile', 'pipe a stream of node:fs into it');
  }
}

export class ServerHttp2Session extends Http2Session {
  #server;
  /** What frames said about streams that are not accepted yet. */
  #before = new Map();

  constructor(options, socket, server) {
    super(options, socket);
    this.#server = server;
  }

  get type() {
    return 0;
  }

  get server() {
    return this.#server;
  }

  _open(settings) {
    return native.serverSession(settings);
  }

  _early(id, name, value) {
    const said = this.#before.get(id) ?? [];
    said.push([name, value]);
    this.#before.set(id, said);
  }

  async _serve(session) {
    for (;;) {
      const handle = await session.accept();
      if (handle === null) return;
      if (this.destroyed) {
        handle.reset(REFUSED_STREAM);
        continue;
      }
      this.#accepted(handle);
    }
  }

  #accepted(handle) {
    const flat = handle.headers;
    const headers = objectOf(flat);
    const stream = new ServerHttp2Stream(this, handle, headers);
    this._hold(stream, handle);
    for (const [name, value] of this.#before.get(handle.id) ?? []) this._heard(stream, name, value);
    this.#before.delete(handle.id);
    this._touch();
    const flags = handle.ended ? END_HEADERS | END_STREAM : END_HEADERS;
    nextTick(() => {
      const heard = [this.#server, this].map((each) => each?.emit('stream', stream, headers, flags, flat));
      if (!heard.includes(true)) stream.close(REFUSED_STREAM);
    });
  }

  altsvc() {
    throw missing('Http2Session.altsvc', 'send the header alt-svc');
  }

  origin() {
    throw missing('Http2Session.origin', 'use one connection for each origin');
  }
}

/** What both kinds of servers have. */
function prepare(server, given, listener) {
  const settings = { ...given.settings };
  checkSettings(settings);
  if (settings.maxHeaderSize !== undefined) settings.maxHeaderListSize ??= settings.maxHeaderSize;
  server._options = {
    ...given,
    settings,
    Http2ServerRequest: given.Http2ServerRequest ?? Http2ServerRequest,
    Http2ServerResponse: given.Http2ServerResponse ?? Http2ServerResponse,
  };
  Object.defineProperty(server, '_sessions', { value: new Set() });
  server.timeout = 0;
  server.on('newListener', compatible);
  if (listener) server.on('request', listener);
}

/** Requests are made of streams where a program listens for them. */
function compatible(event) {
  if (event !== 'request') return;
  this.removeListener('newListener', compatible);
  const { Http2ServerRequest: Request, Http2ServerResponse: Response } = this._options;
  this.on('stream', (...given) => onServerStream(this, Request, Response, ...given));
}

function begin(server, socket) {
  const options = server._options;
  if (socket.encrypted && socket.alpnProtocol !== 'h2') {
    if (options.allowHTTP1 && (!socket.alpnProtocol || socket.alpnProtocol === 'http/1.1')) {
      connectionListener.call(server, socket);
      return;
    }
    if (server.emit('unknownProtocol', socket)) return;
    const timer = setTimeout(
      () => socket.destroy(),
      options.unknownProtocolTimeout ?? UNKNOWN_PROTOCOL,
    ).unref();
    socket.once('close', () => clearTimeout(timer));
    socket.end(
      'HTTP/1.0 403 Forbidden\r\nContent-Type: text/plain\r\n\r\nMissing ALPN Protocol, expected `h2` to be available.\n',
    );
    return;
  }
  socket.on('error', () => {});
  const session = new ServerHttp2Session(options, socket, server);
  server._sessions.add(session);
  session.on('error', (error) => server.emit('sessionError', error, session));
  session.on('close', () => server._sessions.delete(session));
  if (server.timeout > 0) {
    session.setTimeout(server.timeout);
    session.on('timeout', () => {
      if (session.destroyed || server.emit('timeout', session)) return;
      session.destroy();
    });
  }
  server.emit('session', session);
}

const shared = {
  setTimeout(milliseconds, callback) {
    this.timeout = milliseconds;
    if (callback !== undefined) {
      checkFunction(callback, 'callback');
      this.on('timeout', callback);
    }
    return this;
  },

  updateSettings(settings) {
    checkObject(settings, 'settings');
    checkSettings(settings);
    this._options.settings = { ...this._options.settings, ...settings };
  },
};

export class Http2Server extends NetServer {
  constructor(options, listener) {
    super({ ...options, allowHalfOpen: true });
    prepare(this, options, listener);
    this.on('connection', (socket) => begin(this, socket));
  }

  close(callback) {
    super.close(callback);
    for (const session of [...this._sessions]) session.close();
    return this;
  }
}
Object.assign(Http2Server.prototype, shared);

export class Http2SecureServer extends TlsServer {
  constructor(options, listener) {
    const ALPNProtocols = options.ALPNProtocols ?? (options.allowHTTP1 ? ['h2', 'http/1.1'] : ['h2']);
    super({ ...options, ALPNProtocols });
    prepare(this, options, listener);
    setUp(this, options);
    this.on('secureConnection', (socket) => begin(this, socket));
  }

  close(callback) {
    super.close(callback);
    methods.closeIdleConnections.call(this);
    for (const session of [...this._sessions]) session.close();
    return this;
  }
}
Object.assign(Http2SecureServer.prototype, shared);

function arranged(options, listener) {
  if (typeof options === 'function') return [{}, options];
  if (options !== undefined) checkObject(options, 'options');
  return [options ?? {}, listener];
}

export const createServer = (...given) => new Http2Server(...arranged(...given));
export const createSecureServer = (...given) => new Http2SecureServer(...arranged(...given));

/** A session on a connection that the caller accepted. */
export function performServerHandshake(socket, options = {}) {
  const settings = { ...options.settings };
  checkSettings(settings);
  return new ServerHttp2Session({ ...options, settings }, socket, undefined);
}
