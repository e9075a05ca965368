// Servers: requests come in, responses go out.

import { clearTimeout, setTimeout } from 'internal/timers';
import { Bytes } from 'internal/buffer';
import { Server as NetServer } from 'node:net';
import { coded, outOfRange } from 'internal/errors';
import { STATUS_CODES, hangUp, headerPairs, isInvalidValue, isToken } from 'internal/http1/common';
import { lasts, message, parser, upgrades } from 'internal/http1/connection';
import { IncomingMessage, abortIncoming } from 'internal/http1/incoming';
import { OutgoingMessage, headersOf } from 'internal/http1/outgoing';
import { nextTick } from 'internal/ticks';

export function ServerResponse(request, options) {
  OutgoingMessage.call(this, options);
  if (request?.method === 'HEAD') this._hasBody = false;
  this.req = request;
  this.statusCode = 200;
  this.statusMessage = undefined;
  this.sendDate = true;
  this._sent100 = false;
  this._expect_continue = false;
  if (request && (request.httpVersionMajor < 1 || request.httpVersionMinor < 1)) {
    this.useChunkedEncodingByDefault = /chunked/i.test(request.headers?.te ?? '');
    this.shouldKeepAlive = false;
  }
}
Object.setPrototypeOf(ServerResponse.prototype, OutgoingMessage.prototype);
Object.setPrototypeOf(ServerResponse, OutgoingMessage);

Object.assign(ServerResponse.prototype, {
  assignSocket(socket) {
    if (socket._httpMessage) throw coded(Error, 'ERR_HTTP_SOCKET_ASSIGNED', 'Socket already assigned');
    socket._httpMessage = this;
    this._onClose = () => {
      this.destroyed = true;
      this._closed = true;
      this.emit('close');
    };
    socket.on?.('close', this._onClose);
    this.socket = socket;
    this.emit('socket', socket);
    this._flush();
  },

  detachSocket(socket) {
    socket.removeListener('close', this._onClose);
    socket._httpMessage = null;
    this.socket = null;
  },

  writeContinue(callback) {
    this._writeRaw(Bytes.from('HTTP/1.1 100 Continue\r\n\r\n'), callback);
    this._sent100 = true;
  },

  writeProcessing(callback) {
    this._writeRaw(Bytes.from('HTTP/1.1 102 Processing\r\n\r\n'), callback);
  },

  writeEarlyHints(hints, callback) {
    let text = 'HTTP/1.1 103 Early Hints\r\n';
    if (!hints.link || hints.link.length === 0) return;
    text += `Link: ${[hints.link].flat().join(', ')}\r\n`;
    for (const [name, value] of Object.entries(hints))
      if (name.toLowerCase() !== 'link') text += `${name}: ${value}\r\n`;
    this._writeRaw(Bytes.from(`${text}\r\n`, 'latin1'), callback);
  },

  _implicitHeader() {
    this.writeHead(this.statusCode);
  },

  writeHead(statusCode, reason, given) {
    if (this._header)
      throw coded(Error, 'ERR_HTTP_HEADERS_SENT', 'Cannot write headers after they are sent to the client');
    const status = Number(statusCode) | 0;
    if (status < 100 || status > 999)
      throw coded(RangeError, 'ERR_HTTP_INVALID_STATUS_CODE', `Invalid status code: ${statusCode}`);
    if (typeof reason === 'string') this.statusMessage = reason;
    else {
      this.statusMessage ||= STATUS_CODES[status] || 'unknown';
      given ??= reason;
    }
    this.statusCode = status;
    if (isInvalidValue(this.statusMessage))
      throw coded(TypeError, 'ERR_INVALID_CHAR', 'Invalid character in statusMessage');
    let headers;
    if (given) {
      const pairs = headerPairs(given);
      if (headersOf(this) || !Array.isArray(given)) {
        const repeated = new Set();
        for (const [name, value] of pairs) {
          const key = `${name}`.toLowerCase();
          if (Array.isArray(given) && repeated.has(key)) this.appendHeader(name, value);
          else this.setHeader(name, value);
          repeated.add(key);
        }
      } else {
        headers = pairs;
      }
    }
    if (status === 204 || status === 304 || status < 200) this._hasBody = false;
    if (this._expect_continue && !this._sent100) this.shouldKeepAlive = false;
    this._storeHeader(`HTTP/1.1 ${status} ${this.statusMessage}\r\n`, headers);
    return this;
  },

  writeHeader(...given) {
    return this.writeHead(...given);
  },
});

