// A stream of a session of HTTP/2: a request with its response. Here is what both ends have, and the client's end.

import { Duplex } from 'node:stream';
import { checkFunction, checkObject, outOfRange, wrongType } from 'internal/errors';
import { nextTick } from 'internal/ticks';
import { clearTimeout, setImmediate, setTimeout } from 'internal/timers';
import {
  CANCEL,
  CODES,
  END_HEADERS,
  END_OF_STREAM,
  INTERNAL_ERROR,
  NO_ERROR,
  bytesOf,
  objectOf,
  refusal,
  rowsOf,
} from 'internal/http2/common';

export class Http2Stream extends Duplex {
  #session;
  #native = null;
  #id;
  #closed = false;
  #aborted = false;
  #rstCode = NO_ERROR;
  /** The last of the request went with its headers. */
  #whole;
  #wanted = false;
  /** The program has read of it. */
  #read = false;
  /** More of the response is on its way from the native side. */
  #busy = false;
  /** The code with which the stream is closed once what came before was read. */
  #lost = undefined;
  #answered = false;
  #finished = false;
  #endAfterHeaders = false;
  /** The server sends nothing more: `headers` or `data` said so. */
  #remoteEnd = null;
  /** Nothing more is sent. */
  #localEnd = false;
  /** `no`, or where trailers are: `later`, `now`, `given`, `sent`. */
  #trailers;
  #timeout = 0;
  #timer = null;
  sentHeaders;
  sentTrailers = undefined;
  sentInfoHeaders = undefined;

