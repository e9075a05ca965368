// Streams that are written to.

import { Bytes } from 'internal/buffer';
import { coded, wrongType } from 'internal/errors';
import {
  Stream,
  begin,
  encodingOf,
  fail,
  failPending,
  markOf,
  streamError,
  whenReady,
} from 'internal/stream/base';
import { nextTick } from 'internal/ticks';
import loader from 'native/globals';

export function Writable(options) {
  if (!(this instanceof Writable) && !this?._writableState) return new Writable(options);
  Stream.call(this, options);
  initWritable(this, options);
}
Object.setPrototypeOf(Writable.prototype, Stream.prototype);
Object.setPrototypeOf(Writable, Stream);

export function initWritable(stream, options) {
  begin(stream, options);
  const objectMode = !!(options?.objectMode || options?.writableObjectMode);
  Object.defineProperty(stream, '_writableState', {
    value: {
      objectMode,
      highWaterMark: markOf(options, 'writableHighWaterMark', objectMode),
      decodeStrings: options?.decodeStrings !== false,
      defaultEncoding: encodingOf(options?.defaultEncoding),
      length: 0,
      writing: false,
      corked: 0,
      buffered: [],
      endCallbacks: [],
      // Writes whose callbacks have not been called.
      untold: 0,
      pumping: false,
      prefinished: false,
      finishes: false,
      writable: true,
      needDrain: false,
      ending: false,
      ended: false,
      finished: false,
      finishing: false,
      sync: true,
      get bufferedRequestCount() {
        return this.buffered.length;
      },
      getBuffer() {
        return this.buffered;
      },
      get destroyed() {
        return stream._streamEnd.destroyed;
      },
    },
  });
}

function write(stream, chunk, encoding, callback) {
  const state = stream._writableState;
  if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
  if (chunk === null) throw streamError('ERR_STREAM_NULL_VALUES', 'May not write null values to stream');
  if (!state.objectMode) {
    if (typeof chunk === 'string') {
      encoding ||= state.defaultEncoding;
      if (encoding !== 'buffer' && !Bytes.isEncoding(encoding))
        throw coded(TypeError, 'ERR_UNKNOWN_ENCODING', `Unknown encoding: ${encoding}`);
      if (state.decodeStrings) [chunk, encoding] = [Bytes.from(chunk, encoding), 'buffer'];
    } else if (ArrayBuffer.isView(chunk)) {
      if (!Bytes.isBuffer(chunk)) chunk = Bytes.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
      encoding = 'buffer';
    } else {
      throw wrongType('chunk', 'of type string or an instance of Buffer, TypedArray, or DataView', chunk);
    }
  }
  let error;
  if (state.ending) error = streamError('ERR_STREAM_WRITE_AFTER_END', 'write after end');
  else if (stream.destroyed)
    error = streamError('ERR_STREAM_DESTROYED', 'Cannot call write after a stream was destroyed');
  if (error) {
    nextTick(() => callback?.(error));
    fail(stream, error);
    return error;
  }
  const length = state.objectMode ? 1 : chunk.length;
  state.length += length;
  const entry = { chunk, encoding, callback, length };
  state.untold += 1;
  if (state.writing || state.corked > 0 || stream._streamEnd.error || !stream._streamEnd.constructed) {
    state.buffered.push(entry);
    if (!stream._streamEnd.constructed) whenReady(stream, () => pump(stream));
  } else {
    run(stream, [entry], false);
  }
  // What was written at once takes no room.
  const room = state.length < state.highWaterMark || state.length === 0;
  if (!room) state.needDrain = true;
  return room && !stream._streamEnd.error && !stream.destroyed;
}