/** What both kinds of servers have: the protocol on each connection. */
export function setUp(server, options = {}, listener) {
  server._http = {
    Request: options.IncomingMessage ?? IncomingMessage,
    Response: options.ServerResponse ?? ServerResponse,
    longestHead: options.maxHeaderSize,
    requireHost: options.requireHostHeader !== false,
    join: !!options.joinDuplicateHeaders,
    highWaterMark: options.highWaterMark,
    rejectBodies: !!options.rejectNonStandardBodyWrites,
  };
  for (const name of [
    'maxHeaderSize',
    'headersTimeout',
    'requestTimeout',
    'keepAliveTimeout',
    'connectionsCheckingInterval',
  ])
    if (options[name] !== undefined && (!Number.isInteger(options[name]) || options[name] < 0))
      throw outOfRange(name, '>= 0', options[name]);
  server.requestTimeout = options.requestTimeout ?? 300_000;
  server.headersTimeout = options.headersTimeout ?? Math.min(60_000, server.requestTimeout || 60_000);
  server.keepAliveTimeout = options.keepAliveTimeout ?? 5000;
  server.keepAliveTimeoutBuffer = options.keepAliveTimeoutBuffer ?? 1000;
  server.maxRequestsPerSocket = 0;
  server.maxHeadersCount = null;
  server.timeout = 0;
  server.httpAllowHalfOpen = false;
  Object.defineProperty(server, '_httpConnections', { value: new Set() });
  if (listener) server.on('request', listener);
}

export const methods = {
  setTimeout(milliseconds, callback) {
    this.timeout = milliseconds;
    if (callback) this.on('timeout', callback);
    return this;
  },

  closeAllConnections() {
    for (const { socket } of [...this._httpConnections]) socket.destroy();
  },

  closeIdleConnections() {
    for (const connection of [...this._httpConnections]) if (connection.idle()) connection.socket.destroy();
  },
};

export function connectionListener(socket) {
  serve(this, socket);
}

/** Requests that wait for the response before them take no more bytes. */
const MOST_UNREAD = 64 << 10;