  constructor(session, headers, options) {
    super({ allowHalfOpen: true, autoDestroy: false });
    this.#session = session;
    this.sentHeaders = headers;
    this.#whole = options.endStream;
    this.#trailers = options.waitForTrailers && !options.endStream ? 'later' : 'no';
    this.on('end', () => this.#settle());
    this.on('finish', () => this.#settle());
    this.cork();
  }

  /** A server's end: what comes can be read, what goes out waits for the response. */
  _accept(native) {
    this.#native = native;
    this.#id = native.id;
    this.#answered = true;
    this.#endAfterHeaders = native.ended;
    this.uncork();
  }

  /** A server's response has begun; `endStream`: nothing follows its headers. */
  _responded(headers, { endStream, waitForTrailers }) {
    this.sentHeaders = headers;
    this.#whole = endStream;
    this.#localEnd = endStream;
    if (waitForTrailers && !endStream) this.#trailers = 'later';
    if (endStream) this.end();
  }

  /** What a server does where a program writes before it responds. */
  _proceed() {}

  get _native() {
    return this.#native;
  }

  /** The session sends the request now. */
  _begin(native) {
    this.#native = native;
    this.#id = native.id;
    this.#busy = true;
    this.uncork();
    this.emit('ready');
    void this.#listen();
  }

  get pending() {
    return this.#id === undefined;
  }
  get id() {
    return this.#id;
  }
  get session() {
    return this.#session;
  }
  get headersSent() {
    return true;
  }
  get headRequest() {
    return false;
  }
  get closed() {
    return this.#closed;
  }
  get aborted() {
    return this.#aborted;
  }
  get rstCode() {
    return this.#rstCode;
  }
  get endAfterHeaders() {
    return this.#endAfterHeaders;
  }
  get bufferSize() {
    return this.writableLength;
  }
  get pushAllowed() {
    return false;
  }

  get state() {
    if (this.destroyed || this.pending) return {};
    const [local, remote] = [this.writableFinished, this.readableEnded];
    const state = local && remote ? 7 : local ? 5 : remote ? 6 : 2;
    return { state, weight: 16, sumDependencyWeight: 0, localClose: +local, remoteClose: +remote };
  }

  async #listen() {
    try {
      for (;;) {
        const [last, flat, ended] = await this.#native.head();
        if (this.destroyed) return;
        this._touch();
        const headers = objectOf(flat);
        if (last) {
          this.#answered = true;
          this.#endAfterHeaders = ended && this.#remoteEnd === 'headers';
          nextTick(() => {
            this.emit(
              'response',
              headers,
              this.#endAfterHeaders ? END_HEADERS | END_OF_STREAM : END_HEADERS,
              flat,
            );
            this.#idle();
            if (!this.#busy && !this.destroyed) this.read(0);
          });
          return;
        }
        nextTick(() => {
          if (headers[':status'] === 100) this.emit('continue');
          this.emit('headers', headers, END_HEADERS, flat);
        });
      }
    } catch (error) {
      this.#broke(error);
    }
  }

  _read() {
    if (this.destroyed) {
      this.push(null);
      return;
    }
    this.#read = true;
    this.#wanted = true;
    if (!this.#busy && this.#answered) void this.#pull();
  }

  async #pull() {
    this.#busy = true;
    this.#wanted = false;
    let bytes;
    let trailers;
    try {
      do bytes = await this.#native.read();
      while (bytes !== null && bytes.length === 0);
      if (bytes === null && !this.destroyed) trailers = await this.#native.trailers();
    } catch (error) {
      this.#broke(error);
      return;
    }
    if (this.destroyed) return;
    this._touch();
    nextTick(() => {
      if (this.destroyed || this.#finished) return;
      if (bytes !== null) this.push(bytesOf(bytes));
      else {
        if (trailers) this.emit('trailers', objectOf(trailers), END_HEADERS | END_OF_STREAM, trailers);
        this.#finish();
      }
      this.#idle();
    });
  }

  /** What came was handed on. */
  #idle() {
    this.#busy = false;
    if (this.#wanted && !this.destroyed && !this.#finished) void this.#pull();
    if (this.#lost !== undefined) setImmediate(() => this._lose(this.#lost));
  }

  /** The stream is closed with this code, after what came before and is wanted. */
  _lose(code) {
    this.#lost = code;
    if (!this.#busy) this._reset(code);
  }

  /** What the native side threw: without a reason the session failed, and says so itself. */
  #broke(error) {
    this.#busy = false;
    const code = error.reason ?? this.#lost;
    if (code !== undefined) this._reset(code);
  }

  /** The server sends nothing more. */
  _ended(byHeaders) {
    this.#remoteEnd = byHeaders ? 'headers' : 'data';
  }

  /** The server has closed the stream; one that was over is not closed again. */
  _reset(code) {
    if (this.destroyed || (this.#remoteEnd && (this.#localEnd || this.#whole))) return;
    if (!this.#closed) this.#shut(code, false);
    this.#over(code);
  }

  #over(code) {
    if (this.destroyed) return;
    const unread = this.readable;
    if (code === NO_ERROR || code === CANCEL) this.#finish();
    if (code !== NO_ERROR || !unread) this.destroy();
  }

  /** Nothing more is read. */
  #finish() {
    if (this.#finished) return;
    this.#finished = true;
    this.push(null);
    this.read(0);
  }

  /** Both sides are done. */
  #settle() {
    if (this.destroyed || !this.writableFinished) return;
    if (this.#trailers === 'now' || this.#trailers === 'given') return;
    if (!this.readableEnded) {
      // A server that has responded does not wait for what its program does not read.
      if (this.session?.type === 0 && !this.#read && this.readableFlowing === null)
        setImmediate(() => this.close());
      return;
    }
    this.#closed = true;
    setImmediate(() => this.destroy());
  }

  #shut(code, tell, force = false) {
    this.#closed = true;
    this.#rstCode = code;
    this.setTimeout(0);
    this.removeAllListeners('timeout');
    const ending = this.writableEnded;
    if (!ending) {
      if (!this.#aborted) {
        this.#aborted = true;
        this.emit('aborted');
      }
      this.end();
    }
    if (!tell) return;
    const send = () => {
      if (this.#native === null) this.push(null);
      else if (force) this.#native.reset(code);
      // What was written before is to go out first.
      else
        setImmediate(() => {
          this.#native?.reset(code);
          this.#over(code);
        });
    };
    if (!ending || this.writableFinished || code !== NO_ERROR || force) send();
    else this.once('finish', send);
  }

  close(code = NO_ERROR, callback = undefined) {
    if (typeof code !== 'number') throw wrongType('code', 'of type number', code);
    if (!Number.isInteger(code) || code < 0 || code > 0xffffffff)
      throw outOfRange('code', '>= 0 && <= 4294967295', code);
    if (callback !== undefined) checkFunction(callback, 'callback');
    if (this.#closed) return;
    if (callback !== undefined) this.once('close', callback);
    this.#shut(code, true);
    if (this.#native === null) nextTick(() => this.destroy());
  }

  _write(chunk, encoding, callback) {
    if (this.#native === null) {
      if (this.#closed) callback();
      else this.once('ready', () => this._write(chunk, encoding, callback));
      return;
    }
    if (this.#closed) {
      callback();
      return;
    }
    if (!this.headersSent) this._proceed();
    this._touch();
    this.#native.write(chunk, false).then(
      () => callback(),
      (error) => {
        this.#broke(error);
        callback();
      },
    );
  }

  _final(callback) {
    if (this.#closed || this.#whole) {
      callback();
      return;
    }
    if (this.#native === null) {
      this.once('ready', () => this._final(callback));
      return;
    }
    if (!this.headersSent) {
      this._proceed();
      if (this.#whole) {
        callback();
        return;
      }
    }
    if (this.#trailers === 'later') {
      this.#trailers = 'now';
      callback();
      if (this.emit('wantTrailers')) return;
      this.#trailers = 'no';
      this.#localEnd = true;
      this.#native.write(new Uint8Array(), true).catch((error) => this.#broke(error));
      return;
    }
    this.#localEnd = true;
    this.#native.write(new Uint8Array(), true).then(
      () => callback(),
      (error) => {
        this.#broke(error);
        callback();
      },
    );
  }

  sendTrailers(headers) {
    if (this.destroyed || this.#closed) throw refusal('INVALID_STREAM');
    if (this.sentTrailers) throw refusal('TRAILERS_ALREADY_SENT');
    if (this.#trailers !== 'now') throw refusal('TRAILERS_NOT_READY');
    checkObject(headers, 'headers');
    const given = Object.assign(Object.create(null), headers);
    const { rows } = rowsOf(given, false);
    this.sentTrailers = given;
    this.#trailers = 'given';
    this._touch();
    setImmediate(() => {
      if (this.destroyed) return;
      this.#trailers = 'sent';
      this.#localEnd = true;
      try {
        if (rows.length > 0) this.#native.sendTrailers(rows);
        else this.#native.write(new Uint8Array(), true).catch((error) => this.#broke(error));
      } catch (error) {
        if (error.reason === undefined) this.destroy(error);
        else this.#broke(error);
        return;
      }
      this.#settle();
    });
  }

  _destroy(error, callback) {
    const session = this.#session;
    const sessionCode = session._code();
    let code = this.#closed ? this.#rstCode : sessionCode;
    if (error) code = sessionCode || (error.name === 'AbortError' ? CANCEL : INTERNAL_ERROR);
    if (!this.#closed) this.#shut(code, this.#native !== null && !session.destroyed, true);
    clearTimeout(this.#timer);
    this.push(null);
    session._closed(this);
    if (!error && code !== NO_ERROR && code !== CANCEL)
      error = refusal('STREAM_ERROR', CODES[code] ? `NGHTTP2_${CODES[code]}` : code);
    this.#session = undefined;
    this.#native = null;
    callback(error);
  }

  setTimeout(milliseconds, callback) {
    this.#timeout = milliseconds;
    if (callback && milliseconds === 0) this.removeListener('timeout', callback);
    else if (callback) this.once('timeout', callback);
    clearTimeout(this.#timer);
    this._touch();
    return this;
  }

  _touch() {
    this.#session?._touch();
    if (this.#timeout === 0 || this.destroyed) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.emit('timeout'), this.#timeout).unref();
  }

  priority(options) {
    if (this.destroyed) throw refusal('INVALID_STREAM');
    checkObject(options, 'options');
  }
}

export class ClientHttp2Stream extends Http2Stream {}
