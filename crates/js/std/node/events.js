import loader from 'native/globals';
import { abortError, checkFunction, coded, outOfRange, wrongType } from 'internal/errors';

export const captureRejectionSymbol = Symbol.for('nodejs.rejection');
export const errorMonitor = Symbol('events.errorMonitor');
export let defaultMaxListeners = 10;
export const usingDomains = false;
export const captureRejections = false;

const kCapture = Symbol('kCapture');

export function EventEmitter(options) {
  EventEmitter.init.call(this, options);
}

EventEmitter.prototype._events = undefined;
EventEmitter.prototype._eventsCount = 0;
EventEmitter.prototype._maxListeners = undefined;

EventEmitter.init = function init(options) {
  if (this._events === undefined || this._events === Object.getPrototypeOf(this)._events) {
    this._events = Object.create(null);
    this._eventsCount = 0;
  }
  this._maxListeners = this._maxListeners || undefined;
  if (options?.captureRejections) this[kCapture] = true;
};

function limitOf(emitter) {
  return emitter._maxListeners === undefined ? defaultMaxListeners : emitter._maxListeners;
}

function add(emitter, name, listener, first) {
  checkFunction(listener, 'listener');
  const events = (emitter._events ??= Object.create(null));
  if (events.newListener !== undefined) {
    emitter.emit('newListener', name, listener.listener ?? listener);
  }
  let list = emitter._events[name];
  if (list === undefined) {
    list = emitter._events[name] = [];
    emitter._eventsCount += 1;
  }
  // Changed while it is walked, a list is replaced.
  list = emitter._events[name] = first ? [listener, ...list] : [...list, listener];
  const limit = limitOf(emitter);
  if (limit > 0 && list.length > limit && !emitter[`warned ${String(name)}`]) {
    Object.defineProperty(emitter, `warned ${String(name)}`, { value: true });
    console.warn(
      `Possible EventEmitter memory leak detected. ${list.length} ${String(name)} listeners added to ` +
        `${emitter.constructor?.name ?? 'an emitter'}. MaxListeners is ${limit}. Use emitter.setMaxListeners() to increase limit`,
    );
  }
  return emitter;
}

function onceListener(emitter, name, listener) {
  checkFunction(listener, 'listener');
  const wrapped = (...given) => {
    emitter.removeListener(name, wrapped);
    return listener.apply(emitter, given);
  };
  wrapped.listener = listener;
  return wrapped;
}

const methods = {
  setMaxListeners(many) {
    if (typeof many !== 'number' || many < 0 || Number.isNaN(many)) {
      throw outOfRange('setMaxListeners', 'a non-negative number', many);
    }
    this._maxListeners = many;
    return this;
  },

  getMaxListeners() {
    return limitOf(this);
  },

  emit(name, ...given) {
    const events = this._events;
    if (name === 'error') {
      if (events?.[errorMonitor] !== undefined) this.emit(errorMonitor, ...given);
      if (events?.error === undefined) {
        const [error] = given;
        if (error instanceof Error) throw error;
        const shown = typeof error === 'string' ? `'${error}'` : String(error);
        throw coded(Error, 'ERR_UNHANDLED_ERROR', `Unhandled error. (${shown})`, { context: error });
      }
    }
    const list = events?.[name];
    if (list === undefined) return false;
    for (const listener of list) {
      const answer = listener.apply(this, given);
      if (this[kCapture] && typeof answer?.then === 'function') {
        answer.then(undefined, (error) => {
          if (typeof this[captureRejectionSymbol] === 'function')
            this[captureRejectionSymbol](error, name, ...given);
          else this.emit('error', error);
        });
      }
    }
    return true;
  },

  addListener(name, listener) {
    return add(this, name, listener, false);
  },

  prependListener(name, listener) {
    return add(this, name, listener, true);
  },

  once(name, listener) {
    return this.on(name, onceListener(this, name, listener));
  },

  prependOnceListener(name, listener) {
    return this.prependListener(name, onceListener(this, name, listener));
  },

  removeListener(name, listener) {
    checkFunction(listener, 'listener');
    const list = this._events?.[name];
    const at = list?.findLastIndex((known) => known === listener || known.listener === listener) ?? -1;
    if (at < 0) return this;
    if (list.length === 1) {
      delete this._events[name];
      this._eventsCount -= 1;
    } else {
      this._events[name] = list.toSpliced(at, 1);
    }
    if (this._events.removeListener !== undefined) this.emit('removeListener', name, listener);
    return this;
  },

  removeAllListeners(name) {
    if (this._events === undefined) return this;
    const names = name === undefined ? Reflect.ownKeys(this._events) : [name];
    for (const each of names) {
      if (name === undefined && each === 'removeListener') continue;
      for (const listener of (this._events[each] ?? []).toReversed()) this.removeListener(each, listener);
    }
    if (name === undefined) {
      this._events = Object.create(null);
      this._eventsCount = 0;
    }
    return this;
  },

  listeners(name) {
    return (this._events?.[name] ?? []).map((listener) => listener.listener ?? listener);
  },

  rawListeners(name) {
    return [...(this._events?.[name] ?? [])];
  },

  listenerCount(name, listener) {
    const list = this._events?.[name] ?? [];
    if (listener === undefined) return list.length;
    return list.filter((known) => known === listener || known.listener === listener).length;
  },

  eventNames() {
    return this._events === undefined ? [] : Reflect.ownKeys(this._events);
  },
};