function serve(server, socket) {
  const { Request, Response, longestHead, requireHost, join, highWaterMark, rejectBodies } = server._http;
  const from = parser('requests', longestHead);
  let request = null;
  let response = null;
  let served = 0;
  let detached = false;
  let asked = false;
  let left = false;
  /** The next request waits for the response. The connection is read meanwhile: so it is heard that the client leaves. */
  let waiting = false;
  let unread = 0;
  let deadline;
  let idleTimer;

  const timed = (milliseconds) => {
    clearTimeout(deadline);
    if (milliseconds > 0) {
      deadline = setTimeout(() => {
        if (response) return;
        failed(coded(Error, 'ERR_HTTP_REQUEST_TIMEOUT', 'Request timeout'));
      }, milliseconds);
      deadline.unref();
    }
  };
  const connection = { socket, idle: () => !request && !response && served > 0 };
  server._httpConnections.add(connection);

  function detach() {
    detached = true;
    clearTimeout(deadline);
    clearTimeout(idleTimer);
    for (const [event, listener] of listeners) socket.removeListener(event, listener);
    server._httpConnections.delete(connection);
  }

  function over() {
    const done = response;
    const asked = request;
    response = null;
    done.detachSocket(socket);
    if (asked && !asked._consumed && !asked.complete) asked._dump();
    nextTick(() => {
      done.destroyed = true;
      if (done._closed) return;
      done._closed = true;
      done.emit('close');
    });
    if (done._last || server._closing) {
      clearTimeout(deadline);
      if (asked?.complete === false) asked._dump();
      socket.destroySoon ? socket.destroySoon() : socket.end();
      return;
    }
    if (asked?.complete) next();
  }

  /** Goes on with the message after this one. */
  function next() {
    request = null;
    if (server.keepAliveTimeout > 0) {
      clearTimeout(idleTimer);
      idleTimer = setTimeout(() => {
        if (!request && !response) socket.destroy();
      }, server.keepAliveTimeout + server.keepAliveTimeoutBuffer);
      idleTimer.unref();
    }
    if (waiting) {
      waiting = false;
      if (unread > MOST_UNREAD) socket.resume();
      unread = 0;
    }
    guarded(read);
  }

  function head(parts) {
    clearTimeout(idleTimer);
    timed(server.requestTimeout);
    const made = message(Request, socket, parts);
    made.joinDuplicateHeaders = join;
    served += 1;
    const { headers } = made;
    const event = made.method === 'CONNECT' ? 'connect' : 'upgrade';
    if (made.method === 'CONNECT' || (upgrades(made) && server.listenerCount('upgrade') > 0)) {
      from.body('upgrade');
      made.upgrade = true;
      made.complete = true;
      const rest = Bytes.from(from.rest());
      detach();
      if (server.listenerCount(event) === 0) {
        socket.destroy();
        return false;
      }
      // A listener may read the connection later, after hooks of a framework: its first `data` listener resumes it.
      socket.readableFlowing = null;
      server.emit(event, made, socket, rest);
      return false;
    }
    from.body(undefined);
    request = made;
    made._flow = () => {
      asked = true;
      if (!detached && unread <= MOST_UNREAD) socket.resume();
    };
    const answer = new Response(made, { highWaterMark, rejectNonStandardBodyWrites: rejectBodies });
    answer._keepAliveTimeout = server.keepAliveTimeout;
    answer._maxRequestsPerSocket = server.maxRequestsPerSocket;
    answer.shouldKeepAlive = lasts(made) && answer.shouldKeepAlive !== false;
    if (made.httpVersionMinor === 0) answer.shouldKeepAlive = lasts(made);
    answer.rejectNonStandardBodyWrites = rejectBodies;
    response = answer;
    if (socket._httpMessage) socket._httpMessage = null;
    answer.assignSocket(socket);
    answer.on('finish', over);
    if (server.maxRequestsPerSocket > 0 && served >= server.maxRequestsPerSocket) {
      answer.maxRequestsOnConnectionReached = true;
      answer._last = true;
      if (served > server.maxRequestsPerSocket) {
        server.emit('dropRequest', made, socket);
        answer.writeHead(503);
        answer.end();
        return true;
      }
    }
    if (requireHost && made.httpVersionMinor === 1 && headers.host === undefined) {
      answer.writeHead(400, ['Connection', 'close']);
      answer.end();
      return true;
    }
    if (headers.expect !== undefined && made.httpVersionMinor === 1) {
      if (/(?:^|\W)100-continue(?:$|\W)/i.test(headers.expect)) {
        answer._expect_continue = true;
        if (server.listenerCount('checkContinue') > 0) server.emit('checkContinue', made, answer);
        else {
          answer.writeContinue();
          server.emit('request', made, answer);
        }
      } else if (server.listenerCount('checkExpectation') > 0) server.emit('checkExpectation', made, answer);
      else {
        answer.writeHead(417);
        answer.end();
      }
    } else {
      server.emit('request', made, answer);
    }
    return true;
  }

  function read() {
    for (;;) {
      if (detached) return;
      // One request after the other: the next waits until this one is answered.
      if (request?.complete || (!request && response)) {
        if (response) {
          waiting = true;
          return;
        }
        request = null;
      }
      const part = from.next();
      if (part === null) return;
      const [kind] = part;
      if (kind === 'head') {
        if (!head(part)) return;
      } else if (kind === 'body') {
        const [, bytes] = part;
        const chunk = Bytes.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
        asked = false;
        // A reader may ask for more while it is given this.
        if (!request._dumped && !request.destroyed && !request.push(chunk) && !asked) socket.pause();
      } else {
        [, request.rawTrailers] = part;
        request.complete = true;
        clearTimeout(deadline);
        request.push(null);
        if (!response) {
          next();
          return;
        }
      }
    }
  }

  function guarded(run) {
    try {
      run();
    } catch (error) {
      if (!error?.code?.startsWith?.('HPE_')) throw error;
      failed(error);
    }
  }

  function failed(error) {
    for (const [event, listener] of listeners) if (event === 'data') socket.removeListener(event, listener);
    if (server.listenerCount('clientError') > 0) {
      server.emit('clientError', error, socket);
      return;
    }
    if (socket.writable && !response?._headerSent) {
      const status =
        error.code === 'HPE_HEADER_OVERFLOW' ? 431 : error.code === 'ERR_HTTP_REQUEST_TIMEOUT' ? 408 : 400;
      socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\n\r\n`);
      socket.destroySoon ? socket.destroySoon() : socket.end();
      return;
    }
    socket.destroy(error);
  }

  /** The client is gone: what it asked for and was not answered yet is aborted. */
  function giveUp() {
    left = true;
    if (!request) return;
    const open = response && request.complete && !request.destroyed && !request.readableEnded;
    if (open) request.destroy(hangUp('aborted'));
    else abortIncoming(request);
  }

  const listeners = [
    [
      'data',
      (bytes) => {
        if (!request && !response) timed(server.headersTimeout);
        guarded(() => {
          from.push(bytes);
          if (!waiting) read();
          else if ((unread += bytes.length) > MOST_UNREAD) socket.pause();
        });
      },
    ],
    [
      'end',
      () => {
        try {
          // What waits is a request of its own.
          if (!waiting) from.finish();
        } catch (error) {
          failed(error);
          return;
        }
        if (server.httpAllowHalfOpen && response) {
          response._last = true;
          return;
        }
        // Who sends no more waits for no answer, unless the server is told otherwise.
        giveUp();
        socket.end();
      },
    ],
    [
      'close',
      () => {
        clearTimeout(deadline);
        clearTimeout(idleTimer);
        server._httpConnections.delete(connection);
        giveUp();
      },
    ],
    [
      'error',
      (error) => {
        // A client that has left is no error of its own.
        if (!left && server.listenerCount('clientError') > 0) server.emit('clientError', error, socket);
        socket.destroy();
      },
    ],
    ['drain', () => response?._drained()],
    [
      'timeout',
      () => {
        const heard = [
          request?.emit('timeout', socket),
          response?.emit('timeout', socket),
          server.emit('timeout', socket),
        ];
        if (!heard.some(Boolean)) socket.destroy();
      },
    ],
  ];
  for (const [event, listener] of listeners) socket.on(event, listener);
  if (server.timeout > 0) socket.setTimeout(server.timeout);
  timed(server.headersTimeout);
}

export class Server extends NetServer {
  constructor(options, listener) {
    if (typeof options === 'function') [options, listener] = [{}, options];
    super({ ...options, allowHalfOpen: true });
    setUp(this, options ?? {}, listener);
    this.on('connection', connectionListener);
  }

  close(callback) {
    this._closing = true;
    super.close(callback);
    this.closeIdleConnections();
    return this;
  }
}
Object.assign(Server.prototype, methods);

export { STATUS_CODES, isToken };
