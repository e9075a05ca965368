// Requests to servers.

import { Bytes } from 'internal/buffer';
import net from 'node:net';
import { URL } from 'internal/url';
import { urlToHttpOptions } from 'node:url';
import { abortError, coded, wrongType } from 'internal/errors';
import { globalAgent, Agent } from 'internal/http1/agent';
import { METHODS, headerPairs, hangUp, isToken } from 'internal/http1/common';
import { lasts, message, parser, upgrades } from 'internal/http1/connection';
import { abortIncoming } from 'internal/http1/incoming';
import { OutgoingMessage, headersOf, kErrored } from 'internal/http1/outgoing';
import { follow } from 'internal/context';
import { nextTick } from 'internal/ticks';

const INVALID_PATH = /[^\u0021-\u00ff]/;
const WITHOUT_BODY = ['GET', 'HEAD', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT'];

function arrange(input, options, callback) {
  if (typeof input === 'string') input = urlToHttpOptions(new URL(input));
  else if (input instanceof URL || (input?.searchParams && input.href)) input = urlToHttpOptions(input);
  else [input, options, callback] = [undefined, input, options];
  if (typeof options === 'function') [options, callback] = [undefined, options];
  return [{ ...input, ...options }, callback];
}

function checkHost(host, name) {
  if (host !== null && host !== undefined && typeof host !== 'string')
    throw wrongType(`options.${name}`, 'of type string, undefined, or null', host);
  return host;
}

function agentOf(given, fallback, options) {
  if (given === false) return new fallback.constructor();
  if (given === null || given === undefined)
    return typeof options.createConnection === 'function' ? undefined : fallback;
  if (typeof given.addRequest !== 'function')
    throw wrongType('options.agent', 'an Agent-like Object, undefined, or false', given);
  return given;
}

export function ClientRequest(input, given, after) {
  if (!(this instanceof ClientRequest)) return new ClientRequest(input, given, after);
  OutgoingMessage.call(this);
  const [options, callback] = arrange(input, given, after);
  const fallback = options._defaultAgent ?? globalAgent;
  this.agent = agentOf(options.agent, fallback, options);
  const protocol = options.protocol || fallback.protocol;
  const expected = this.agent?.protocol ?? fallback.protocol;
  const path = options.path ? `${options.path}` : '/';
  if (INVALID_PATH.test(path))
    throw coded(TypeError, 'ERR_UNESCAPED_CHARACTERS', 'Request path contains unescaped characters');
  if (protocol !== expected) {
    throw coded(
      TypeError,
      'ERR_INVALID_PROTOCOL',
      `Protocol "${protocol}" not supported. Expected "${expected}"`,
    );
  }
  const defaultPort = options.defaultPort || this.agent?.defaultPort || fallback.defaultPort;
  options.port ||= defaultPort || 80;
  const host = checkHost(options.hostname, 'hostname') || checkHost(options.host, 'host') || 'localhost';
  options.host = host;
  this.method = `${options.method ?? 'GET'}`.toUpperCase();
  if (options.method !== undefined && options.method !== null && typeof options.method !== 'string')
    throw wrongType('options.method', 'of type string', options.method);
  if (!isToken(this.method))
    throw coded(
      TypeError,
      'ERR_INVALID_HTTP_TOKEN',
      `Method must be a valid HTTP token ["${options.method}"]`,
    );
  this.path = path;
  this.host = host;
  this.protocol = protocol;
  this.socketPath = options.socketPath;
  this.maxHeaderSize = options.maxHeaderSize;
  this.joinDuplicateHeaders = options.joinDuplicateHeaders;
  this.insecureHTTPParser = options.insecureHTTPParser;
  this.timeout = options.timeout ?? this.agent?.options?.timeout;
  this.aborted = false;
  this.res = null;
  this.reusedSocket = false;
  this.upgradeOrConnect = false;
  this.maxHeadersCount = null;
  this.parser = null;
  this._ended = false;
  this.shouldKeepAlive = !!this.agent?.keepAlive;
  this.useChunkedEncodingByDefault = !WITHOUT_BODY.includes(this.method);
  this._given = options;
  if (callback) this.once('response', follow(callback));

  const pairs = headerPairs(options.headers);
  // As a list, headers go out as they are.
  const raw = Array.isArray(options.headers) ? pairs : undefined;
  if (raw) {
    for (const [name, value] of pairs) this.appendHeader(name, value);
  } else {
    for (const [name, value] of pairs) this.setHeader(name, value);
  }
  if (!this.getHeader('host') && options.setHost !== false && options.setDefaultHeaders !== false && host) {
    const shown = host.includes(':') && !host.startsWith('[') ? `[${host}]` : host;
    this.setHeader(
      'Host',
      options.port && Number(options.port) !== Number(defaultPort) ? `${shown}:${options.port}` : shown,
    );
  }
  if (options.auth && !this.getHeader('Authorization'))
    this.setHeader('Authorization', `Basic ${Bytes.from(`${options.auth}`).toString('base64')}`);
  if (this.getHeader('expect') !== undefined) {
    this._storeHeader(`${this.method} ${this.path} HTTP/1.1\r\n`);
  }
  if (options.signal) {
    const { signal } = options;
    const give = () => this.destroy(abortError(signal));
    if (signal.aborted) nextTick(give);
    else {
      signal.addEventListener('abort', give, { once: true });
      this.once('close', () => signal.removeEventListener('abort', give));
    }
  }
  // Agents of packages read the method and the headers.
  const connect = { ...options, path: this.socketPath };
  if (this.agent) {
    this.agent.addRequest(this, { ...connect, socketPath: this.socketPath });
  } else {
    this._last = true;
    this.shouldKeepAlive = false;
    let called = false;
    const created = (error, socket) => {
      if (called) return;
      called = true;
      if (error) nextTick(() => this.emit('error', error));
      else this.onSocket(socket);
    };
    const make =
      typeof options.createConnection === 'function' ? options.createConnection : net.createConnection;
    try {
      const socket = make(connect, created);
      if (socket) created(null, socket);
    } catch (error) {
      created(error);
    }
  }
}
Object.setPrototypeOf(ClientRequest.prototype, OutgoingMessage.prototype);
Object.setPrototypeOf(ClientRequest, OutgoingMessage);

Object.assign(ClientRequest.prototype, {
  _implicitHeader() {
    this._storeHeader(`${this.method} ${this.path} HTTP/1.1\r\n`);
  },

  _storeHeader(firstLine) {
    const set = headersOf(this);
    if (!this.useChunkedEncodingByDefault && (set?.has('transfer-encoding') || set?.has('content-length')))
      this.useChunkedEncodingByDefault = true;
    if (!this.useChunkedEncodingByDefault && this._contentLength === 0) this._hasBody = false;
    if (!this.useChunkedEncodingByDefault && this._hasBody) {
      // A body that nobody expects still has to end somewhere.
      if (typeof this._contentLength !== 'number') this._contentLength = null;
      this.useChunkedEncodingByDefault = true;
    }
    OutgoingMessage.prototype._storeHeader.call(this, firstLine);
  },

  abort() {
    if (this.aborted) return;
    this.aborted = true;
    nextTick(() => this.emit('abort'));
    this.destroy();
  },

  destroy(error) {
    if (this.destroyed) return this;
    this.destroyed = true;
    this.res?._dump();
    this[kErrored] = error ?? null;
    if (this.socket) endSocket(this, error);
    else nextTick(() => failEarly(this));
    return this;
  },

  onSocket(socket, error) {
    nextTick(() => {
      if (error) {
        if (!this.destroyed) {
          this.destroyed = true;
          this[kErrored] = error;
        }
        failEarly(this, error);
      } else if (this.destroyed) {
        if (
          this.agent &&
          !socket.destroyed &&
          this[kErrored] === null &&
          socket.readable &&
          !socket.connecting
        )
          socket.emit('free');
        else socket.destroy(this[kErrored] ?? undefined);
        failEarly(this);
      } else {
        attach(this, socket);
      }
    });
  },

  setTimeout(milliseconds, callback) {
    if (this._ended) return this;
    if (callback) this.once('timeout', callback);
    this.timeout = milliseconds;
    if (this.socket) listenTimeout(this, this.socket);
    return this;
  },

  setNoDelay(noDelay) {
    this._deferred('setNoDelay', [noDelay]);
  },

  setSocketKeepAlive(enable, after) {
    this._deferred('setKeepAlive', [enable, after]);
  },

  _deferred(method, given) {
    const run = (socket) => socket[method]?.(...given);
    if (this.socket) run(this.socket);
    else this.once('socket', run);
  },

  clearTimeout(callback) {
    return this.setTimeout(0, callback);
  },

  _finish() {
    OutgoingMessage.prototype._finish.call(this);
  },
});

function endSocket(request, error) {
  request.socket.destroy(error);
}

/** The request ended before it had a connection. */
function failEarly(request, error) {
  if (request._closed) return;
  request._closed = true;
  const told = error ?? request[kErrored] ?? hangUp('socket hang up');
  request._told = true;
  request.emit('error', told);
  request.emit('close');
}

function tell(request, error) {
  if (request._told) return;
  request._told = true;
  request[kErrored] ??= error;
  request.emit('error', error);
}

function listenTimeout(request, socket) {
  if (!request._onTimeout) {
    request._onTimeout = () => request.emit('timeout');
    socket.on('timeout', request._onTimeout);
  }
  if (request.timeout === undefined) return;
  if (socket.connecting) socket.once('connect', () => socket.setTimeout(request.timeout));
  socket.setTimeout(request.timeout);
}

/** The request has its connection: what comes is its response. */
function attach(request, socket) {
  const from = parser('responses', request.maxHeaderSize);
  let response = null;
  let interim = false;
  let detached = false;
  let asked = false;
  request.socket = socket;
  request.parser = from;
  socket._httpMessage = request;

  const detach = () => {
    if (detached) return;
    detached = true;
    socket.removeListener('data', data);
    socket.removeListener('end', end);
    socket.removeListener('close', close);
    socket.removeListener('error', failed);
    socket.removeListener('drain', drain);
    if (request._onTimeout) socket.removeListener('timeout', request._onTimeout);
    request._onTimeout = undefined;
    socket._httpMessage = null;
    request.parser = null;
  };

  /** The exchange is over; the connection may be used again. */
  const release = () => {
    if (request._ended) return;
    request._ended = true;
    const free = request.shouldKeepAlive && !socket.destroyed && socket.writable;
    if (free) {
      if (request.timeout) socket.setTimeout(0);
      detach();
      request.destroyed = true;
      // What waits for the response's own end runs first.
      nextTick(() => socket.emit('free'));
    } else {
      request.destroyed = true;
      if (socket.writable && !socket.destroyed) socket.destroySoon ? socket.destroySoon() : socket.end();
    }
    nextTick(() => {
      if (request._closed) return;
      request._closed = true;
      request.emit('close');
    });
  };
  const over = () => {
    if (request.writableFinished || !request.shouldKeepAlive) release();
    else request.once('finish', release);
  };

  const head = (parts) => {
    const made = message(undefined, socket, parts);
    made.joinDuplicateHeaders = !!request.joinDuplicateHeaders;
    const { statusCode } = made;
    const switches = request.method === 'CONNECT' || (statusCode === 101 && upgrades(made));
    if (switches) {
      from.body('upgrade');
      made.upgrade = true;
      request.upgradeOrConnect = true;
      request.res = made;
      made.req = request;
      const rest = Bytes.from(from.rest());
      const event = request.method === 'CONNECT' ? 'connect' : 'upgrade';
      detach();
      socket.removeListener('agentRemove', () => {});
      socket.emit('agentRemove');
      made.complete = true;
      if (request.listenerCount(event) > 0) {
        request.destroyed = true;
        request._ended = true;
        socket.readableFlowing = null;
        request.emit(event, made, socket, rest);
        request._closed = true;
        nextTick(() => request.emit('close'));
      } else {
        socket.destroy();
        close();
      }
      return false;
    }
    if (statusCode < 200) {
      from.body('none');
      interim = true;
      if (statusCode === 100) request.emit('continue');
      request.emit('information', {
        statusCode,
        statusMessage: made.statusMessage,
        httpVersion: made.httpVersion,
        httpVersionMajor: made.httpVersionMajor,
        httpVersionMinor: made.httpVersionMinor,
        headers: made.headers,
        rawHeaders: made.rawHeaders,
      });
      return true;
    }
    const empty = request.method === 'HEAD' || statusCode === 204 || statusCode === 304;
    from.body(empty ? 'none' : undefined);
    if (!lasts(made) || (!empty && parts[7] === null)) request.shouldKeepAlive = false;
    socket._keepAlive = made.headers['keep-alive'];
    response = made;
    request.res = made;
    made.req = request;
    made._flow = () => {
      asked = true;
      if (!detached) socket.resume();
    };
    made.on('end', over);
    made.on('close', () => {
      if (!made.complete && !socket.destroyed) socket.destroy();
    });
    if (request.aborted || !request.emit('response', made)) made._dump();
    return true;
  };

  const read = () => {
    for (;;) {
      const part = from.next();
      if (part === null || detached) return;
      const [kind] = part;
      if (kind === 'head') {
        if (response)
          throw coded(Error, 'HPE_CLOSED_CONNECTION', 'Parse Error: Data after `Connection: close`');
        if (!head(part)) return;
      } else if (kind === 'body') {
        const [, bytes] = part;
        const chunk = Bytes.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
        asked = false;
        // A reader may ask for more while it is given this.
        if (response && !response._dumped && !response.destroyed && !response.push(chunk) && !asked)
          socket.pause();
      } else if (interim) {
        interim = false;
      } else {
        [, response.rawTrailers] = part;
        response.complete = true;
        // Nothing more belongs to this request; packages look whether somebody still listens.
        socket.removeListener('data', data);
        response.push(null);
        return;
      }
    }
  };

  const broken = (error, bytes) => {
    if (bytes) error.rawPacket = bytes;
    socket.removeListener('data', data);
    tell(request, error);
    socket.destroy();
  };

  function data(bytes) {
    try {
      from.push(bytes);
      read();
    } catch (error) {
      if (!error?.code?.startsWith?.('HPE_')) throw error;
      broken(error, bytes);
    }
  }

  function end() {
    try {
      if (from.finish() && response) {
        response.complete = true;
        response.push(null);
        return;
      }
    } catch {
      // The connection was cut within a message, which `close` tells.
    }
    if (!response && !request._told) tell(request, hangUp('socket hang up'));
    socket.destroy();
  }

  function failed(error) {
    tell(request, error);
    request.destroyed = true;
    socket.destroy();
  }

  function close() {
    detach();
    request.destroyed = true;
    if (response) {
      if (!response.complete) response.destroy(request[kErrored] ?? hangUp('aborted'));
      if (!request._closed) {
        const done = () => {
          if (request._closed) return;
          request._closed = true;
          request.emit('close');
        };
        if (response.readableEnded || !response.readable || response.destroyed) nextTick(done);
        else response.once('close', done);
      }
      return;
    }
    if (!request._ended && !request._told) tell(request, request[kErrored] ?? hangUp('socket hang up'));
    if (!request._closed) {
      request._closed = true;
      request.emit('close');
    }
  }

  function drain() {
    request._drained();
  }

  socket.on('data', data);
  socket.on('end', end);
  socket.on('close', close);
  socket.on('error', failed);
  socket.on('drain', drain);
  if (request.timeout !== undefined) listenTimeout(request, socket);
  request.emit('socket', socket);
  request._flush();
  if (socket.destroyed) nextTick(close);
}

export { Agent, METHODS, abortIncoming };