for (const name in methods) {
  Object.defineProperty(EventEmitter.prototype, name, {
    value: methods[name],
    configurable: true,
    writable: true,
    enumerable: true,
  });
}
EventEmitter.prototype.on = EventEmitter.prototype.addListener;
EventEmitter.prototype.off = EventEmitter.prototype.removeListener;

/** A promise of the next time `name` is emitted. */
export function once(emitter, name, options) {
  const signal = options?.signal;
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(abortError(signal));
      return;
    }
    const isTarget = typeof emitter.addEventListener === 'function' && typeof emitter.on !== 'function';
    const forget = () => {
      if (isTarget) {
        emitter.removeEventListener(name, heard);
      } else {
        emitter.removeListener(name, heard);
        emitter.removeListener('error', failed);
      }
      signal?.removeEventListener('abort', aborted);
    };
    const heard = (...given) => {
      forget();
      resolve(given);
    };
    const failed = (error) => {
      if (!isTarget) emitter.removeListener('error', failed);
      forget();
      reject(error);
    };
    const aborted = () => failed(abortError(signal));
    if (isTarget) {
      emitter.addEventListener(name, heard, { once: true });
    } else {
      emitter.on(name, heard);
      if (name !== 'error') emitter.on('error', failed);
    }
    signal?.addEventListener('abort', aborted, { once: true });
  });
}

/** Everything `name` emits, to be walked with `for await`. */
export function on(emitter, name, options = {}) {
  const { signal } = options;
  if (signal?.aborted) throw abortError(signal);
  const heard = [];
  const waiting = [];
  let failure;
  let done = false;

  const take = (...given) => {
    const next = waiting.shift();
    if (next) next.resolve({ value: given, done: false });
    else heard.push(given);
  };
  const fail = (error) => {
    const next = waiting.shift();
    if (next) next.reject(error);
    else failure = { error };
    void iterator.return();
  };
  const end = () => void iterator.return();
  const aborted = () => fail(abortError(signal));

  const iterator = {
    next() {
      if (heard.length > 0) return Promise.resolve({ value: heard.shift(), done: false });
      if (failure) {
        const { error } = failure;
        failure = undefined;
        return Promise.reject(error);
      }
      if (done) return Promise.resolve({ value: undefined, done: true });
      return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
    },
    return() {
      done = true;
      for (const each of options.close ?? []) emitter.removeListener(each, end);
      emitter.removeListener('error', fail);
      emitter.removeListener(name, take);
      signal?.removeEventListener('abort', aborted);
      for (const { resolve } of waiting.splice(0)) resolve({ value: undefined, done: true });
      return Promise.resolve({ value: undefined, done: true });
    },
    throw(error) {
      fail(error);
      return Promise.resolve({ value: undefined, done: true });
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };

  emitter.on(name, take);
  if (name !== 'error') emitter.on('error', fail);
  for (const each of options.close ?? []) emitter.on(each, end);
  signal?.addEventListener('abort', aborted, { once: true });
  return iterator;
}

export function getEventListeners(emitter, name) {
  if (typeof emitter.listeners === 'function') return emitter.listeners(name);
  if (typeof emitter.addEventListener === 'function')
    return emitter[Symbol.for('ostler.listeners')]?.(name) ?? [];
  throw wrongType('emitter', 'an instance of EventEmitter or EventTarget', emitter);
}

export function listenerCount(emitter, name) {
  return typeof emitter.listenerCount === 'function'
    ? emitter.listenerCount(name)
    : getEventListeners(emitter, name).length;
}

export function getMaxListeners(emitter) {
  return emitter.getMaxListeners?.() ?? defaultMaxListeners;
}

export function setMaxListeners(many = defaultMaxListeners, ...emitters) {
  if (emitters.length === 0) defaultMaxListeners = many;
  for (const emitter of emitters) emitter.setMaxListeners?.(many);
}

export function addAbortListener(signal, listener) {
  if (signal.aborted) queueMicrotask(() => listener());
  else signal.addEventListener('abort', listener, { once: true });
  return {
    [Symbol.dispose]() {
      signal.removeEventListener('abort', listener);
    },
  };
}

/** An emitter whose listeners run in the store in which it was made. */
export class EventEmitterAsyncResource extends EventEmitter {
  #resource;

  constructor(options) {
    const { name, ...rest } = typeof options === 'string' ? { name: options } : (options ?? {});
    super(rest);
    const { AsyncResource } = loader.load('node:async_hooks');
    this.#resource = new AsyncResource(name ?? new.target.name);
  }

  emit(...given) {
    return this.#resource.runInAsyncScope(super.emit, this, ...given);
  }

  emitDestroy() {
    this.#resource.emitDestroy();
  }

  get asyncId() {
    return this.#resource.asyncId();
  }

  get triggerAsyncId() {
    return this.#resource.triggerAsyncId();
  }

  get asyncResource() {
    return this.#resource;
  }
}

Object.assign(EventEmitter, {
  EventEmitter,
  EventEmitterAsyncResource,
  once,
  on,
  getEventListeners,
  getMaxListeners,
  setMaxListeners,
  listenerCount,
  addAbortListener,
  captureRejectionSymbol,
  captureRejections,
  errorMonitor,
  usingDomains,
});
Object.defineProperty(EventEmitter, 'defaultMaxListeners', {
  enumerable: true,
  get: () => defaultMaxListeners,
  set(many) {
    if (typeof many !== 'number' || many < 0 || Number.isNaN(many)) {
      throw outOfRange('defaultMaxListeners', 'a non-negative number', many);
    }
    defaultMaxListeners = many;
  },
});

export const { init } = EventEmitter;
export default EventEmitter;
