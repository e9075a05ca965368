// A message that goes out: a client's request, or a server's response.

import { Bytes } from 'internal/buffer';
import { Stream } from 'node:stream';
import { coded, wrongType } from 'internal/errors';
import {
  date,
  headerPairs,
  hangUp,
  isToken,
  validateHeaderName,
  validateHeaderValue,
} from 'internal/http1/common';
import { nextTick } from 'internal/ticks';

const kHeaders = Symbol('headers');
const kErrored = Symbol('errored');
const kNeedDrain = Symbol('need drain');
const kState = Symbol('state');
const kDestroyed = Symbol('destroyed');
const HIGH_WATER_MARK = 65536;
/** A body up to this size goes out together with the head before it. */
const JOINED = 64 << 10;

export function OutgoingMessage(options) {
  Stream.call(this);
  this.outputData = [];
  this.outputSize = 0;
  this.writable = true;
  this.chunkedEncoding = false;
  this.shouldKeepAlive = true;
  this.maxRequestsOnConnectionReached = false;
  this._defaultKeepAlive = true;
  this.useChunkedEncodingByDefault = true;
  this.sendDate = false;
  this._removedConnection = false;
  this._removedContLen = false;
  this._removedTE = false;
  this.strictContentLength = false;
  this._contentLength = null;
  this._hasBody = true;
  this._trailer = '';
  this.finished = false;
  this._headerSent = false;
  this._closed = false;
  this.socket = null;
  this._header = null;
  this._keepAliveTimeout = 0;
  this._last = false;
  this[kDestroyed] = false;
  this[kHeaders] = null;
  this[kErrored] = null;
  this[kNeedDrain] = false;
  this._written = 0;
  this._flushed = false;
  this._corked = 0;
  this._highWaterMark = options?.highWaterMark ?? HIGH_WATER_MARK;
}
Object.setPrototypeOf(OutgoingMessage.prototype, Stream.prototype);
Object.setPrototypeOf(OutgoingMessage, Stream);

const { prototype } = OutgoingMessage;

function getter(name, get, set) {
  Object.defineProperty(prototype, name, { configurable: true, enumerable: false, get, set });
}
getter(
  'destroyed',
  function destroyed() {
    return this[kDestroyed];
  },
  function setDestroyed(value) {
    this[kDestroyed] = value;
  },
);
getter('closed', function closed() {
  return this._closed;
});
getter('errored', function errored() {
  return this[kErrored];
});
getter('headersSent', function headersSent() {
  return !!this._header;
});
getter('writableEnded', function writableEnded() {
  return this.finished;
});
getter('writableFinished', function writableFinished() {
  return this.finished && this._flushed;
});
getter('writableObjectMode', () => false);
getter('writableLength', function writableLength() {
  return this.outputSize + (this.socket?._httpMessage === this ? (this.socket.writableLength ?? 0) : 0);
});
getter('writableHighWaterMark', function writableHighWaterMark() {
  return this.socket?.writableHighWaterMark ?? this._highWaterMark;
});
getter('writableCorked', function writableCorked() {
  return this._corked;
});
getter('writableNeedDrain', function writableNeedDrain() {
  return !this.destroyed && !this.finished && this[kNeedDrain];
});
getter(
  'connection',
  function connection() {
    return this.socket;
  },
  function setConnection(socket) {
    this.socket = socket;
  },
);
getter('_headers', function headers() {
  return this.getHeaders();
});
getter('_headerNames', function headerNames() {
  return Object.fromEntries([...(this[kHeaders] ?? [])].map(([key, [name]]) => [key, name]));
});
// What `finished` and packages like it look at.
getter('_writableState', function writableState() {
  if (!this[kState]) {
    const message = this;
    this[kState] = {
      objectMode: false,
      get finished() {
        return message.writableFinished;
      },
      get ending() {
        return message.finished;
      },
      get ended() {
        return message.finished;
      },
      get length() {
        return message.writableLength;
      },
      get needDrain() {
        return message[kNeedDrain];
      },
      get highWaterMark() {
        return message.writableHighWaterMark;
      },
      get destroyed() {
        return message.destroyed;
      },
      get errored() {
        return message[kErrored];
      },
      get errorEmitted() {
        return !!message[kErrored];
      },
      get closed() {
        return message._closed;
      },
      corked: 0,
    };
  }
  return this[kState];
});

function sentAlready(what) {
  return coded(Error, 'ERR_HTTP_HEADERS_SENT', `Cannot ${what} headers after they are sent to the client`);
}

