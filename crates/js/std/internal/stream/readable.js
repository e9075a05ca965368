// Streams that are read from.

import { Bytes } from 'internal/buffer';
import { StringDecoder } from 'node:string_decoder';
import { abortError, wrongType } from 'internal/errors';
import { Stream, begin, encodingOf, fail, markOf, streamError, whenReady } from 'internal/stream/base';
import { streamOf } from 'internal/stream/from';
import { piping } from 'internal/stream/piping';
import { giveHelpers } from 'internal/stream/helpers';
import { webInside } from 'internal/stream/web';
import { nextTick } from 'internal/ticks';

export function Readable(options) {
  if (!(this instanceof Readable)) return new Readable(options);
  Stream.call(this, options);
  initReadable(this, options);
}
Object.setPrototypeOf(Readable.prototype, Stream.prototype);
Object.setPrototypeOf(Readable, Stream);

export function initReadable(stream, options) {
  begin(stream, options);
  const objectMode = !!(options?.objectMode || options?.readableObjectMode);
  Object.defineProperty(stream, '_readableState', {
    value: {
      objectMode,
      highWaterMark: markOf(options, 'readableHighWaterMark', objectMode),
      defaultEncoding: encodingOf(options?.defaultEncoding),
      buffer: [],
      length: 0,
      readable: true,
      flowing: null,
      ended: false,
      endEmitted: false,
      reading: false,
      // Until the first read, nothing is emitted at once.
      sync: true,
      needReadable: false,
      emittedReadable: false,
      readingMore: false,
      resumeScheduled: false,
      decoder: null,
      encoding: null,
      pipes: [],
      awaitDrainWriters: new Set(),
      readableListening: false,
      dataEmitted: false,
      paused: false,
      get destroyed() {
        return stream._streamEnd.destroyed;
      },
    },
  });
  if (options?.encoding) stream.setEncoding(options.encoding);
}

function sizeOf(state, chunk) {
  return state.objectMode ? 1 : chunk.length;
}

function add(stream, state, chunk, first) {
  if (state.flowing && state.length === 0 && !state.sync && stream.listenerCount('data') > 0) {
    state.dataEmitted = true;
    stream.emit('data', chunk);
  } else {
    state.length += sizeOf(state, chunk);
    if (first) state.buffer.unshift(chunk);
    else state.buffer.push(chunk);
    if (state.needReadable) tellReadable(stream, state);
  }
  readMore(stream, state);
}

/** Takes bytes out of what is buffered; all of it without a size. */
function take(state, many) {
  if (state.objectMode) {
    const chunk = state.buffer.shift();
    state.length -= 1;
    return chunk;
  }
  if (many === undefined || many >= state.length) {
    const all = state.decoder
      ? state.buffer.join('')
      : state.buffer.length === 1
        ? state.buffer[0]
        : Bytes.concat(state.buffer);
    state.buffer = [];
    state.length = 0;
    return all;
  }
  const pieces = [];
  let left = many;
  while (left > 0) {
    const [piece] = state.buffer;
    if (piece.length <= left) {
      pieces.push(piece);
      state.buffer.shift();
    } else {
      pieces.push(piece.slice(0, left));
      state.buffer[0] = piece.slice(left);
    }
    left -= pieces.at(-1).length;
  }
  state.length -= many;
  return state.decoder ? pieces.join('') : Bytes.concat(pieces);
}

function tellReadable(stream, state) {
  state.needReadable = false;
  if (state.emittedReadable) return;
  state.emittedReadable = true;
  nextTick(() => tellNow(stream, state));
}

function tellNow(stream, state) {
  if (!stream.destroyed && !stream._streamEnd.error && (state.length > 0 || state.ended)) {
    stream.emit('readable');
    state.emittedReadable = false;
  }
  state.needReadable = !state.flowing && !state.ended && state.length <= state.highWaterMark;
  flow(stream);
}

