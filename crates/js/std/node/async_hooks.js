// The engine does not tell where a promise goes on, so a store is seen by what `run` calls before its first
// `await`, by timers and listeners bound there, and no further.

import { checkFunction } from 'internal/errors';

let current = new Map();
let lastId = 1;

function within(frame, run, thisArg, given) {
  const before = current;
  current = frame;
  try {
    return Reflect.apply(run, thisArg, given);
  } finally {
    current = before;
  }
}

export class AsyncLocalStorage {
  #default;

  constructor(options) {
    this.#default = options?.defaultValue;
    this.name = options?.name ?? '';
  }

  run(store, run, ...given) {
    checkFunction(run, 'callback');
    return within(new Map(current).set(this, store), run, undefined, given);
  }

  exit(run, ...given) {
    const frame = new Map(current);
    frame.delete(this);
    return within(frame, run, undefined, given);
  }

  enterWith(store) {
    current = new Map(current).set(this, store);
  }

  getStore() {
    return current.has(this) ? current.get(this) : this.#default;
  }

  disable() {
    current = new Map(current);
    current.delete(this);
  }

  static bind(run) {
    const frame = current;
    return function bound(...given) {
      return within(frame, run, this, given);
    };
  }

  static snapshot() {
    const frame = current;
    return (run, ...given) => within(frame, run, undefined, given);
  }
}

export class AsyncResource {
  #frame = current;
  #id = (lastId += 1);

  constructor(type) {
    this.type = type;
  }

  runInAsyncScope(run, thisArg, ...given) {
    return within(this.#frame, run, thisArg, given);
  }

  emitDestroy() {
    return this;
  }

  asyncId() {
    return this.#id;
  }

  triggerAsyncId() {
    return 1;
  }

  bind(run) {
    const resource = this;
    return function bound(...given) {
      return resource.runInAsyncScope(run, this, ...given);
    };
  }

  static bind(run, type) {
    return new AsyncResource(type ?? run.name).bind(run);
  }
}

export const executionAsyncId = () => 1;
export const triggerAsyncId = () => 1;
export const executionAsyncResource = () => ({});
export const asyncWrapProviders = Object.freeze({});

export function createHook() {
  const hook = { enable: () => hook, disable: () => hook };
  return hook;
}

export default {
  AsyncLocalStorage, AsyncResource, asyncWrapProviders, createHook, executionAsyncId, executionAsyncResource,
  triggerAsyncId,
};
