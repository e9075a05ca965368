// Which stores of `AsyncLocalStorage` are seen. What carries them through promises is in `internal/follow`.

import native from 'native/frames';

const none = new Map();
let following = false;

export const frame = () => native.frame() ?? none;

export const { enter } = native;

export function within(next, run, thisArg, given) {
  const before = native.frame();
  enter(next);
  try {
    return Reflect.apply(run, thisArg, given);
  } finally {
    enter(before);
  }
}

/** The callback, which will see the stores that are seen now. */
export function follow(callback) {
  if (!following || typeof callback !== 'function') return callback;
  const then = native.frame();
  return function followed(...given) {
    return within(then, resume, undefined, [callback, this, given]);
  };
}

// The callback may be what settles an object with a `then` that is awaited.
function resume(callback, thisArg, given) {
  native.mark();
  return Reflect.apply(callback, thisArg, given);
}

/** From the first storage on. Whether it is the first. */
export function begin() {
  if (following) return false;
  following = true;
  return true;
}
