// Streams that flow both ways.

import { Stream, fail, streamError } from 'internal/stream/base';
import { Readable, initReadable } from 'internal/stream/readable';
import { giveWritable, initWritable } from 'internal/stream/writable';

export function Duplex(options) {
  if (!(this instanceof Duplex)) return new Duplex(options);
  Stream.call(this, options);
  this.allowHalfOpen = options?.allowHalfOpen !== false;
  initReadable(this, options);
  initWritable(this, options);
  if (options?.readable === false) {
    this._readableState.ended = this._readableState.endEmitted = true;
    this.readable = false;
  }
  if (options?.writable === false) {
    this._writableState.ending = this._writableState.finished = true;
    this.writable = false;
  }
}
Object.setPrototypeOf(Duplex.prototype, Readable.prototype);
Object.setPrototypeOf(Duplex, Readable);
giveWritable(Duplex.prototype);

Duplex.from = function from(source) {
  if (source instanceof Duplex) return source;
  if (typeof source?.readable === 'object' || typeof source?.writable === 'object') {
    const { readable, writable } = source;
    const duplex = new Duplex({
      objectMode: true,
      readable: !!readable,
      writable: !!writable,
      read() {
        readable.resume();
      },
      write(chunk, encoding, callback) {
        writable.write(chunk, encoding, callback);
      },
      final(callback) {
        writable.end(callback);
      },
    });
    readable?.on('data', (chunk) => {
      if (!duplex.push(chunk)) readable.pause();
    });
    readable?.on('end', () => duplex.push(null));
    for (const part of [readable, writable]) part?.on('error', (error) => duplex.destroy(error));
    return duplex;
  }
  return Readable.from(source);
};

export function Transform(options) {
  if (!(this instanceof Transform)) return new Transform(options);
  Duplex.call(this, options);
  Object.defineProperty(this, '_pending', { value: null, writable: true });
}
Object.setPrototypeOf(Transform.prototype, Duplex.prototype);
Object.setPrototypeOf(Transform, Duplex);

Object.assign(Transform.prototype, {
  _transform() {
    throw streamError('ERR_METHOD_NOT_IMPLEMENTED', 'The _transform() method is not implemented');
  },

  _write(chunk, encoding, callback) {
    const before = this._readableState.length;
    const done = (error, value) => {
      if (error) {
        callback(error);
        return;
      }
      if (value !== undefined && value !== null) this.push(value);
      const state = this._readableState;
      if (state.ended || before === state.length || state.length < state.highWaterMark) callback();
      else this._pending = callback;
    };
    const answer = this._transform(chunk, encoding, done);
    if (typeof answer?.then === 'function') answer.then(undefined, done);
  },

  _read() {
    const pending = this._pending;
    if (pending) {
      this._pending = null;
      pending();
    }
  },

  _final(callback) {
    const done = (error, value) => {
      if (error) {
        callback ? callback(error) : fail(this, error);
        return;
      }
      if (value !== undefined && value !== null) this.push(value);
      this.push(null);
      callback?.();
    };
    if (typeof this._flush !== 'function' || this.destroyed) {
      done();
      return;
    }
    const answer = this._flush(done);
    if (typeof answer?.then === 'function') answer.then(undefined, done);
  },
});

export function PassThrough(options) {
  if (!(this instanceof PassThrough)) return new PassThrough(options);
  Transform.call(this, options);
}
Object.setPrototypeOf(PassThrough.prototype, Transform.prototype);
Object.setPrototypeOf(PassThrough, Transform);

PassThrough.prototype._transform = function transform(chunk, encoding, callback) {
  callback(null, chunk);
};
