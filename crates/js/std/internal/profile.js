// The functions that run, for CPU profiles. `frames` is called between two instructions of a plugin: it uses only what is
// captured here before a plugin runs, calls nothing of the plugin, and leaves what the plugin has set as it was.

import native from 'native/globals';

const { apply } = Reflect;
const EngineError = Error;
const own = (target, name) => Object.getOwnPropertyDescriptor(target, name);

/** The engine's settings of stacks. Their setters accept any `this`, so an assignment allocates nothing. */
const engine = Object.create(null, {
  prepare: own(Error, 'prepareStackTrace'),
  limit: own(Error, 'stackTraceLimit'),
});
const file = own(Function.prototype, 'fileName').get;
const line = own(Function.prototype, 'lineNumber').get;
const column = own(Function.prototype, 'columnNumber').get;

/** The most frames that the engine returns. */
const MOST = 64;
/** The innermost frames, which are functions of this module: `take` and `frames`. */
const OWN = 2;

let sites;

function deliver(_, given) {
  sites = given;
}

function take() {
  const { prepare, limit } = engine;
  engine.prepare = deliver;
  // The engine does not release the limit that it replaces.
  if (typeof limit === 'number') engine.limit = MOST;
  try {
    void new EngineError();
  } finally {
    engine.prepare = prepare;
    if (typeof limit === 'number') engine.limit = limit;
  }
  const taken = sites;
  sites = undefined;
  return taken;
}

const { getFunction, getFunctionName } = Object.getPrototypeOf(take()[0]);

/** Returns name, file, line and column of each function that runs, one after the other, the innermost first. */
export function frames() {
  const called = take();
  const listed = [];
  // There is none during the preparation of another stack.
  if (called === undefined) return listed;
  for (let at = OWN; at < called.length; at += 1) {
    const of = apply(getFunction, called[at], []);
    const next = listed.length;
    listed[next] = apply(getFunctionName, called[at], []) ?? '';
    listed[next + 1] = apply(file, of, []);
    listed[next + 2] = apply(line, of, []);
    listed[next + 3] = apply(column, of, []);
  }
  return listed;
}

native.readFramesWith(frames);
