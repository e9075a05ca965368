// What readable and writable streams share: destruction, errors, abort signals.

import { EventEmitter } from 'node:events';
import { Bytes } from 'internal/buffer';
import { abortError, coded, outOfRange, wrongType, wrongValue } from 'internal/errors';
import { webInside, webKind } from 'internal/stream/web';
import { nextTick } from 'internal/ticks';

export function Stream(options) {
  EventEmitter.call(this, options);
}
Object.setPrototypeOf(Stream.prototype, EventEmitter.prototype);
Object.setPrototypeOf(Stream, EventEmitter);

/** The marks of streams whose options have none: of bytes, and of objects. */
const marks = { bytes: 65536, objects: 16 };
export const defaultMark = (objectMode) => (objectMode ? marks.objects : marks.bytes);
export function setDefaultMark(objectMode, value) {
  if (!Number.isInteger(value)) {
    if (typeof value !== 'number') throw wrongType('value', 'of type number', value);
    throw outOfRange('value', 'an integer', value);
  }
  if (value < 0 || value > Number.MAX_SAFE_INTEGER)
    throw outOfRange('value', `>= 0 && <= ${Number.MAX_SAFE_INTEGER}`, value);
  marks[objectMode ? 'objects' : 'bytes'] = value;
}

/** The mark that options give to a side, or the default. */
export function markOf(options, side, objectMode) {
  const mark = options?.highWaterMark ?? options?.[side];
  if (mark === undefined || mark === null) return defaultMark(objectMode);
  if (Number.isInteger(mark) && mark >= 0) return mark;
  throw wrongValue(`options.${options[side] === undefined ? 'highWaterMark' : side}`, mark);
}

/** The encoding of texts that come without one. */
export function encodingOf(name) {
  if (name === undefined || name === null || name === '') return 'utf8';
  if (Bytes.isEncoding(name)) return name;
  throw coded(TypeError, 'ERR_UNKNOWN_ENCODING', `Unknown encoding: ${name}`);
}

/** What a stream knows of its end, whichever way it flows. */
export function begin(stream, options) {
  if (stream._streamEnd) return;
  Object.defineProperty(stream, '_streamEnd', {
    value: {
      destroyed: false,
      closed: false,
      closeEmitted: false,
      error: null,
      errorTold: false,
      autoDestroy: options?.autoDestroy !== false,
      emitClose: options?.emitClose !== false,
      constructed: true,
      waiting: [],
    },
  });
  for (const name of ['read', 'write', 'writev', 'final', 'destroy', 'transform', 'flush', 'construct']) {
    if (typeof options?.[name] === 'function') stream[`_${name}`] = options[name];
  }
  if (options?.signal) addAbortSignal(options.signal, stream);
  if (typeof stream._construct === 'function') {
    stream._streamEnd.constructed = false;
    let called = false;
    const constructed = (error) => {
      if (called) {
        fail(stream, error ?? coded(Error, 'ERR_MULTIPLE_CALLBACK', 'Callback called multiple times'));
        return;
      }
      called = true;
      const ending = stream._streamEnd;
      ending.constructed = true;
      if (error && !ending.destroyed) destroy.call(stream, error);
      else for (const run of ending.waiting.splice(0)) run();
    };
    nextTick(() => {
      try {
        stream._construct((error) => nextTick(() => constructed(error)));
      } catch (error) {
        nextTick(() => constructed(error));
      }
    });
  }
}

/** Runs once the stream is constructed: at once, nearly always. */
export function whenReady(stream, run) {
  if (stream._streamEnd.constructed) run();
  else stream._streamEnd.waiting.push(run);
}

export function addAbortSignal(signal, stream) {
  if (typeof signal?.aborted !== 'boolean') throw wrongType('signal', 'an instance of AbortSignal', signal);
  const kind = webKind(stream);
  if (kind === 'transform' || (!kind && !stream?._streamEnd && typeof stream?.on !== 'function'))
    throw wrongType('stream', 'an instance of ReadableStream, WritableStream, or Stream', stream);
  const inside = webInside(stream);
  if (inside) return followWeb(signal, stream, inside);
  const give = () => stream.destroy(abortError(signal));
  if (signal.aborted) nextTick(give);
  else {
    signal.addEventListener('abort', give, { once: true });
    stream.once('close', () => signal.removeEventListener('abort', give));
  }
  return stream;
}

