// What packages import and plugins seldom call.

import { missing } from 'internal/errors';

const lacking = new WeakSet();

/** A function that is there to be imported, and says that it is not there when it is called. */
export function absent(what) {
  const call = function () {
    throw missing(what);
  };
  Object.defineProperty(call, 'name', { value: what.slice(what.indexOf('.') + 1), configurable: true });
  lacking.add(call);
  return call;
}

/** Whether a function only says that it is not there. */
export const isAbsent = (value) => lacking.has(value);
