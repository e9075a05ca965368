// What tests put in the place of functions and properties, until it is restored.

import { checkFunction, checkObject, outOfRange, wrongType, wrongValue } from 'internal/errors';
import { MockTimers } from 'internal/mock-timers';

function checkCount(value, name, least) {
  if (typeof value !== 'number') throw wrongType(name, 'of type number', value);
  if (!Number.isInteger(value)) throw outOfRange(name, 'an integer', value);
  if (value < least) throw outOfRange(name, `>= ${least} && <= ${Number.MAX_SAFE_INTEGER}`, value);
}

/** How often a replaced function may be called before it is restored. */
function timesOf({ times = Infinity }) {
  if (times !== Infinity) checkCount(times, 'options.times', 1);
  return times;
}

/** The `mock` of a replaced function. */
class FunctionContext {
  #calls = [];
  #once = new Map();
  #implementation;
  #restore;
  #times;

  constructor(implementation, restore, times) {
    this.#implementation = implementation;
    this.#restore = restore;
    this.#times = times;
  }

  get calls() {
    return [...this.#calls];
  }

  callCount() {
    return this.#calls.length;
  }

  mockImplementation(implementation) {
    checkFunction(implementation, 'implementation');
    this.#implementation = implementation;
  }

  mockImplementationOnce(implementation, onCall = this.#calls.length) {
    checkFunction(implementation, 'implementation');
    checkCount(onCall, 'onCall', this.#calls.length);
    this.#once.set(onCall, implementation);
  }

  resetCalls() {
    this.#calls = [];
  }

  restore() {
    this.#implementation = this.#restore() ?? this.#implementation;
  }

  /** Runs the function with what runs it, and notes the call. */
  static run(context, how, receiver, given, target) {
    const at = context.#calls.length;
    const implementation = context.#once.get(at) ?? context.#implementation;
    context.#once.delete(at);
    if (at + 1 === context.#times) context.restore();
    const call = { arguments: given, error: undefined, result: undefined, stack: new Error(), target };
    try {
      call.result = how(implementation);
      return call.result;
    } catch (error) {
      call.error = error;
      throw error;
    } finally {
      call.this = target === undefined ? receiver : call.result;
      context.#calls.push(call);
    }
  }
}

/** The `mock` of a replaced property. */
class PropertyContext {
  #accesses = [];
  #once = new Map();
  #object;
  #name;
  #descriptor;
  #original;
  #value;

  constructor(object, name, given) {
    this.#descriptor = Object.getOwnPropertyDescriptor(object, name);
    if (!this.#descriptor) throw wrongValue('propertyName', name, 'is not a property of the object');
    this.#object = object;
    this.#name = name;
    this.#original = object[name];
    this.#value = given.length > 0 ? given[0] : this.#original;
    const { configurable, enumerable } = this.#descriptor;
    Object.defineProperty(object, name, {
      configurable,
      enumerable,
      get: () => this.#note('get', this.#value),
      set: (value) => {
        this.mockImplementation(value);
      },
    });
  }

  #note(type, usual) {
    const at = this.#accesses.length;
    const value = this.#once.has(at) ? this.#once.get(at) : usual;
    this.#once.delete(at);
    this.#accesses.push({ type, value, stack: new Error() });
    return value;
  }

  get accesses() {
    return [...this.#accesses];
  }

  accessCount() {
    return this.#accesses.length;
  }

  mockImplementation(value) {
    if (!this.#descriptor.writable) throw wrongValue('propertyName', this.#name, 'cannot be set');
    this.#value = this.#note('set', value);
  }

  mockImplementationOnce(value, onAccess = this.#accesses.length) {
    checkCount(onAccess, 'onAccess', this.#accesses.length);
    this.#once.set(onAccess, value);
  }

  resetAccesses() {
    this.#accesses = [];
  }

  restore() {
    Object.defineProperty(this.#object, this.#name, { ...this.#descriptor, value: this.#original });
  }
}

/** The property of an object or of what it inherits from. */
function descriptorOf(object, name) {
  for (let at = object; at !== null && at !== undefined; at = Object.getPrototypeOf(at)) {
    const found = Object.getOwnPropertyDescriptor(at, name);
    if (found) return found;
  }
  return undefined;
}

const isOptions = (value) => value !== null && typeof value === 'object';

/** An object whose member `mock` is the context. */
const withContext = (object, context, handlers) =>
  new Proxy(object, {
    ...handlers,
    get: (target, name, receiver) => (name === 'mock' ? context : Reflect.get(target, name, receiver)),
  });

/** Functions that remember how they were called, and timers that a test moves. */
export class MockTracker {
  #restores = [];
  #timers;

  get timers() {
    this.#timers ??= new MockTimers();
    return this.#timers;
  }

  #replace(original, implementation, restore, options) {
    const context = new FunctionContext(implementation, restore, timesOf(options));
    const spy = withContext(original, context, {
      apply: (_, receiver, given) =>
        FunctionContext.run(context, (run) => Reflect.apply(run, receiver, given), receiver, given),
      construct: (target, given, from) =>
        FunctionContext.run(context, (run) => Reflect.construct(run, given, from), undefined, given, target),
    });
    this.#restores.push(() => context.restore());
    return spy;
  }

  fn(original = function () {}, implementation = original, options = {}) {
    if (isOptions(original)) {
      options = original;
      original = function () {};
      implementation = original;
    } else if (isOptions(implementation)) {
      options = implementation;
      implementation = original;
    }
    checkFunction(original, 'original');
    checkFunction(implementation, 'implementation');
    checkObject(options, 'options');
    return this.#replace(original, implementation, () => original, options);
  }

  method(object, name, implementation = undefined, options = {}) {
    if (typeof name !== 'string' && typeof name !== 'symbol')
      throw wrongType('methodName', 'one of type string or symbol', name);
    if (typeof object !== 'function') checkObject(object, 'object');
    if (isOptions(implementation)) [implementation, options] = [undefined, implementation];
    if (implementation !== undefined) checkFunction(implementation, 'implementation');
    checkObject(options, 'options');
    const { getter = false, setter = false } = options;
    if (getter && setter) throw wrongValue('options.setter', setter, "cannot be used with 'options.getter'");
    const member = (getter && 'get') || (setter && 'set') || 'value';
    const found = descriptorOf(object, name);
    const original = found?.[member];
    if (typeof original !== 'function') throw wrongValue('methodName', original, 'must be a method');
    const own = Object.getOwnPropertyDescriptor(object, name);
    const restore = () => {
      if (own) Object.defineProperty(object, name, own);
      else delete object[name];
    };
    const spy = this.#replace(original, implementation ?? original, restore, options);
    Object.defineProperty(object, name, { ...found, [member]: spy });
    return spy;
  }

  getter(object, name, implementation, options = {}) {
    return this.#accessor('getter', object, name, implementation, options);
  }

  setter(object, name, implementation, options = {}) {
    return this.#accessor('setter', object, name, implementation, options);
  }

  #accessor(kind, object, name, implementation, options) {
    if (isOptions(implementation)) [implementation, options] = [undefined, implementation];
    if (options[kind] === false) throw wrongValue(`options.${kind}`, false, 'cannot be false');
    return this.method(object, name, implementation, { ...options, [kind]: true });
  }

  property(object, name, ...given) {
    checkObject(object, 'object');
    if (typeof name !== 'string' && typeof name !== 'symbol')
      throw wrongType('propertyName', 'one of type string or symbol', name);
    const context = new PropertyContext(object, name, given);
    this.#restores.push(() => context.restore());
    return withContext(object, context, {});
  }

  restoreAll() {
    for (const restore of this.#restores) restore();
  }

  reset() {
    this.restoreAll();
    this.#restores = [];
    this.#timers?.reset();
  }
}
