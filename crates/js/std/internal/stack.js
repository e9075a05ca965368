// Stacks as V8 writes them: the error on the first line. Libraries print `error.stack` and expect its message.

/** What only makes errors for others is no place an author looks for. */
const makers = ['ostler:internal/bridge', 'ostler:internal/errors'];

function place(site) {
  const file = site.getFileName();
  if (file === null || file === undefined || site.isNative()) return 'native';
  return `${file}:${site.getLineNumber()}:${site.getColumnNumber()}`;
}

export function prepareStackTrace(error, sites) {
  let head = 'Error';
  try {
    head = Error.prototype.toString.call(error);
  } catch {
    // An error that cannot be told is still an error.
  }
  for (const site of sites) {
    if (makers.includes(site.getFileName())) continue;
    const name = site.getFunctionName();
    head += name ? `\n    at ${name} (${place(site)})` : `\n    at ${place(site)}`;
  }
  return head;
}

/** What V8's call sites tell beside where they are. */
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

/** Completes the call sites that `Error.prepareStackTrace` of a library is called with. */
export function completeCallSites() {
  let sites = [];
  Error.prepareStackTrace = (error, given) => {
    sites = given;
  };
  void new Error().stack;
  const prototype = sites.length > 0 && Object.getPrototypeOf(sites[0]);
  if (!prototype || prototype === Object.prototype) return;
  for (const name in facts) {
    if (!Object.hasOwn(prototype, name) || name === 'toString')
      Object.defineProperty(prototype, name, { value: facts[name], configurable: true, writable: true });
  }
}
