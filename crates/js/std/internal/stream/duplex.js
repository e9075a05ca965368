// Streams that flow both ways.

import { AbortController } from 'internal/event-target';
import { Stream, fail, streamError } from 'internal/stream/base';
import { coded, kindOf, wrongType } from 'internal/errors';
import { streamOf } from 'internal/stream/from';
import { Readable, initReadable } from 'internal/stream/readable';
import { Writable, giveWritable, initWritable } from 'internal/stream/writable';
import { webKind } from 'internal/stream/web';
import { nextTick } from 'internal/ticks';

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
  if (webKind(source) === 'transform') return Duplex.fromWeb(source);
  if (typeof source?.readable === 'object' || typeof source?.writable === 'object') {
    const [readable, writable] = [source.readable, source.writable].map((half) =>
      webKind(half) ? Duplex.from(half) : half,
    );
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
  if (typeof source === 'function') return ofFunction(source);
  if (source instanceof Readable) return Duplex.from({ readable: source });
  const kind = webKind(source);
  if (kind === 'readable') return Duplex.from({ readable: Readable.fromWeb(source, { objectMode: true }) });
  if (kind === 'writable') return Duplex.from({ writable: Writable.fromWeb(source, { objectMode: true }) });
  if (source?._writableState) return Duplex.from({ writable: source });
  if (/^(Blob|File)$/.test(source?.[Symbol.toStringTag])) return Duplex.from(source.arrayBuffer());
  if (source?.[Symbol.asyncIterator] || source?.[Symbol.iterator]) {
    return streamOf(Duplex, source, { objectMode: true, writable: false });
  }
  if (typeof source?.then === 'function') {
    const duplex = new Duplex({ objectMode: true, writable: false, read() {} });
    source.then(
      (value) => {
        if (value !== null && value !== undefined) duplex.push(value);
        duplex.push(null);
      },
      (error) => duplex.destroy(error),
    );
    return duplex;
  }
  throw wrongType(
    'body',
    'of type function or an instance of Blob, ReadableStream, WritableStream, Stream, Iterable, AsyncIterable, or Promise or { readable, writable } pair',
    source,
  );
};

/** A stream around a function of what is written, which answers what is read. */
function ofFunction(run) {
  const stop = new AbortController();
  let give;
  let given;
  const wait = () => {
    given = new Promise((resolve) => {
      give = resolve;
    });
  };
  wait();
  const writes = {
    objectMode: true,
    write: (chunk, encoding, callback) => give({ chunk, callback }),
    destroy(error, callback) {
      stop.abort();
      give({ over: true });
      callback(error);
    },
  };
  const value = run(
    (async function* written() {
      for (;;) {
        const { chunk, callback, over } = await given;
        if (callback) nextTick(callback);
        if (over) return;
        wait();
        yield chunk;
      }
    })(),
    { signal: stop.signal },
  );
  if (value?.[Symbol.asyncIterator] || value?.[Symbol.iterator]) {
    const stream = streamOf(Duplex, value, {
      ...writes,
      final: (callback) => give({ over: true, callback }),
    });
    return stream;
  }
  if (typeof value?.then !== 'function') {
    throw coded(
      TypeError,
      'ERR_INVALID_RETURN_VALUE',
      `Expected Iterable, AsyncIterable or AsyncFunction to be returned from the "body" function but got ${kindOf(value)}.`,
    );
  }
  const done = Promise.resolve(value).then((answer) => {
    if (answer === undefined || answer === null) return;
    throw coded(
      TypeError,
      'ERR_INVALID_RETURN_VALUE',
      'Expected nully to be returned from the "body" function',
    );
  });
  const duplex = new Duplex({
    ...writes,
    readable: false,
    final: (callback) => give({ over: true, callback: () => done.then(() => callback(), callback) }),
  });
  done.catch((error) => duplex.destroy(error));
  return duplex;
}

export function Transform(options) {
  if (!(this instanceof Transform)) return new Transform(options);
  Duplex.call(this, options);
  Object.defineProperty(this, '_pending', { value: null, writable: true });
  // What is transformed before the first read is emitted at once.
  this._readableState.sync = false;
  this.on('prefinish', flushLate);
}

/** Flushes a stream whose own `_final` does not, as subclasses that replace it expect. */
function flushLate() {
  if (this._final !== Transform.prototype._final) Transform.prototype._final.call(this);
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
      if (this._writableState.ended || before === state.length || state.length < state.highWaterMark)
        callback();
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