function readMore(stream, state) {
  if (state.readingMore) return;
  state.readingMore = true;
  nextTick(() => {
    state.readingMore = false;
    while (
      !state.reading &&
      !state.ended &&
      !stream.destroyed &&
      (state.length < state.highWaterMark || (state.flowing && state.length === 0))
    ) {
      const before = state.length;
      stream.read(0);
      if (before === state.length) break;
    }
  });
}

function flow(stream) {
  const state = stream._readableState;
  while (state.flowing && !stream.destroyed && stream.read() !== null);
}

function endReadable(stream) {
  const state = stream._readableState;
  if (state.endEmitted) return;
  nextTick(() => {
    const { error, closeEmitted } = stream._streamEnd;
    if (state.endEmitted || state.length > 0 || error || closeEmitted) return;
    state.endEmitted = true;
    stream.emit('end');
    const writable = stream._writableState;
    if (writable && !writable.ending && stream.allowHalfOpen === false) stream.end();
    else if (stream._streamEnd.autoDestroy && (!writable || writable.finished)) stream.destroy();
  });
}

Object.assign(Readable.prototype, {
  push(chunk, encoding) {
    return accept(this, chunk, encoding, false);
  },

  unshift(chunk, encoding) {
    return accept(this, chunk, encoding, true);
  },

  _read() {
    throw streamError('ERR_METHOD_NOT_IMPLEMENTED', 'The _read() method is not implemented');
  },

  read(many) {
    const state = this._readableState;
    const asked = many === undefined || Number.isNaN(many) ? undefined : Math.trunc(many);
    if (asked !== 0) state.emittedReadable = false;
    // A mark of 0 is not reached by nothing.
    const full = state.length >= Math.max(state.highWaterMark, 1);
    if (asked === 0 && state.needReadable && (full || state.ended)) {
      if (state.length === 0 && state.ended) endReadable(this);
      else tellReadable(this, state);
      return null;
    }
    if (state.ended && state.length === 0) {
      endReadable(this);
      return null;
    }
    let wants =
      state.needReadable ||
      state.length === 0 ||
      state.length - (asked ?? state.length) < state.highWaterMark;
    if (
      state.ended ||
      state.reading ||
      this.destroyed ||
      this._streamEnd.error ||
      !this._streamEnd.constructed
    )
      wants = false;
    if (wants) {
      state.reading = true;
      state.sync = true;
      if (state.length === 0) state.needReadable = true;
      try {
        const answer = this._read(state.highWaterMark);
        if (typeof answer?.then === 'function') answer.then(undefined, (error) => fail(this, error));
      } catch (error) {
        fail(this, error);
      }
      state.sync = false;
    } else if (!this._streamEnd.constructed) {
      whenReady(this, () => this.read(0));
    }
    if (asked === 0) return null;
    let chunk = null;
    if (
      state.length > 0 &&
      (asked === undefined || state.objectMode || asked <= state.length || state.ended)
    ) {
      // In flowing mode one chunk at a time, as it came.
      const size = asked ?? (state.flowing && !state.objectMode ? state.buffer[0].length : undefined);
      chunk = take(state, size);
    }
    if (chunk === null) state.needReadable = state.length <= state.highWaterMark;
    if (state.length === 0) {
      if (!state.ended) state.needReadable = true;
      else if (chunk !== null) endReadable(this);
    }
    if (chunk !== null && !this._streamEnd.error) {
      state.dataEmitted = true;
      this.emit('data', chunk);
    }
    return chunk;
  },

  on(name, listener) {
    Stream.prototype.on.call(this, name, listener);
    const state = this._readableState;
    if (name === 'data') {
      state.readableListening ||= this.listenerCount('readable') > 0;
      if (state.flowing !== false) this.resume();
    } else if (name === 'readable' && !state.readableListening) {
      state.readableListening = true;
      state.needReadable = true;
      state.flowing = false;
      state.emittedReadable = false;
      if (state.length > 0) tellReadable(this, state);
      else if (!state.reading) nextTick(() => this.read(0));
    }
    return this;
  },

  removeListener(name, listener) {
    Stream.prototype.removeListener.call(this, name, listener);
    if (name === 'readable') nextTick(() => relisten(this));
    return this;
  },

  removeAllListeners(name) {
    Stream.prototype.removeAllListeners.call(this, name);
    if (name === 'readable' || name === undefined) nextTick(() => relisten(this));
    return this;
  },

  pause() {
    const state = this._readableState;
    if (state.flowing !== false) {
      state.flowing = false;
      this.emit('pause');
    }
    state.paused = true;
    return this;
  },

  resume() {
    const state = this._readableState;
    if (!state.flowing) {
      state.flowing = !state.readableListening;
      if (!state.resumeScheduled)
        nextTick(() => {
          state.resumeScheduled = false;
          if (!state.reading) this.read(0);
          this.emit('resume');
          flow(this);
          if (state.flowing && !state.reading) this.read(0);
        });
      state.resumeScheduled = true;
    }
    state.paused = false;
    return this;
  },

  isPaused() {
    return this._readableState.paused || this._readableState.flowing === false;
  },

  setEncoding(encoding) {
    const state = this._readableState;
    state.decoder = new StringDecoder(encoding);
    state.encoding = state.decoder.encoding;
    const text = state.buffer.map((chunk) => state.decoder.write(chunk)).join('');
    state.buffer = text === '' ? [] : [text];
    state.length = text.length;
    return this;
  },

  ...piping,

  wrap(old) {
    old.on('data', (chunk) => {
      if (!this.push(chunk)) old.pause?.();
    });
    old.on('end', () => this.push(null));
    old.on('error', (error) => fail(this, error));
    old.on('close', () => this.destroy());
    this._read = () => old.resume?.();
    return this;
  },

  [Symbol.asyncIterator]() {
    return walk(this);
  },
});
Readable.prototype.iterator = function (options) {
  return walk(this, options);
};
giveHelpers(Readable.prototype, (source) => Readable.from(source));

