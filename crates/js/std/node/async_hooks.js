import { enter, frame, within } from 'internal/context';
import { checkFunction } from 'internal/errors';
import { startFollowing } from 'internal/follow';

let lastId = 1;

export class AsyncLocalStorage {
  #default;

  constructor(options) {
    startFollowing();
    this.#default = options?.defaultValue;
    this.name = options?.name ?? '';
  }

  run(store, run, ...given) {
    checkFunction(run, 'callback');
    return within(new Map(frame()).set(this, store), run, undefined, given);
  }

  exit(run, ...given) {
    const here = new Map(frame());
    here.delete(this);
    return within(here, run, undefined, given);
  }

  enterWith(store) {
    enter(new Map(frame()).set(this, store));
  }

  getStore() {
    const here = frame();
    return here.has(this) ? here.get(this) : this.#default;
  }

  disable() {
    const left = new Map(frame());
    left.delete(this);
    enter(left);
  }

  static bind(run) {
    const here = frame();
    return function bound(...given) {
      return within(here, run, this, given);
    };
  }

  static snapshot() {
    const here = frame();
    return (run, ...given) => within(here, run, undefined, given);
  }
}

export class AsyncResource {
  #frame = frame();
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
  AsyncLocalStorage,
  AsyncResource,
  asyncWrapProviders,
  createHook,
  executionAsyncId,
  executionAsyncResource,
  triggerAsyncId,
};
