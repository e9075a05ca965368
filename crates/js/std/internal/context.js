// Which stores of `AsyncLocalStorage` are seen. The engine does not tell where an `await` goes on; timers, ticks
// and `then` can be followed.

let current = new Map();
let following = false;

export const frame = () => current;

export function enter(next) {
  current = next;
}

export function within(next, run, thisArg, given) {
  const before = current;
  current = next;
  try {
    return Reflect.apply(run, thisArg, given);
  } finally {
    current = before;
  }
}

/** The callback, which will see the stores that are seen now. */
export function follow(callback) {
  if (!following || typeof callback !== 'function') return callback;
  const then = current;
  return function followed(...given) {
    return within(then, callback, this, given);
  };
}

/** From the first store on, promises and microtasks are followed too. */
export function startFollowing() {
  if (following) return;
  following = true;
  const { then } = Promise.prototype;
  const queue = globalThis.queueMicrotask;
  Object.defineProperty(Promise.prototype, 'then', {
    value: { then(kept, refused) { return Reflect.apply(then, this, [follow(kept), follow(refused)]); } }.then,
    configurable: true,
    writable: true,
  });
  Object.defineProperty(globalThis, 'queueMicrotask', {
    value: { queueMicrotask(callback) { queue(follow(callback)); } }.queueMicrotask,
    configurable: true,
    writable: true,
  });
}