function relisten(stream) {
  const state = stream._readableState;
  state.readableListening = stream.listenerCount('readable') > 0;
  if (state.resumeScheduled && !state.paused) state.flowing = true;
  else if (stream.listenerCount('data') > 0) {
    if (!state.paused || !state.readableListening) stream.resume();
  } else if (!state.readableListening) state.flowing = null;
}

function accept(stream, chunk, encoding, first) {
  const state = stream._readableState;
  if (chunk === null) {
    state.reading = false;
    if (state.ended) return false;
    const rest = state.decoder?.end();
    if (rest) {
      state.buffer.push(rest);
      state.length += rest.length;
    }
    state.ended = true;
    if (state.sync) tellReadable(stream, state);
    else {
      state.needReadable = false;
      state.emittedReadable = true;
      // Now, and not a tick later: parsers rely on it.
      tellNow(stream, state);
    }
    return false;
  }
  if (!state.objectMode) {
    if (typeof chunk === 'string') {
      encoding ||= state.defaultEncoding;
      if (state.encoding !== encoding) {
        chunk = Bytes.from(chunk, encoding);
        // What is put back is read as it was.
        if (first && state.encoding) chunk = chunk.toString(state.encoding);
        else encoding = '';
      }
    } else if (ArrayBuffer.isView(chunk)) {
      if (!Bytes.isBuffer(chunk)) chunk = Bytes.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
      encoding = '';
    } else if (chunk !== undefined) {
      fail(
        stream,
        wrongType('chunk', 'of type string or an instance of Buffer, TypedArray, or DataView', chunk),
      );
      return false;
    }
  }
  if (!state.objectMode && (chunk === undefined || chunk.length === 0)) {
    state.reading = false;
    readMore(stream, state);
  } else if (first) {
    if (state.endEmitted)
      fail(stream, streamError('ERR_STREAM_UNSHIFT_AFTER_END_EVENT', 'stream.unshift() after end event'));
    else if (stream.destroyed || stream._streamEnd.error) return false;
    else add(stream, state, chunk, true);
  } else if (state.ended) {
    fail(stream, streamError('ERR_STREAM_PUSH_AFTER_EOF', 'stream.push() after EOF'));
  } else if (stream.destroyed || stream._streamEnd.error) {
    return false;
  } else {
    state.reading = false;
    if (state.decoder && !encoding && typeof chunk !== 'string') {
      chunk = state.decoder.write(chunk);
      if (chunk === '') {
        readMore(stream, state);
        return true;
      }
    }
    add(stream, state, chunk, false);
  }
  return !state.ended && (state.length < state.highWaterMark || state.length === 0);
}

