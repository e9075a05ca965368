// `EventTarget` and its events, `AbortController` and its signal.

import { setTimeout } from 'internal/timers';
import { wrongType } from 'internal/errors';
import { enumerable, shown } from 'internal/members';

const kListeners = Symbol.for('ostler.listeners');

export class Event {
  #type;
  #bubbles;
  #cancelable;
  #composed;
  #prevented = false;
  #halted = false;
  #time = performance.now();
  _target = null;
  _dispatching = false;
  _stopped = false;
  _passive = false;

  constructor(type, options = {}) {
    if (arguments.length === 0) throw wrongType('type', 'given', undefined);
    this.#type = `${type}`;
    this.#bubbles = !!options?.bubbles;
    this.#cancelable = !!options?.cancelable;
    this.#composed = !!options?.composed;
    for (const inner of ['_target', '_dispatching', '_stopped', '_passive']) {
      Object.defineProperty(this, inner, { enumerable: false, writable: true });
    }
  }

  get type() {
    return this.#type;
  }
  get target() {
    return this._target;
  }
  get currentTarget() {
    return this._dispatching ? this._target : null;
  }
  get srcElement() {
    return this._target;
  }
  get bubbles() {
    return this.#bubbles;
  }
  get cancelable() {
    return this.#cancelable;
  }
  get composed() {
    return this.#composed;
  }
  get defaultPrevented() {
    return this.#prevented;
  }
  get returnValue() {
    return !this.#prevented;
  }
  get timeStamp() {
    return this.#time;
  }
  get eventPhase() {
    return this._dispatching ? Event.AT_TARGET : Event.NONE;
  }
  get isTrusted() {
    return false;
  }
  composedPath() {
    return this._dispatching ? [this._target] : [];
  }
  preventDefault() {
    if (this.#cancelable && !this._passive) this.#prevented = true;
  }
  get cancelBubble() {
    return this.#halted;
  }
  set cancelBubble(value) {
    if (value) this.#halted = true;
  }
  stopPropagation() {
    this.#halted = true;
  }
  stopImmediatePropagation() {
    this.#halted = true;
    this._stopped = true;
  }
  get [Symbol.toStringTag]() {
    return 'Event';
  }

  static NONE = 0;
  static CAPTURING_PHASE = 1;
  static AT_TARGET = 2;
  static BUBBLING_PHASE = 3;
}

export class CustomEvent extends Event {
  #detail;

  constructor(type, options = {}) {
    super(type, options);
    this.#detail = options?.detail ?? null;
  }

  get detail() {
    return this.#detail;
  }
}

export class MessageEvent extends Event {
  constructor(type, options = {}) {
    super(type, options);
    this.data = options?.data ?? null;
    this.origin = options?.origin ?? '';
    this.lastEventId = options?.lastEventId ?? '';
    this.source = null;
    this.ports = [];
  }
}

export class CloseEvent extends Event {
  constructor(type, options = {}) {
    super(type, options);
    this.wasClean = options?.wasClean ?? false;
    this.code = options?.code ?? 0;
    this.reason = options?.reason ?? '';
  }
}

export class ErrorEvent extends Event {
  constructor(type, options = {}) {
    super(type, options);
    this.message = options?.message ?? '';
    this.error = options?.error ?? null;
  }
}

export class EventTarget {
  #listeners = new Map();

  addEventListener(type, callback, options) {
    if (callback == null) return;
    if (typeof callback !== 'function' && typeof callback !== 'object') {
      throw wrongType('listener', 'of type function or an object', callback);
    }
    const {
      capture = false,
      once = false,
      passive = false,
      signal,
    } = typeof options === 'boolean' ? { capture: options } : (options ?? {});
    if (signal?.aborted) return;
    type = `${type}`;
    const list = this.#listeners.get(type) ?? [];
    if (list.some((known) => known.callback === callback && known.capture === !!capture)) return;
    const listener = { callback, capture: !!capture, once: !!once, passive: !!passive, removed: false };
    this.#listeners.set(type, [...list, listener]);
    signal?.addEventListener('abort', () => this.removeEventListener(type, callback, options), {
      once: true,
    });
  }

  removeEventListener(type, callback, options) {
    type = `${type}`;
    const capture = !!(typeof options === 'boolean' ? options : options?.capture);
    const list = this.#listeners.get(type);
    const found = list?.find((known) => known.callback === callback && known.capture === capture);
    if (!found) return;
    found.removed = true;
    this.#listeners.set(
      type,
      list.filter((known) => known !== found),
    );
  }

