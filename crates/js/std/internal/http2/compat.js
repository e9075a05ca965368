// Requests and responses of `node:http2`, which programs use like those of `node:http`.

import { Readable, Stream } from 'node:stream';
import { checkFunction, checkString, coded, wrongType } from 'internal/errors';
import { isInvalidValue, isToken } from 'internal/http1/common';
import { nextTick } from 'internal/ticks';
import { refusal } from 'internal/http2/common';

const isPseudo = (name) => name[0] === ':';

export class Http2ServerRequest extends Readable {
  #stream;
  #headers;
  #rawHeaders;
  #trailers = {};
  #rawTrailers = [];
  #aborted = false;
  #closed = false;
  #reads = false;
  #url;
  #method;

  constructor(stream, headers, options, rawHeaders) {
    super({ autoDestroy: false, ...options });
    this.#stream = stream;
    this.#headers = headers;
    this.#rawHeaders = rawHeaders;
    this.#url = headers[':path'];
    this.#method = headers[':method'];
    stream.on('trailers', (trailers, flags, raw) => {
      Object.assign(this.#trailers, trailers);
      this.#rawTrailers.push(...raw);
    });
    stream.on('end', () => this.push(null));
    stream.on('error', (error) => this.listenerCount('error') > 0 && this.emit('error', error));
    stream.on('aborted', () => {
      this.#aborted = true;
      this.emit('aborted');
    });
    stream.on('close', () => {
      this.#closed = true;
      this.push(null);
      this.emit('close');
    });
    stream.on('timeout', () => this.emit('timeout'));
    this.on('pause', () => this.#stream.pause());
    this.on('resume', () => {
      if (!this.#closed) this.#stream.resume();
    });
  }

  get aborted() {
    return this.#aborted;
  }
  get complete() {
    return this.#aborted || this.readableEnded || this.#closed || this.#stream.destroyed;
  }
  get stream() {
    return this.#stream;
  }
  get headers() {
    return this.#headers;
  }
  get rawHeaders() {
    return this.#rawHeaders;
  }
  get trailers() {
    return this.#trailers;
  }
  get rawTrailers() {
    return this.#rawTrailers;
  }
  get httpVersionMajor() {
    return 2;
  }
  get httpVersionMinor() {
    return 0;
  }
  get httpVersion() {
    return '2.0';
  }
  get socket() {
    return this.#stream.session?.socket;
  }
  get connection() {
    return this.socket;
  }
  get method() {
    return this.#method;
  }
  set method(method) {
    checkString(method, 'method');
    if (method.trim() === '')
      throw coded(
        TypeError,
        'ERR_INVALID_ARG_VALUE',
        `The argument 'method' is invalid. Received '${method}'`,
      );
    this.#method = method;
  }
  get authority() {
    return this.#headers[':authority'] ?? this.#headers.host;
  }
  get scheme() {
    return this.#headers[':scheme'];
  }
  get url() {
    return this.#url;
  }
  set url(url) {
    this.#url = url;
  }

  setTimeout(milliseconds, callback) {
    if (!this.#closed) this.#stream.setTimeout(milliseconds, callback);
    return this;
  }

  _read() {
    if (this.#closed) {
      this.push(null);
      return;
    }
    if (this.#reads) {
      nextTick(() => this.#stream.resume());
      return;
    }
    this.#reads = true;
    this.#stream.on('data', (chunk) => {
      if (!this.push(chunk)) this.#stream.pause();
    });
  }
}

export class Http2ServerResponse extends Stream {
  #stream;
  #headers = Object.create(null);
  #names = new Map();
  #trailers = Object.create(null);
  #closed = false;
  #ending = false;
  #status = 200;
  sendDate = true;
  writable = true;
  req;

  constructor(stream, options) {
    super(options);
    this.#stream = stream;
    stream.on('drain', () => this.emit('drain'));
    stream.on('timeout', () => this.emit('timeout'));
    stream.on('aborted', () => {});
    stream.on('wantTrailers', () => stream.sendTrailers(this.#trailers));
    stream.on('close', () => this.#gone());
  }

  #gone() {
    if (this.#closed) return;
    this.#closed = true;
    this.emit('finish');
    this.emit('close');
  }

  get _header() {
    return this.headersSent;
  }
  get writableEnded() {
    return this.#ending;
  }
  get finished() {
    return this.#ending;
  }
  get writableFinished() {
    return this.#stream.writableFinished;
  }
  get writableCorked() {
    return this.#stream.writableCorked;
  }
  get writableHighWaterMark() {
    return this.#stream.writableHighWaterMark;
  }
  get writableLength() {
    return this.#stream.writableLength;
  }
  get writableNeedDrain() {
    return this.#stream.writableNeedDrain;
  }
  get destroyed() {
    return this.#closed || this.#stream.destroyed;
  }
  get socket() {
    return this.#closed ? undefined : this.#stream.session?.socket;
  }
  get connection() {
    return this.socket;
  }
  get stream() {
    return this.#stream;
  }
  get headersSent() {
    return this.#stream.headersSent;
  }
  get statusCode() {
    return this.#status;
  }
  set statusCode(given) {
    const status = given | 0;
    if (status >= 100 && status < 200) throw refusal('INFO_STATUS_NOT_ALLOWED');
    if (status < 100 || status > 599) throw refusal('STATUS_INVALID', status);
    this.#status = status;
  }
  // Messages of a status are of HTTP/1.
  get statusMessage() {
    return '';
  }
  set statusMessage(message) {}

  #checkName(name) {
    checkString(name, 'name');
    if (!isPseudo(name) && !isToken(name))
      throw coded(TypeError, 'ERR_INVALID_HTTP_TOKEN', `Header name must be a valid HTTP token ["${name}"]`);
  }

  #checkOpen() {
    if (this.headersSent) throw refusal('HEADERS_SENT');
  }

  setHeader(given, value) {
    this.#checkName(given);
    const name = given.trim().toLowerCase();
    if (value === undefined || value === null) throw refusal('INVALID_HEADER_VALUE', [name, value]);
    if (isPseudo(name)) throw refusal('PSEUDOHEADER_NOT_ALLOWED');
    if (this.#closed) return this;
    this.#checkOpen();
    for (const each of [value].flat())
      if (isInvalidValue(`${each}`))
        throw coded(TypeError, 'ERR_INVALID_CHAR', `Invalid character in header content ["${name}"]`);
    this.#headers[name] = value;
    this.#names.set(name, given.trim());
    return this;
  }

  appendHeader(name, value) {
    const before = this.getHeader(name);
    return this.setHeader(name, before === undefined ? value : [before, value].flat());
  }

  getHeader(name) {
    checkString(name, 'name');
    return this.#headers[name.trim().toLowerCase()];
  }

  getHeaders() {
    return Object.assign(Object.create(null), this.#headers);
  }

  getHeaderNames() {
    return Object.keys(this.#headers);
  }

  hasHeader(name) {
    checkString(name, 'name');
    return Object.hasOwn(this.#headers, name.trim().toLowerCase());
  }

  removeHeader(given) {
    checkString(given, 'name');
    if (this.#closed) return;
    this.#checkOpen();
    delete this.#headers[given.trim().toLowerCase()];
  }

  setTrailer(given, value) {
    this.#checkName(given);
    if (isPseudo(given)) throw refusal('PSEUDOHEADER_NOT_ALLOWED');
    if (value === undefined || value === null) throw refusal('INVALID_HEADER_VALUE', [given, value]);
    this.#trailers[given.trim().toLowerCase()] = value;
  }

  addTrailers(trailers) {
    for (const [name, value] of Object.entries(trailers)) this.setTrailer(name, value);
  }

  flushHeaders() {
    if (!this.#closed && !this.headersSent) this.writeHead(this.#status);
  }

  writeHead(status, message, headers) {
    if (this.#closed || this.#stream.destroyed) return this;
    this.#checkOpen();
    if (typeof message !== 'string') headers ??= message;
    if (Array.isArray(headers)) {
      const pairs = Array.isArray(headers[0])
        ? headers
        : Array.from({ length: headers.length / 2 }, (_, at) => headers.slice(2 * at, 2 * at + 2));
      for (const [name, value] of pairs) this.appendHeader(name, value);
    } else if (typeof headers === 'object' && headers !== null) {
      for (const [name, value] of Object.entries(headers)) this.setHeader(name, value);
    }
    this.statusCode = status;
    this.#begin();
    return this;
  }

  #begin() {
    // What belongs to a connection of HTTP/1 means nothing here.
    const headers = { ':status': this.#status, ...this.#headers };
    for (const name of ['connection', 'keep-alive', 'transfer-encoding', 'upgrade', 'proxy-connection'])
      delete headers[name];
    this.#stream.respond(headers, {
      endStream: this.#ending,
      waitForTrailers: true,
      sendDate: this.sendDate,
    });
  }

  cork() {
    this.#stream.cork();
  }

  uncork() {
    this.#stream.uncork();
  }

  write(chunk, encoding, callback) {
    if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
    const error = this.#ending
      ? coded(Error, 'ERR_STREAM_WRITE_AFTER_END', 'write after end')
      : this.#closed
        ? refusal('INVALID_STREAM')
        : undefined;
    if (error) {
      if (typeof callback === 'function') nextTick(() => callback(error));
      this.destroy(error);
      return false;
    }
    if (this.#stream.destroyed) return false;
    if (!this.headersSent) this.writeHead(this.#status);
    // A response to HEAD has no body.
    if (this.#stream.writableEnded) {
      if (typeof callback === 'function') nextTick(callback);
      return true;
    }
    return this.#stream.write(chunk, encoding, callback);
  }

  end(chunk, encoding, callback) {
    if (typeof chunk === 'function') [chunk, encoding, callback] = [undefined, undefined, chunk];
    else if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
    const stream = this.#stream;
    if ((this.#closed || this.#ending) && stream.headRequest === this.#ending) {
      if (typeof callback === 'function') nextTick(callback);
      return this;
    }
    if (chunk !== null && chunk !== undefined) this.write(chunk, encoding);
    this.#ending = true;
    if (typeof callback === 'function') {
      if (stream.writableEnded) this.once('finish', callback);
      else stream.once('finish', callback);
    }
    if (!stream.headersSent) this.writeHead(this.#status);
    if (this.#closed || stream.destroyed) this.#gone();
    else if (!stream.writableEnded) stream.end();
    return this;
  }

  destroy(error) {
    if (this.#stream.destroyed) return this;
    this.#stream.destroy(error);
    return this;
  }

  setTimeout(milliseconds, callback) {
    if (!this.#closed) this.#stream.setTimeout(milliseconds, callback);
    return this;
  }

  createPushResponse(headers, callback) {
    checkFunction(callback, 'callback');
    nextTick(() => callback(refusal('PUSH_DISABLED')));
  }

  writeContinue() {
    if (this.#stream.headersSent || this.#closed) return false;
    this.#stream.additionalHeaders({ ':status': 100 });
    return true;
  }

  writeInformation(status, headers) {
    if (this.#stream.headersSent || this.#closed) return false;
    this.#stream.additionalHeaders({ ...headers, ':status': status });
    return true;
  }

  writeEarlyHints(hints) {
    if (hints === null || typeof hints !== 'object') throw wrongType('hints', 'of type object', hints);
    const links = [hints.link ?? []].flat();
    if (links.length === 0 || this.#stream.headersSent || this.#closed) return false;
    this.#stream.additionalHeaders({ ...hints, ':status': 103, link: links.join(', ') });
    return true;
  }
}

/** Makes a request and a response of a stream, and tells the server's program. */
export function onServerStream(server, Request, Response, stream, headers, flags, rawHeaders) {
  const request = new Request(stream, headers, undefined, rawHeaders);
  const response = new Response(stream);
  response.req = request;
  if (headers.expect !== undefined) {
    if (headers.expect === '100-continue') {
      if (server.emit('checkContinue', request, response)) return;
      response.writeContinue();
    } else if (server.emit('checkExpectation', request, response)) {
      return;
    } else {
      response.statusCode = 417;
      response.end();
      return;
    }
  }
  server.emit('request', request, response);
}