/** The chunks of a stream. Who stops early leaves at once: the engine does not wait for a generator's end. */
function walk(stream, options) {
  let finished = false;
  const leave = () => {
    if (finished) return;
    finished = true;
    if (options?.destroyOnReturn === false || stream.destroyed) return;
    stream.on('error', () => {});
    stream.destroy(stream._readableState.endEmitted ? null : abortError());
  };
  let begun = false;
  const rows = chunks(stream, leave, () => {
    finished = true;
  });
  return {
    next() {
      begun = true;
      return rows.next();
    },
    return(value) {
      if (begun) leave();
      return rows.return(value);
    },
    throw: (error) => rows.throw(error),
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

async function* chunks(stream, leave, done) {
  let wake = () => {};
  const call = () => wake();
  stream.on('readable', call);
  let over;
  const ended = (error) => {
    over ??= { error };
    wake();
  };
  const close = () =>
    ended(
      stream._readableState.endEmitted
        ? undefined
        : (stream.errored ?? streamError('ERR_STREAM_PREMATURE_CLOSE', 'Premature close')),
    );
  const reached = () => ended();
  stream.on('end', reached);
  stream.on('error', ended);
  stream.on('close', close);
  if (stream.destroyed && !stream._readableState.endEmitted) {
    const error =
      stream.errored ??
      (stream._streamEnd.closed ? streamError('ERR_STREAM_PREMATURE_CLOSE', 'Premature close') : undefined);
    nextTick(() => ended(error));
  }
  try {
    for (;;) {
      const chunk = stream.destroyed ? null : stream.read();
      if (chunk !== null) {
        yield chunk;
      } else if (over) {
        if (over.error) throw over.error;
        done();
        return;
      } else {
        await new Promise((resolve) => {
          wake = resolve;
        });
      }
    }
  } finally {
    stream.removeListener('readable', call);
    stream.removeListener('end', reached);
    stream.removeListener('error', ended);
    stream.removeListener('close', close);
    leave();
  }
}

const getters = {
  readableHighWaterMark: (state) => state.highWaterMark,
  readableLength: (state) => state.length,
  readableObjectMode: (state) => state.objectMode,
  readableEncoding: (state) => state.encoding,
  readableEnded: (state) => state.endEmitted,
  readableDidRead: (state) => state.dataEmitted,
};
for (const name in getters) {
  Object.defineProperty(Readable.prototype, name, {
    configurable: true,
    get() {
      return getters[name](this._readableState);
    },
  });
}
Object.defineProperties(Readable.prototype, {
  readableFlowing: {
    configurable: true,
    get() {
      return this._readableState.flowing;
    },
    set(flowing) {
      if (this._readableState) this._readableState.flowing = flowing;
    },
  },
  readable: {
    configurable: true,
    enumerable: true,
    get() {
      const state = this._readableState;
      return !!state && state.readable && !this.destroyed && !this._streamEnd.errorTold && !state.endEmitted;
    },
    set(readable) {
      if (this._readableState) this._readableState.readable = !!readable;
    },
  },
  readableAborted: {
    configurable: true,
    get() {
      const state = this._readableState;
      return state.readable && (this.destroyed || !!this._streamEnd.error) && !state.endEmitted;
    },
  },
});

Readable.from = function from(source, options) {
  return streamOf(Readable, source, options);
};

Readable.isDisturbed = (stream) =>
  webInside(stream)?.disturbed ?? !!(stream && (stream.readableDidRead || stream.readableAborted));
