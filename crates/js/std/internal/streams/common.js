// What the classes of the web's streams share: https://streams.spec.whatwg.org.

import { coded, wrongType } from 'internal/errors';

export const RESOLVED = Promise.resolve();
export const noop = () => {};
export const inspectCustom = Symbol.for('nodejs.util.inspect.custom');

/** The key that makes an instance of a class whose constructor is not public. */
export const INSIDE = Symbol('inside');

export const illegal = () => coded(TypeError, 'ERR_ILLEGAL_CONSTRUCTOR', 'Illegal constructor');

export const invalidState = (why) => coded(TypeError, 'ERR_INVALID_STATE', `Invalid state: ${why}`);

export const invalidThis = (type) =>
  coded(TypeError, 'ERR_INVALID_THIS', `Value of "this" must be of type ${type}`);

/**
 * A promise that is settled from outside and made when it is first asked for. Nobody has to listen to it: as the
 * standard says of `closed` and `ready`, its rejection is never unhandled.
 */
export class Deferred {
  #state = 'pending';
  #value;
  #promise;
  #settle;

  static resolved(value) {
    const made = new Deferred();
    made.resolve(value);
    return made;
  }

  static rejected(reason) {
    const made = new Deferred();
    made.reject(reason);
    return made;
  }

  get pending() {
    return this.#state === 'pending';
  }

  get promise() {
    if (this.#promise) return this.#promise;
    if (this.#state === 'fulfilled') this.#promise = Promise.resolve(this.#value);
    else if (this.#state === 'rejected') this.#promise = Promise.reject(this.#value);
    else {
      this.#promise = new Promise((resolve, reject) => {
        this.#settle = { resolve, reject };
      });
    }
    this.#promise.catch(noop);
    return this.#promise;
  }

  resolve(value) {
    if (this.#state !== 'pending') return;
    this.#state = 'fulfilled';
    this.#value = value;
    this.#settle?.resolve(value);
    this.#settle = undefined;
  }

  reject(reason) {
    if (this.#state !== 'pending') return;
    this.#state = 'rejected';
    this.#value = reason;
    this.#settle?.reject(reason);
    this.#settle = undefined;
  }
}

/** Values in order. Removing the first one does not move the others. */
export class Fifo {
  #items = [];
  #head = 0;

  get length() {
    return this.#items.length - this.#head;
  }

  get first() {
    return this.#items[this.#head];
  }

  push(item) {
    this.#items.push(item);
  }

  shift() {
    const item = this.#items[this.#head];
    this.#items[this.#head] = undefined;
    this.#head += 1;
    if (this.#head === this.#items.length) {
      this.#items = [];
      this.#head = 0;
    } else if (this.#head >= 256 && this.#head * 2 >= this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }

  /** Removes and returns all. */
  take() {
    const items = this.#items.slice(this.#head);
    this.#items = [];
    this.#head = 0;
    return items;
  }
}

/** A queue with sizes. */
export class SizedQueue {
  #entries = new Fifo();
  total = 0;

  get length() {
    return this.#entries.length;
  }

  get first() {
    return this.#entries.first.value;
  }

  push(value, size) {
    const number = Number(size);
    if (Number.isNaN(number) || number < 0 || number === Infinity) {
      throw coded(
        RangeError,
        'ERR_INVALID_ARG_VALUE',
        `The argument 'size' is invalid. Received ${String(size)}`,
      );
    }
    this.#entries.push({ value, size: number });
    this.total += number;
  }

  shift() {
    const { value, size } = this.#entries.shift();
    this.total = Math.max(0, this.total - size);
    return value;
  }

  clear() {
    this.#entries.take();
    this.total = 0;
  }
}

/** Calls something of the user's that may return a promise, or throw. */
export function promised(run) {
  try {
    return Promise.resolve(run());
  } catch (error) {
    return Promise.reject(error);
  }
}

/** A member of the user's dictionary that has to be a function. */
export function method(from, name, of) {
  const found = from[name];
  if (found === undefined) return undefined;
  if (typeof found !== 'function') throw wrongType(`${of}.${name}`, 'of type function', found);
  return found;
}

export function dictionary(value, name) {
  if (value === undefined) return {};
  if (value === null && name !== 'source' && name !== 'sink' && name !== 'transformer') return {};
  if (value === null || (typeof value !== 'object' && typeof value !== 'function'))
    throw wrongType(name, 'of type object', value);
  return value;
}

/** The `highWaterMark` and the `size` of a strategy. */
export function strategyOf(strategy, mark) {
  const { highWaterMark, size } = dictionary(strategy, 'strategy');
  if (size !== undefined && typeof size !== 'function')
    throw wrongType('strategy.size', 'of type function', size);
  const high = highWaterMark === undefined ? mark : Number(highWaterMark);
  if (Number.isNaN(high) || high < 0) {
    throw coded(
      RangeError,
      'ERR_INVALID_ARG_VALUE',
      `The property 'strategy.highWaterMark' is invalid. Received ${String(highWaterMark)}`,
    );
  }
  return { high, size };
}

/** Makes the members of a class enumerable, as those of web interfaces are, and names its instances. */
export function webInterface(Class) {
  const prototype = Class.prototype;
  for (const name of Object.getOwnPropertyNames(prototype)) {
    if (name !== 'constructor') Object.defineProperty(prototype, name, { enumerable: true });
  }
  Object.defineProperty(prototype, Symbol.toStringTag, { configurable: true, value: Class.name });
}

/** What `util.inspect` prints of a stream. */
export function shown(name, members, depth, options, inspect) {
  if (typeof depth === 'number' && depth < 0) return `${name} {}`;
  const next = options.depth === null || options.depth === undefined ? options.depth : options.depth - 1;
  return `${name} ${inspect(members, { ...options, depth: next })}`;
}

const byteLength = Object.getOwnPropertyDescriptor({ size: ({ byteLength }) => byteLength }, 'size').value;
const count = Object.getOwnPropertyDescriptor({ size: () => 1 }, 'size').value;

function highWaterMarkOf(init) {
  if (init === null || typeof init !== 'object') throw wrongType('init', 'of type object', init);
  if (init.highWaterMark === undefined) {
    throw coded(TypeError, 'ERR_MISSING_OPTION', 'options.highWaterMark is required');
  }
  return Number(init.highWaterMark);
}

export class ByteLengthQueuingStrategy {
  #mark;

  constructor(init) {
    this.#mark = highWaterMarkOf(init);
  }

  get highWaterMark() {
    return this.#mark;
  }

  get size() {
    if (!(#mark in this)) throw invalidThis('ByteLengthQueuingStrategy');
    return byteLength;
  }

  [inspectCustom](depth, options, inspect) {
    return shown('ByteLengthQueuingStrategy', { highWaterMark: this.#mark }, depth, options, inspect);
  }
}

export class CountQueuingStrategy {
  #mark;

  constructor(init) {
    this.#mark = highWaterMarkOf(init);
  }

  get highWaterMark() {
    return this.#mark;
  }

  get size() {
    if (!(#mark in this)) throw invalidThis('CountQueuingStrategy');
    return count;
  }

  [inspectCustom](depth, options, inspect) {
    return shown('CountQueuingStrategy', { highWaterMark: this.#mark }, depth, options, inspect);
  }
}

webInterface(ByteLengthQueuingStrategy);
webInterface(CountQueuingStrategy);
