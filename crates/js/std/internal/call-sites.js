// What V8's call sites tell beside where they are, for libraries that set `Error.prepareStackTrace`.

import { place } from 'internal/stack';

const facts = {
  isEval: () => false,
  isToplevel: () => true,
  isConstructor: () => false,
  isAsync: () => false,
  isPromiseAll: () => false,
  getEvalOrigin: () => undefined,
  getThis: () => undefined,
  getTypeName: () => null,
  getFunction: () => undefined,
  getMethodName: () => null,
  getPromiseIndex: () => null,
  getScriptHash: () => '',
  getEnclosingColumnNumber: () => 0,
  getEnclosingLineNumber: () => 0,
  getPosition: () => 0,
  getScriptNameOrSourceURL() {
    return this.getFileName();
  },
  toString() {
    const name = this.getFunctionName();
    return name ? `${name} (${place(this)})` : place(this);
  },
};

let done = false;

/** Completes the call sites, once; `prepare` sets what is called with them. */
export function complete(prepare) {
  if (done) return;
  done = true;
  let sites = [];
  prepare((error, given) => {
    sites = given;
  });
  void new Error().stack;
  const prototype = sites.length > 0 && Object.getPrototypeOf(sites[0]);
  if (!prototype || prototype === Object.prototype) return;
  for (const name in facts) {
    if (!Object.hasOwn(prototype, name) || name === 'toString')
      Object.defineProperty(prototype, name, { value: facts[name], configurable: true, writable: true });
  }
}
