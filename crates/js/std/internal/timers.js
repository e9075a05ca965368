// `setTimeout` and its like, as Node's authors know them: the handle is an object.

import native from 'native/timers';
import { follow } from 'internal/context';
import { wrongType } from 'internal/errors';

const LONGEST = 2 ** 31 - 1;

const running = new Map();

function check(callback) {
  if (typeof callback !== 'function') throw wrongType('callback', 'of type function', callback);
}

function milliseconds(after) {
  after = Number(after);
  return after >= 1 && after <= LONGEST ? Math.trunc(after) : 1;
}

/** What every timer answers. A reference keeps a worker running; a plugin runs until it is unloaded. */
class Timer {
  #referenced = true;

  ref() {
    this.#referenced = true;
    native.reference(this._id, true);
    return this;
  }

  unref() {
    this.#referenced = false;
    native.reference(this._id, false);
    return this;
  }

  hasRef() {
    return this.#referenced;
  }

  [Symbol.dispose]() {
    this.close();
  }
}

export class Timeout extends Timer {
  #call;
  #after;
  #repeat;
  #id;

  constructor(callback, after, args, repeat) {
    super();
    check(callback);
    this.#after = milliseconds(after);
    this.#repeat = repeat;
    const call = follow(callback);
    this.#call = () => {
      if (!repeat) running.delete(this.#id);
      call.apply(this, args);
    };
    this.#start();
  }

  get _id() {
    return this.#id;
  }

  #start() {
    this.#id = native.start(this.#call, this.#after, this.#repeat);
    running.set(this.#id, this);
  }

  refresh() {
    if (running.has(this.#id)) {
      this.close();
      this.#start();
      if (!this.hasRef()) this.unref();
    }
    return this;
  }

  close() {
    native.stop(this.#id);
    running.delete(this.#id);
    return this;
  }

  [Symbol.toPrimitive]() {
    return this.#id;
  }
}

export class Immediate extends Timer {
  #id;

  constructor(callback, args) {
    super();
    check(callback);
    const call = follow(callback);
    this.#id = native.soon(() => call.apply(this, args));
  }

  get _id() {
    return this.#id;
  }

  close() {
    native.stop(this.#id);
  }
}

export function setTimeout(callback, after, ...args) {
  return new Timeout(callback, after, args, false);
}

export function setInterval(callback, after, ...args) {
  return new Timeout(callback, after, args, true);
}

export function setImmediate(callback, ...args) {
  return new Immediate(callback, args);
}

export function clearTimeout(timer) {
  if (timer instanceof Timeout || timer instanceof Immediate) timer.close();
  else if (typeof timer === 'number' || typeof timer === 'string') running.get(Number(timer))?.close();
}

export { clearTimeout as clearInterval, clearTimeout as clearImmediate };