Object.assign(prototype, {
  setTimeout(milliseconds, callback) {
    if (callback) this.on('timeout', callback);
    if (this.socket) this.socket.setTimeout(milliseconds);
    else this.once('socket', (socket) => socket.setTimeout(milliseconds));
    return this;
  },

  setHeader(name, value) {
    if (this._header) throw sentAlready('set');
    validateHeaderName(name);
    validateHeaderValue(name, value);
    this[kHeaders] ??= new Map();
    this[kHeaders].set(name.toLowerCase(), [name, value]);
    return this;
  },

  setHeaders(headers) {
    if (this._header) throw sentAlready('set');
    if (
      !headers ||
      Array.isArray(headers) ||
      typeof headers.keys !== 'function' ||
      typeof headers.get !== 'function'
    )
      throw wrongType('headers', 'an instance of Headers or Map', headers);
    const cookies = headers.getSetCookie?.() ?? [];
    for (const [name, value] of headers)
      if (name !== 'set-cookie' || !cookies.length) this.setHeader(name, value);
    if (cookies.length > 0) this.setHeader('set-cookie', cookies);
    return this;
  },

  appendHeader(name, value) {
    if (this._header) throw sentAlready('append');
    validateHeaderName(name);
    validateHeaderValue(name, value);
    const key = name.toLowerCase();
    const known = this[kHeaders]?.get(key);
    if (!known) return this.setHeader(name, value);
    known[1] = [known[1], value].flat();
    return this;
  },

  getHeader(name) {
    if (typeof name !== 'string') throw wrongType('name', 'of type string', name);
    return this[kHeaders]?.get(name.toLowerCase())?.[1];
  },

  getHeaderNames() {
    return [...(this[kHeaders]?.keys() ?? [])];
  },

  getRawHeaderNames() {
    return [...(this[kHeaders]?.values() ?? [])].map(([name]) => name);
  },

  getHeaders() {
    const headers = Object.create(null);
    for (const [key, [, value]] of this[kHeaders] ?? []) headers[key] = value;
    return headers;
  },

  hasHeader(name) {
    if (typeof name !== 'string') throw wrongType('name', 'of type string', name);
    return this[kHeaders]?.has(name.toLowerCase()) ?? false;
  },

  removeHeader(name) {
    if (typeof name !== 'string') throw wrongType('name', 'of type string', name);
    if (this._header) throw sentAlready('remove');
    const key = name.toLowerCase();
    if (key === 'connection') this._removedConnection = true;
    else if (key === 'content-length') this._removedContLen = true;
    else if (key === 'transfer-encoding') this._removedTE = true;
    else if (key === 'date') this.sendDate = false;
    this[kHeaders]?.delete(key);
  },

  _implicitHeader() {
    throw coded(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'The _implicitHeader() method is not implemented');
  },

  _renderHeaders() {
    if (this._header) throw sentAlready('render');
    return Object.fromEntries([...(this[kHeaders] ?? [])].map(([, [name, value]]) => [name, value]));
  },

  /** Writes the head as text. `headers` replace those that were set. */
  _storeHeader(firstLine, headers) {
    const seen = {
      connection: false,
      length: false,
      coding: false,
      date: false,
      expect: false,
      trailer: false,
    };
    let text = firstLine;
    const add = (name, value) => {
      validateHeaderName(name);
      validateHeaderValue(name, value);
      text += `${name}: ${value}\r\n`;
      const key = name.toLowerCase();
      const words = `${value}`;
      if (key === 'connection') {
        seen.connection = true;
        if (/(?:^|[\s,])close(?:$|[\s,])/i.test(words)) this._last = true;
        else if (/keep-alive/i.test(words)) this.shouldKeepAlive = true;
      } else if (key === 'transfer-encoding') {
        seen.coding = true;
        if (/chunked/i.test(words)) this.chunkedEncoding = true;
      } else if (key === 'content-length') {
        seen.length = true;
        this._contentLength = Number(value);
      } else if (key in seen) {
        seen[key] = true;
      } else if (key === 'keep-alive') {
        this._defaultKeepAlive = false;
      }
    };
    const given = headers ?? [...(this[kHeaders]?.values() ?? [])];
    for (const [name, value] of given) {
      const key = name.toLowerCase();
      if (Array.isArray(value)) {
        if (key === 'cookie') add(name, value.join('; '));
        else for (const each of value) add(name, each);
      } else {
        add(name, value);
      }
    }
    if (this.sendDate && !seen.date) text += `Date: ${date()}\r\n`;
    if (this.chunkedEncoding && (this.statusCode === 204 || this.statusCode === 304)) {
      this.chunkedEncoding = false;
      this.shouldKeepAlive = false;
    }
    if (this._removedConnection) {
      this._last = !this.shouldKeepAlive;
    } else if (!seen.connection) {
      const keeps = this.shouldKeepAlive && (seen.length || this.useChunkedEncodingByDefault || this.agent);
      if (keeps && this.maxRequestsOnConnectionReached) text += 'Connection: close\r\n';
      else if (keeps) {
        text += 'Connection: keep-alive\r\n';
        if (this._keepAliveTimeout && this._defaultKeepAlive) {
          text += `Keep-Alive: timeout=${Math.floor(this._keepAliveTimeout / 1000)}${
            this._maxRequestsPerSocket > 0 ? `, max=${this._maxRequestsPerSocket}` : ''
          }\r\n`;
        }
      } else {
        this._last = true;
        text += 'Connection: close\r\n';
      }
    }
    if (!seen.length && !seen.coding) {
      if (!this._hasBody) this.chunkedEncoding = false;
      else if (!this.useChunkedEncodingByDefault) this._last = true;
      else if (!seen.trailer && !this._removedContLen && typeof this._contentLength === 'number')
        text += `Content-Length: ${this._contentLength}\r\n`;
      else if (!this._removedTE) {
        text += 'Transfer-Encoding: chunked\r\n';
        this.chunkedEncoding = true;
      } else {
        this._last = true;
      }
    }
    this._header = `${text}\r\n`;
    this._headerSent = false;
    if (seen.expect) this._send('');
  },

  _send(data, encoding, callback) {
    let bytes = typeof data === 'string' ? Bytes.from(data, encoding === 'buffer' ? 'utf8' : encoding) : data;
    if (!this._headerSent) {
      this._headerSent = true;
      if (!this._writes()) {
        // Agents replace the head of a request that waits, which is text as in Node.
        const whole = bytes.length === 0;
        const room = this._writeRaw(this._header, whole ? callback : undefined, 'latin1');
        return whole ? room : this._writeRaw(bytes, callback);
      }
      const head = Bytes.from(this._header, 'latin1');
      if (bytes.length === 0) bytes = head;
      else if (bytes.length <= JOINED) bytes = Bytes.concat([head, bytes]);
      else this._writeRaw(head);
    }
    return this._writeRaw(bytes, callback);
  },

  /** Whether the connection is there and this message's turn. */
  _writes() {
    const { socket } = this;
    return socket && (socket.destroyed || (socket._httpMessage === this && socket.writable));
  },

  _writeRaw(bytes, callback, encoding) {
    const { socket } = this;
    if (socket?.destroyed) {
      if (callback) nextTick(callback, hangUp('socket hang up'));
      return false;
    }
    if (socket && socket._httpMessage === this && socket.writable) {
      this._flushOutput(socket);
      if (bytes.length === 0) {
        // Nothing to send, but what is before it may still be on its way.
        if (callback) socket.write('', callback);
        return true;
      }
      return socket.write(bytes, callback);
    }
    this.outputData.push({ data: bytes, encoding, callback });
    this.outputSize += bytes.length;
    return this.outputSize < HIGH_WATER_MARK;
  },

  _flushOutput(socket) {
    const waiting = this.outputData;
    if (waiting.length === 0) return true;
    this.outputData = [];
    this.outputSize = 0;
    let room = true;
    socket.cork();
    for (const { data, encoding, callback } of waiting) room = socket.write(data, encoding, callback);
    socket.uncork();
    return room;
  },

  /** A connection is there. */
  _flush() {
    const { socket } = this;
    if (!socket?.writable) return;
    const room = this._flushOutput(socket);
    if (this.finished) this._finish();
    else if (room && this[kNeedDrain]) {
      this[kNeedDrain] = false;
      this.emit('drain');
    }
  },

  _drained() {
    if (this[kNeedDrain] && !this.finished) {
      this[kNeedDrain] = false;
      this.emit('drain');
    }
  },

  write(chunk, encoding, callback) {
    if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
    const room = this._writeBody(chunk, encoding, callback);
    if (!room) this[kNeedDrain] = true;
    return room;
  },

  _writeBody(chunk, encoding, callback) {
    if (chunk === null)
      throw coded(TypeError, 'ERR_STREAM_NULL_VALUES', 'May not write null values to stream');
    if (typeof chunk !== 'string' && !ArrayBuffer.isView(chunk))
      throw wrongType('chunk', 'of type string or an instance of Buffer or Uint8Array', chunk);
    let error;
    if (this.finished) error = coded(Error, 'ERR_STREAM_WRITE_AFTER_END', 'write after end');
    else if (this.destroyed)
      error = coded(Error, 'ERR_STREAM_DESTROYED', 'Cannot call write after a stream was destroyed');
    if (error) {
      if (!this.destroyed) this._failed(error, callback);
      else if (callback) nextTick(callback, error);
      return false;
    }
    let bytes = typeof chunk === 'string' ? Bytes.from(chunk, encoding) : chunk;
    if (!Bytes.isBuffer(bytes)) bytes = Bytes.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (!this._header) this._implicitHeader();
    if (!this._hasBody) {
      if (this.rejectNonStandardBodyWrites)
        throw coded(
          Error,
          'ERR_HTTP_BODY_NOT_ALLOWED',
          'Adding content for this request method or response status is not allowed.',
        );
      if (callback) nextTick(callback);
      return true;
    }
    this._written += bytes.length;
    if (this.strictContentLength && !this.chunkedEncoding && this._written > this._contentLength)
      throw coded(
        Error,
        'ERR_HTTP_CONTENT_LENGTH_MISMATCH',
        `Response body's content-length of ${this._written} byte(s) does not match the content-length of ${this._contentLength} byte(s) set in header`,
      );
    if (bytes.length === 0 && this._headerSent) {
      if (callback) nextTick(callback);
      return true;
    }
    if (this.chunkedEncoding && bytes.length > 0) {
      const size = Bytes.from(`${bytes.length.toString(16)}\r\n`, 'latin1');
      bytes = Bytes.concat([size, bytes, Bytes.from('\r\n')]);
    }
    return this._send(bytes, undefined, callback);
  },

  _failed(error, callback) {
    nextTick(() => {
      callback?.(error);
      this.emit('error', error);
    });
  },

  addTrailers(headers) {
    this._trailer = '';
    for (const [name, value] of headerPairs(headers)) {
      validateHeaderName(name, 'Trailer name');
      validateHeaderValue(name, value);
      for (const each of [value].flat()) this._trailer += `${name}: ${each}\r\n`;
    }
  },

  end(chunk, encoding, callback) {
    if (typeof chunk === 'function') [chunk, encoding, callback] = [undefined, undefined, chunk];
    else if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
    const given = chunk !== undefined && chunk !== null;
    if (this.finished) {
      if (given) {
        this._failed(coded(Error, 'ERR_STREAM_WRITE_AFTER_END', 'write after end'), callback);
      } else if (callback) {
        if (!this.writableFinished) this.on('finish', callback);
        else
          nextTick(
            callback,
            coded(Error, 'ERR_STREAM_ALREADY_FINISHED', 'Cannot call end after a stream was finished'),
          );
      }
      return this;
    }
    if (given) {
      if (typeof chunk !== 'string' && !ArrayBuffer.isView(chunk))
        throw wrongType('chunk', 'of type string or an instance of Buffer or Uint8Array', chunk);
      if (!this._header) {
        this._contentLength =
          typeof chunk === 'string' ? Bytes.byteLength(chunk, encoding) : chunk.byteLength;
      }
      this._writeBody(chunk, encoding);
    } else if (!this._header) {
      this._contentLength = 0;
      this._implicitHeader();
    }
    if (callback) this.once('finish', callback);
    if (
      this.strictContentLength &&
      !this.chunkedEncoding &&
      this._hasBody &&
      this._contentLength !== null &&
      this._written !== this._contentLength
    )
      throw coded(
        Error,
        'ERR_HTTP_CONTENT_LENGTH_MISMATCH',
        `Response body's content-length of ${this._written} byte(s) does not match the content-length of ${this._contentLength} byte(s) set in header`,
      );
    const finish = (error) => {
      if (error || this._flushed) return;
      this._flushed = true;
      this.emit('finish');
    };
    this._corked = 0;
    if (this._hasBody && this.chunkedEncoding) this._send(`0\r\n${this._trailer}\r\n`, 'latin1', finish);
    else this._send('', 'latin1', finish);
    this.finished = true;
    if (this.outputData.length === 0 && this.socket?._httpMessage === this) this._finish();
    return this;
  },

  _finish() {
    this.emit('prefinish');
  },

  flushHeaders() {
    if (!this._header) this._implicitHeader();
    this._send('');
  },

  cork() {
    this._corked += 1;
    this.socket?.cork();
  },

  uncork() {
    if (this._corked > 0) this._corked -= 1;
    this.socket?.uncork();
  },

  destroy(error) {
    if (this[kDestroyed]) return this;
    this[kDestroyed] = true;
    this[kErrored] = error ?? null;
    if (this.socket) this.socket.destroy(error);
    else this.once('socket', (socket) => socket.destroy(error));
    return this;
  },

  pipe() {
    this.emit('error', coded(Error, 'ERR_STREAM_CANNOT_PIPE', 'Cannot pipe, not readable'));
  },

  [Symbol.for('nodejs.rejection')](error) {
    this.destroy(error);
  },
});

/** The headers that were set, for messages that write their head themselves. */
export const headersOf = (message) => message[kHeaders];

export { isToken, kErrored };
