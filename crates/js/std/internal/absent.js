// What packages import and plugins seldom call. It throws where packages call it without asking, as functions of every version
// of Node and classes that others extend are; the rest is exported as `undefined`, so that those that ask with `typeof` are told.

import { missing } from 'internal/errors';

const lacking = new WeakSet();

/** A function that can be imported and throws when it is called; `instead` names an alternative. */
export function absent(what, instead) {
  const call = function () {
    throw missing(what, instead);
  };
  Object.defineProperty(call, 'name', { value: what.slice(what.indexOf('.') + 1), configurable: true });
  lacking.add(call);
  return call;
}

/** Whether a function only says that it is not there. */
export const isAbsent = (value) => lacking.has(value);
