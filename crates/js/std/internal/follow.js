// What carries the stores of `AsyncLocalStorage` through promises, microtasks and every `await`.

import native from 'native/frames';
import { begin, follow } from 'internal/context';

let looking;

function define(object, name, value, enumerable = false) {
  Object.defineProperty(object, name, { value, configurable: true, enumerable, writable: true });
}

/** From the first storage on, promises and microtasks are followed too. */
export function startFollowing() {
  if (!begin()) return;
  const { then } = Promise.prototype;
  const { resolve } = Promise;
  const queue = globalThis.queueMicrotask;

  // What asks a promise for its `constructor` here is not an `await`.
  const asIs = (promise, run, thisArg, given) => {
    const before = looking;
    looking = promise;
    try {
      return Reflect.apply(run, thisArg, given);
    } finally {
      looking = before;
    }
  };
  define(
    Promise.prototype,
    'then',
    {
      // oxlint-disable-next-line unicorn/no-thenable
      then(kept, refused) {
        return asIs(this, then, this, [follow(kept), follow(refused)]);
      },
    }.then,
  );
  define(
    Promise,
    'resolve',
    {
      resolve(value) {
        return asIs(value, resolve, this, [value]);
      },
    }.resolve,
  );
  define(
    globalThis,
    'queueMicrotask',
    {
      queueMicrotask(callback) {
        queue(follow(callback));
      },
    }.queueMicrotask,
  );

  // An `await` of a promise reads its `constructor`, and then queues what goes on, or has the promise queue it. What
  // is done here comes right before.
  Object.defineProperty(Promise.prototype, 'constructor', {
    get() {
      if (this !== looking && this instanceof Promise) {
        if (native.pending(this)) {
          const here = native.frame();
          const hold = () => native.hold(here);
          asIs(this, then, this, [hold, hold]);
        } else {
          native.mark();
        }
      }
      return Promise;
    },
    set(value) {
      define(this, 'constructor', value, true);
    },
    configurable: true,
  });
  native.start();
}