function run(stream, entries, many) {
  const state = stream._writableState;
  state.writing = true;
  state.sync = true;
  let called = false;
  const done = (error) => {
    if (called) {
      fail(stream, streamError('ERR_MULTIPLE_CALLBACK', 'Callback called multiple times'));
      return;
    }
    called = true;
    const { sync } = state;
    state.writing = false;
    for (const entry of entries) state.length -= entry.length;
    if (error) stream._streamEnd.error ??= error;
    // What waits is written at once; that this was written is told later.
    else pump(stream);
    const settle = () => (error ? failed(stream, entries, error) : written(stream, entries));
    if (sync) nextTick(settle);
    else settle();
  };
  const answer = many
    ? stream._writev(
        entries.map(({ chunk, encoding }) => ({ chunk, encoding })),
        done,
      )
    : stream._write(entries[0].chunk, entries[0].encoding, done);
  if (typeof answer?.then === 'function') answer.then(undefined, done);
  state.sync = false;
}

function failed(stream, entries, error) {
  const state = stream._writableState;
  for (const entry of entries) {
    state.untold -= 1;
    entry.callback?.(error);
  }
  failPending(stream);
  failNow(stream, error);
}

function written(stream, entries) {
  const state = stream._writableState;
  if (state.needDrain && state.length === 0 && !state.ending && !stream.destroyed) {
    state.needDrain = false;
    stream.emit('drain');
  }
  for (const entry of entries) {
    state.untold -= 1;
    entry.callback?.(null);
  }
  if (stream.destroyed) failPending(stream);
  finish(stream, false);
}

/** Writes what waits, as far as it is taken without waiting. */
function pump(stream) {
  const state = stream._writableState;
  if (state.pumping || state.corked > 0 || stream.destroyed || !stream._streamEnd.constructed) return;
  state.pumping = true;
  while (state.buffered.length > 0 && !state.writing && !stream.destroyed && !stream._streamEnd.error) {
    if (typeof stream._writev === 'function' && state.buffered.length > 1)
      run(stream, state.buffered.splice(0), true);
    else run(stream, [state.buffered.shift()], false);
  }
  state.pumping = false;
}

function endsNow(stream) {
  const state = stream._writableState;
  return (
    state.ending &&
    !state.finished &&
    !state.writing &&
    !stream.destroyed &&
    stream._streamEnd.constructed &&
    !stream._streamEnd.error &&
    state.length === 0 &&
    state.buffered.length === 0
  );
}

function finish(stream, sync) {
  const state = stream._writableState;
  if (!endsNow(stream)) return;
  if (!state.finishing) {
    state.finishing = true;
    if (typeof stream._final === 'function') {
      callFinal(stream);
      return;
    }
    state.prefinished = true;
    stream.emit('prefinish');
  }
  if (!state.prefinished || state.untold > 0 || state.finishes) return;
  if (sync) nextTick(() => finish(stream, false));
  else close(stream);
}

function callFinal(stream) {
  const state = stream._writableState;
  let called = false;
  const done = (error) => {
    if (called) return;
    called = true;
    if (error) {
      for (const callback of state.endCallbacks.splice(0)) callback(error);
      fail(stream, error);
    } else if (endsNow(stream)) {
      state.prefinished = true;
      stream.emit('prefinish');
      state.finishes = true;
      nextTick(() => close(stream));
    }
  };
  try {
    const answer = stream._final(done);
    if (typeof answer?.then === 'function') answer.then(() => done(), done);
  } catch (error) {
    done(error);
  }
}

function close(stream) {
  const state = stream._writableState;
  if (state.finished) return;
  state.finished = true;
  for (const callback of state.endCallbacks.splice(0)) callback(null);
  stream.emit('finish');
  const readable = stream._readableState;
  if (stream._streamEnd.autoDestroy && (!readable || readable.endEmitted)) stream.destroy();
}

/** As `fail`, of a stream whose error is already noted. */
function failNow(stream, error) {
  const ending = stream._streamEnd;
  if (ending.error === error && !ending.destroyed) ending.error = null;
  fail(stream, error);
}

