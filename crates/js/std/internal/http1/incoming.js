// A message that comes in: a server's request, or a client's response.

import { Readable } from 'node:stream';
import { hangUp } from 'internal/http1/common';
import { nextTick } from 'internal/ticks';

const kHeaders = Symbol('headers');
const kDistinct = Symbol('distinct headers');
const kTrailers = Symbol('trailers');
const kDistinctTrailers = Symbol('distinct trailers');

/** Of these the first value counts; the others are joined. */
const SINGLE = new Set(
  (
    'age authorization content-length content-type etag expires from host if-modified-since if-unmodified-since ' +
    'last-modified location max-forwards proxy-authorization referer retry-after server user-agent'
  ).split(' '),
);

function joined(pairs, joinAll) {
  const headers = {};
  for (let at = 0; at < pairs.length; at += 2)
    addLine(headers, pairs[at].toLowerCase(), pairs[at + 1], joinAll);
  return headers;
}

function addLine(headers, name, value, joinAll) {
  const before = Object.hasOwn(headers, name) ? headers[name] : undefined;
  let now = value;
  if (name === 'set-cookie') now = before === undefined ? [value] : [...before, value];
  else if (before !== undefined) {
    if (SINGLE.has(name) && !joinAll) return;
    now = `${before}${name === 'cookie' ? '; ' : ', '}${value}`;
  }
  if (name === '__proto__')
    Object.defineProperty(headers, name, {
      value: now,
      configurable: true,
      enumerable: true,
      writable: true,
    });
  else headers[name] = now;
}

function distinct(pairs) {
  const headers = {};
  for (let at = 0; at < pairs.length; at += 2) {
    const name = pairs[at].toLowerCase();
    if (Object.hasOwn(headers, name)) headers[name].push(pairs[at + 1]);
    else headers[name] = [pairs[at + 1]];
  }
  return headers;
}

export function IncomingMessage(socket) {
  Readable.call(this, { highWaterMark: socket?.readableHighWaterMark });
  this.socket = socket;
  this.httpVersionMajor = null;
  this.httpVersionMinor = null;
  this.httpVersion = null;
  this.complete = false;
  this.rawHeaders = [];
  this.rawTrailers = [];
  this.joinDuplicateHeaders = false;
  this.aborted = false;
  this.upgrade = null;
  this.url = '';
  this.method = null;
  this.statusCode = null;
  this.statusMessage = null;
  this.client = socket;
  this._consumed = false;
  this._dumped = false;
}
Object.setPrototypeOf(IncomingMessage.prototype, Readable.prototype);
Object.setPrototypeOf(IncomingMessage, Readable);

function lazy(name, key, make) {
  Object.defineProperty(IncomingMessage.prototype, name, {
    configurable: true,
    enumerable: true,
    get() {
      this[key] ??= make(this);
      return this[key];
    },
    set(value) {
      this[key] = value;
    },
  });
}
lazy('headers', kHeaders, (message) => joined(message.rawHeaders ?? [], message.joinDuplicateHeaders));
lazy('headersDistinct', kDistinct, (message) => distinct(message.rawHeaders ?? []));
lazy('trailers', kTrailers, (message) => joined(message.rawTrailers ?? [], message.joinDuplicateHeaders));
lazy('trailersDistinct', kDistinctTrailers, (message) => distinct(message.rawTrailers ?? []));

Object.defineProperty(IncomingMessage.prototype, 'connection', {
  configurable: true,
  get() {
    return this.socket;
  },
  set(socket) {
    this.socket = socket;
  },
});

IncomingMessage.prototype.setTimeout = function setTimeout(milliseconds, callback) {
  if (callback) this.on('timeout', callback);
  this.socket?.setTimeout(milliseconds);
  return this;
};

IncomingMessage.prototype._read = function read() {
  this._consumed = true;
  if (this.socket?.readable && this._flow !== undefined) this._flow();
};

IncomingMessage.prototype._destroy = function destroy(error, callback) {
  if (!this.readableEnded || !this.complete) {
    this.aborted = true;
    this.emit('aborted');
  }
  const { socket } = this;
  if (socket && !socket.destroyed && this.aborted && typeof socket.destroy === 'function')
    socket.destroy(error);
  // Who listens by then hears of it.
  nextTick(() => callback(error && this.listenerCount('error') > 0 ? error : null));
};

IncomingMessage.prototype._addHeaderLine = function addHeaderLine(name, value, into) {
  addLine(into, name.toLowerCase(), value, this.joinDuplicateHeaders);
};

IncomingMessage.prototype._addHeaderLines = function addHeaderLines(pairs, many) {
  const given = pairs.slice(0, many);
  if (this.complete) {
    this.rawTrailers = given;
    this[kTrailers] = undefined;
  } else {
    this.rawHeaders = given;
    this[kHeaders] = undefined;
  }
};

/** What is left of the body is read and dropped. */
IncomingMessage.prototype._dump = function dump() {
  if (this._dumped) return;
  this._dumped = true;
  this.removeAllListeners('data');
  this.resume();
};

/** The connection ended within the message. */
export function abortIncoming(message) {
  if (message.destroyed || message.readableEnded) return;
  if (message.complete) return;
  message.destroy(hangUp('aborted'));
}