  dispatchEvent(event) {
    if (!(event instanceof Event)) throw wrongType('event', 'an instance of Event', event);
    if (event._dispatching)
      throw new DOMException('The event is already being dispatched', 'InvalidStateError');
    event._target = this;
    event._dispatching = true;
    event._stopped = false;
    for (const listener of this.#listeners.get(event.type) ?? []) {
      if (listener.removed) continue;
      if (listener.once) this.removeEventListener(event.type, listener.callback, listener.capture);
      event._passive = listener.passive;
      try {
        const { callback } = listener;
        if (typeof callback === 'function') callback.call(this, event);
        else callback.handleEvent?.(event);
      } catch (error) {
        // One listener's failure is not the dispatcher's.
        queueMicrotask(() => {
          throw error;
        });
      }
      event._passive = false;
      if (event._stopped) break;
    }
    event._dispatching = false;
    return !event.defaultPrevented;
  }

  [kListeners](type) {
    return (this.#listeners.get(type) ?? []).map(({ callback }) => callback);
  }

  get [Symbol.toStringTag]() {
    return 'EventTarget';
  }
}

Object.defineProperty(EventTarget.prototype, kListeners, { enumerable: false });

/** Gives a class `on<type>` properties. */
export function handlers(Class, ...types) {
  for (const type of types) {
    const key = Symbol(`on${type}`);
    Object.defineProperty(Class.prototype, `on${type}`, {
      configurable: true,
      enumerable: true,
      get() {
        return this[key]?.handler ?? null;
      },
      set(handler) {
        if (this[key]) this.removeEventListener(type, this[key].call);
        this[key] = undefined;
        if (typeof handler !== 'function') return;
        const call = (event) => this[key].handler.call(this, event);
        Object.defineProperty(this, key, { value: { handler, call }, writable: true, enumerable: false });
        this.addEventListener(type, call);
      },
    });
  }
}

const inside = Symbol('inside');

export class AbortSignal extends EventTarget {
  #aborted = false;
  #reason;
  #followers = new Set();

  constructor(key) {
    if (key !== inside) throw new TypeError('Illegal constructor');
    super();
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return shown(this, { aborted: this.aborted }, depth, options, inspect);
  }

  get aborted() {
    return this.#aborted;
  }

  get reason() {
    return this.#reason;
  }

  throwIfAborted() {
    if (this.#aborted) throw this.#reason;
  }

  _abort(reason) {
    if (this.#aborted) return;
    this.#aborted = true;
    this.#reason =
      reason === undefined ? new DOMException('This operation was aborted', 'AbortError') : reason;
    this.dispatchEvent(new Event('abort'));
    for (const follower of this.#followers) follower._abort(this.#reason);
    this.#followers.clear();
  }

  get [Symbol.toStringTag]() {
    return 'AbortSignal';
  }

  static abort(reason) {
    const signal = new AbortSignal(inside);
    signal._abort(reason);
    return signal;
  }

  static timeout(milliseconds) {
    const signal = new AbortSignal(inside);
    const give = () =>
      signal._abort(new DOMException('The operation was aborted due to timeout', 'TimeoutError'));
    setTimeout(give, milliseconds).unref();
    return signal;
  }

  static any(signals) {
    const all = [...signals];
    const signal = new AbortSignal(inside);
    const aborted = all.find((each) => each.aborted);
    if (aborted) signal._abort(aborted.reason);
    else for (const each of all) each.#followers.add(signal);
    return signal;
  }
}

Object.defineProperty(AbortSignal.prototype, '_abort', { enumerable: false });
handlers(AbortSignal, 'abort');

export class AbortController {
  #signal = new AbortSignal(inside);

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return shown(this, { signal: this.signal }, depth, options, inspect);
  }

  get signal() {
    return this.#signal;
  }

  abort(reason) {
    this.#signal._abort(reason);
  }

  get [Symbol.toStringTag]() {
    return 'AbortController';
  }
}

enumerable([AbortController, CloseEvent, CustomEvent, ErrorEvent, Event, EventTarget, MessageEvent]);
for (const Class of [CloseEvent, CustomEvent, ErrorEvent, MessageEvent])
  Object.defineProperty(Class.prototype, Symbol.toStringTag, { configurable: true, value: Class.name });
Object.defineProperty(AbortSignal.prototype, 'aborted', { enumerable: true });