/** A stream of the web's fails when the signal aborts. */
function followWeb(signal, stream, inside) {
  const give = () => {
    const { controller } = inside;
    const error = abortError(signal);
    if (inside.state === 'writable' || inside.state === 'readable') controller.error(error);
  };
  if (signal.aborted) give();
  else {
    const forget = () => signal.removeEventListener('abort', give);
    signal.addEventListener('abort', give, { once: true });
    inside.ended.then(forget, forget);
  }
  return stream;
}

/** Destroys what has a method for it. A stream that has not ended fails as aborted where no error is given. */
export function destroyStream(stream, error) {
  if (!stream || stream.destroyed) return;
  if (!error && (stream.readable === true || stream.writable === true)) error = abortError();
  if (typeof stream.destroy === 'function') stream.destroy(error);
  else if (typeof stream.close === 'function') stream.close();
}

export function destroy(error, callback) {
  const ending = this._streamEnd;
  if (ending.destroyed) {
    callback?.(error);
    return this;
  }
  ending.destroyed = true;
  if (error) ending.error = error;
  const written = this._writableState;
  if (written && (written.buffered.length > 0 || written.endCallbacks.length > 0)) {
    nextTick(() => failPending(this));
  }
  const done = (failed) => {
    // What `_destroy` calls back with counts: it may keep an error to itself.
    const told = failed ?? null;
    if (told) ending.error ??= told;
    ending.closed = true;
    callback?.(told);
    nextTick(() => {
      if (told && !ending.errorTold) {
        ending.errorTold = true;
        this.emit('error', told);
      }
      ending.closeEmitted = true;
      if (ending.emitClose) this.emit('close');
    });
  };
  let called = false;
  const once = (failed) => {
    if (called) return;
    called = true;
    done(failed);
  };
  whenReady(this, () => {
    try {
      const answer = this._destroy(error ?? null, once);
      if (typeof answer?.then === 'function') answer.then(() => once(error), once);
    } catch (failed) {
      once(failed);
    }
  });
  return this;
}

/** Tells whoever waits for a write, or for the end, that it will not come. */
export function failPending(stream) {
  const state = stream._writableState;
  if (state.writing) return;
  const error = (call) =>
    stream._streamEnd.error ??
    coded(Error, 'ERR_STREAM_DESTROYED', `Cannot call ${call} after a stream was destroyed`);
  for (const entry of state.buffered.splice(0)) {
    state.length -= entry.length;
    state.untold -= 1;
    entry.callback?.(error('write'));
  }
  for (const callback of state.endCallbacks.splice(0)) callback(error('end'));
}

/** Fails a stream: by its end where it ends itself, else by its event. */
export function fail(stream, error) {
  const ending = stream._streamEnd;
  if (ending.destroyed) return;
  if (ending.autoDestroy) {
    stream.destroy(error);
  } else if (!ending.errorTold) {
    ending.errorTold = true;
    ending.error = error;
    nextTick(() => stream.emit('error', error));
  }
}

export function streamError(code, message) {
  return coded(Error, code, message);
}

Object.assign(Stream.prototype, {
  destroy,
  _destroy(error, callback) {
    callback(error);
  },
  [Symbol.asyncDispose ?? Symbol.for('asyncDispose')]() {
    let error = null;
    if (!this._streamEnd.destroyed) {
      const state = this._readableState;
      error = state && !state.endEmitted ? abortError() : null;
      this.destroy(error);
    }
    return new Promise((resolve, reject) => {
      const settle = () => (this.errored && this.errored !== error ? reject(this.errored) : resolve());
      if (this._streamEnd.closeEmitted) settle();
      else {
        this.once('error', () => {});
        this.once('close', settle);
      }
    });
  },
  [Symbol.for('nodejs.rejection')](error) {
    this.destroy(error);
  },
  // The oldest way to join two streams.
  pipe(to) {
    this.on('data', (chunk) => to.write(chunk));
    this.on('end', () => to.end());
    return to;
  },
});

Object.defineProperties(Stream.prototype, {
  destroyed: {
    configurable: true,
    get() {
      return this._streamEnd?.destroyed ?? false;
    },
    set(destroyed) {
      if (this._streamEnd) this._streamEnd.destroyed = destroyed;
    },
  },
  closed: {
    configurable: true,
    get() {
      return this._streamEnd?.closed ?? false;
    },
  },
  errored: {
    configurable: true,
    get() {
      return this._streamEnd?.error ?? null;
    },
  },
});
