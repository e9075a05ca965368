// Streams that are written to.

import { Buffer } from 'node:buffer';
import { wrongType } from 'internal/errors';
import { Stream, begin, fail, streamError, whenReady } from 'internal/stream/base';
import { nextTick } from 'internal/ticks';

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
      highWaterMark: options?.writableHighWaterMark ?? options?.highWaterMark ?? (objectMode ? 16 : 65536),
      decodeStrings: options?.decodeStrings !== false,
      defaultEncoding: options?.defaultEncoding ?? 'utf8',
      length: 0,
      writing: false,
      corked: 0,
      buffered: [],
      needDrain: false,
      ending: false,
      ended: false,
      finished: false,
      finishing: false,
      sync: true,
    },
  });
}

function write(stream, chunk, encoding, callback) {
  const state = stream._writableState;
  if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
  encoding ??= state.defaultEncoding;
  if (chunk === null) throw streamError('ERR_STREAM_NULL_VALUES', 'May not write null values to stream');
  if (!state.objectMode) {
    if (typeof chunk === 'string') {
      if (state.decodeStrings) [chunk, encoding] = [Buffer.from(chunk, encoding), 'buffer'];
    } else if (ArrayBuffer.isView(chunk)) {
      if (!Buffer.isBuffer(chunk)) chunk = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
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
    return false;
  }
  const length = state.objectMode ? 1 : chunk.length;
  state.length += length;
  const room = state.length < state.highWaterMark;
  if (!room) state.needDrain = true;
  const entry = { chunk, encoding, callback, length };
  if (state.writing || state.corked > 0 || !stream._streamEnd.constructed) {
    state.buffered.push(entry);
    if (!stream._streamEnd.constructed) whenReady(stream, () => pump(stream));
  } else {
    run(stream, [entry], false);
  }
  return room && !stream._streamEnd.error && !stream.destroyed;
}

function run(stream, entries, many) {
  const state = stream._writableState;
  state.writing = true;
  state.sync = true;
  let called = false;
  const done = (error) => {
    if (called) return;
    called = true;
    const settle = () => {
      state.writing = false;
      for (const entry of entries) state.length -= entry.length;
      if (error) {
        for (const entry of entries) entry.callback?.(error);
        for (const entry of state.buffered.splice(0)) entry.callback?.(error);
        fail(stream, error);
        return;
      }
      if (state.needDrain && state.length === 0 && !state.ending && !stream.destroyed) {
        state.needDrain = false;
        nextTick(() => stream.emit('drain'));
      }
      for (const entry of entries) entry.callback?.(null);
      pump(stream);
    };
    if (state.sync) nextTick(settle);
    else settle();
  };
  try {
    const answer = many
      ? stream._writev(
          entries.map(({ chunk, encoding }) => ({ chunk, encoding })),
          done,
        )
      : stream._write(entries[0].chunk, entries[0].encoding, done);
    if (typeof answer?.then === 'function') answer.then(undefined, done);
  } catch (error) {
    done(error);
  }
  state.sync = false;
}

function pump(stream) {
  const state = stream._writableState;
  if (state.writing || state.corked > 0 || stream.destroyed || !stream._streamEnd.constructed) return;
  if (state.buffered.length > 0) {
    if (typeof stream._writev === 'function' && state.buffered.length > 1)
      run(stream, state.buffered.splice(0), true);
    else run(stream, [state.buffered.shift()], false);
  } else {
    finish(stream);
  }
}

function finish(stream) {
  const state = stream._writableState;
  if (!state.ending || state.finishing || state.writing || state.buffered.length > 0 || stream.destroyed)
    return;
  if (stream._streamEnd.error) return;
  state.finishing = true;
  const done = (error) => {
    if (error) {
      fail(stream, error);
      return;
    }
    nextTick(() => {
      if (state.finished || stream.destroyed) return;
      state.finished = true;
      stream.emit('finish');
      const readable = stream._readableState;
      if (stream._streamEnd.autoDestroy && (!readable || readable.endEmitted)) stream.destroy();
    });
  };
  if (typeof stream._final !== 'function') {
    done();
    return;
  }
  try {
    const answer = stream._final(done);
    if (typeof answer?.then === 'function') answer.then(() => done(), done);
  } catch (error) {
    done(error);
  }
}

export const methods = {
  writable: true,

  write(chunk, encoding, callback) {
    return write(this, chunk, encoding, callback);
  },

  end(chunk, encoding, callback) {
    if (typeof chunk === 'function') [chunk, encoding, callback] = [undefined, undefined, chunk];
    else if (typeof encoding === 'function') [encoding, callback] = [undefined, encoding];
    const state = this._writableState;
    if (chunk !== undefined && chunk !== null) write(this, chunk, encoding);
    state.corked = 0;
    if (typeof callback === 'function') {
      if (state.finished) nextTick(() => callback(null));
      else {
        const forget = () => {
          this.removeListener('finish', finished);
          this.removeListener('error', failed);
        };
        const finished = () => {
          forget();
          callback(null);
        };
        const failed = (error) => {
          forget();
          callback(error);
        };
        this.on('finish', finished);
        this.on('error', failed);
      }
    }
    if (!state.ending) {
      state.ending = true;
      state.ended = true;
      this.writable = false;
      whenReady(this, () => pump(this));
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
    this._writableState.defaultEncoding = encoding;
    return this;
  },

  _write(chunk, encoding, callback) {
    if (typeof this._writev === 'function') this._writev([{ chunk, encoding }], callback);
    else callback(streamError('ERR_METHOD_NOT_IMPLEMENTED', 'The _write() method is not implemented'));
  },
};

export const getters = {
  writableLength: (state) => state.length,
  writableHighWaterMark: (state) => state.highWaterMark,
  writableObjectMode: (state) => state.objectMode,
  writableNeedDrain: (state) => state.needDrain && !state.ending,
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
  for (const name in getters) {
    Object.defineProperty(prototype, name, {
      configurable: true,
      get() {
        return getters[name](this._writableState);
      },
    });
  }
}
giveWritable(Writable.prototype);

Object.defineProperty(Writable, Symbol.hasInstance, {
  value(object) {
    return (
      Function.prototype[Symbol.hasInstance].call(this, object) ||
      (this === Writable && !!object?._writableState)
    );
  },
});