export const methods = {
  write(chunk, encoding, callback) {
    return write(this, chunk, encoding, callback) === true;
  },

  end(chunk, encoding, callback) {
    if (typeof chunk === 'function') [chunk, encoding, callback] = [undefined, undefined, chunk];
    else if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
    const state = this._writableState;
    let error;
    if (chunk !== undefined && chunk !== null) {
      const answer = write(this, chunk, encoding);
      if (answer instanceof Error) error = answer;
    }
    if (state.corked > 0) {
      state.corked = 1;
      this.uncork();
    }
    if (error) {
      // It failed to write the last.
    } else if (!this._streamEnd.error && !state.ending) {
      state.ending = true;
      state.ended = true;
      whenReady(this, () => {
        pump(this);
        finish(this, true);
      });
    } else if (state.finished) {
      error = streamError('ERR_STREAM_ALREADY_FINISHED', 'Cannot call end after a stream was finished');
    } else if (this.destroyed) {
      error = streamError('ERR_STREAM_DESTROYED', 'Cannot call end after a stream was destroyed');
    }
    if (typeof callback === 'function') {
      if (error) nextTick(() => callback(error));
      else if (state.finished) nextTick(() => callback());
      else state.endCallbacks.push(callback);
    }
    return this;
  },

  cork() {
    this._writableState.corked += 1;
  },

  uncork() {
    const state = this._writableState;
    if (state.corked > 0) {
      state.corked -= 1;
      pump(this);
    }
  },

  setDefaultEncoding(encoding) {
    if (!Bytes.isEncoding(encoding))
      throw coded(
        TypeError,
        'ERR_UNKNOWN_ENCODING',
        loader.load('internal/format').format('Unknown encoding: %s', encoding),
      );
    this._writableState.defaultEncoding = `${encoding}`.toLowerCase();
    return this;
  },

  _write(chunk, encoding, callback) {
    if (typeof this._writev !== 'function')
      throw streamError('ERR_METHOD_NOT_IMPLEMENTED', 'The _write() method is not implemented');
    this._writev([{ chunk, encoding }], callback);
  },
};

export const getters = {
  writableLength: (state) => state.length,
  writableHighWaterMark: (state) => state.highWaterMark,
  writableObjectMode: (state) => state.objectMode,
  writableNeedDrain: (state, stream) => state.needDrain && !state.ending && !stream.destroyed,
  writableCorked: (state) => state.corked,
  writableEnded: (state) => state.ending,
  writableFinished: (state) => state.finished,
};

export function giveWritable(prototype) {
  for (const name in methods) {
    if (!Object.hasOwn(prototype, name)) {
      Object.defineProperty(prototype, name, {
        value: methods[name],
        configurable: true,
        writable: true,
        enumerable: true,
      });
    }
  }
  Object.defineProperty(prototype, 'writable', {
    configurable: true,
    enumerable: true,
    get() {
      const state = this._writableState;
      return !!state && state.writable && !state.ending && !this.destroyed && !this._streamEnd.error;
    },
    set(writable) {
      if (this._writableState) this._writableState.writable = !!writable;
    },
  });
  for (const name in getters) {
    Object.defineProperty(prototype, name, {
      configurable: true,
      get() {
        return getters[name](this._writableState, this);
      },
    });
  }
}
giveWritable(Writable.prototype);
Writable.prototype.pipe = function pipe() {
  fail(this, streamError('ERR_STREAM_CANNOT_PIPE', 'Cannot pipe, not readable'));
};
Object.defineProperty(Writable.prototype, 'writableAborted', {
  configurable: true,
  get() {
    const state = this._writableState;
    return state.writable && (this.destroyed || !!this._streamEnd.error) && !state.finished;
  },
});

Object.defineProperty(Writable, Symbol.hasInstance, {
  value(object) {
    return (
      Function.prototype[Symbol.hasInstance].call(this, object) ||
      (this === Writable && !!object?._writableState)
    );
  },
});
