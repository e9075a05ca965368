// What readable and writable streams share: destruction, errors, abort signals.

import { EventEmitter } from 'node:events';
import { abortError, coded } from 'internal/errors';
import { nextTick } from 'internal/ticks';

export function Stream(options) {
  EventEmitter.call(this, options);
}
Object.setPrototypeOf(Stream.prototype, EventEmitter.prototype);
Object.setPrototypeOf(Stream, EventEmitter);

/** What a stream knows of its end, whichever way it flows. */
export function begin(stream, options) {
  if (stream._streamEnd) return;
  Object.defineProperty(stream, '_streamEnd', {
    value: {
      destroyed: false,
      closed: false,
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
    nextTick(() => {
      stream._construct((error) => {
        stream._streamEnd.constructed = true;
        if (error) destroy.call(stream, error);
        else for (const run of stream._streamEnd.waiting.splice(0)) run();
      });
    });
  }
}

/** Runs once the stream is constructed: at once, nearly always. */
export function whenReady(stream, run) {
  if (stream._streamEnd.constructed) run();
  else stream._streamEnd.waiting.push(run);
}

export function addAbortSignal(signal, stream) {
  const give = () => stream.destroy(abortError(signal));
  if (signal.aborted) nextTick(give);
  else {
    signal.addEventListener('abort', give, { once: true });
    stream.once('close', () => signal.removeEventListener('abort', give));
  }
  return stream;
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
    if (!this._streamEnd.destroyed) this.destroy();
    return new Promise((resolve) => {
      if (this._streamEnd.closed) resolve();
      else this.once('close', resolve);
    });
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
