// The tests of a module, one after the other in the order they were written: what stands behind `node:test`.

import { AbortController } from 'internal/event-target';
import { MockTimers } from 'internal/mock-timers';
import { clearTimeout, setTimeout } from 'internal/timers';

const TODO = Symbol('todo');

class Suite {
  before = [];
  after = [];
  beforeEach = [];
  afterEach = [];
  entries = [];

  constructor(name, parent) {
    this.name = name;
    this.parent = parent;
  }

  /** Hooks of this suite's kind, those of the outer ones first. */
  all(kind) {
    return [...(this.parent?.all(kind) ?? []), ...this[kind]];
  }

  full(name) {
    const outer = this.parent?.full('') ?? '';
    const own = [outer, this.name].filter(Boolean).join(' > ');
    return [own, name].filter(Boolean).join(' > ');
  }
}

const root = new Suite('');
const results = [];
let current = root;
let queue = Promise.resolve();
let only = false;

/** `(name?, options?, fn?)` in whichever order Node takes them. */
function read(given) {
  const name = typeof given[0] === 'string' ? given.shift() : undefined;
  const options = typeof given[0] === 'object' && given[0] !== null ? given.shift() : {};
  const [fn] = given;
  return { name: name ?? (fn?.name || '<anonymous>'), options, fn };
}

class Context {
  #suite;
  #after = [];
  #subtests = Promise.resolve();
  #mock;

  constructor(suite, name) {
    this.#suite = suite;
    this.name = name;
    this.fullName = suite.full(name);
    this.signal = new AbortController().signal;
  }

  test(...given) {
    const { name, options, fn } = read(given);
    const inner = new Suite(this.name, this.#suite);
    const done = this.#subtests.then(() => runTest(inner, name, options, fn));
    this.#subtests = done.catch(() => {});
    return done;
  }

  /** What this test replaces, until it ends. */
  get mock() {
    this.#mock ??= new MockTracker();
    return this.#mock;
  }

  skip(why) {
    throw Object.assign(new Error(why ?? ''), { [TODO]: 'skipped' });
  }

  todo() {}

  diagnostic(line) {
    console.log(line);
  }

  before(fn) {
    return fn();
  }

  after(fn) {
    this.#after.push(fn);
  }

  beforeEach(fn) {
    this.#suite.beforeEach.push(fn);
  }

  afterEach(fn) {
    this.#suite.afterEach.push(fn);
  }

  async _end() {
    await this.#subtests;
    try {
      for (const fn of this.#after) await fn();
    } finally {
      this.#mock?.reset();
    }
  }
}

function limited(work, { timeout }, name) {
  if (!Number.isFinite(timeout)) return work;
  let timer;
  const late = new Promise((_, refuse) => {
    timer = setTimeout(() => refuse(new Error(`${name} did not end within ${timeout} ms`)), timeout);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

async function runTest(suite, name, options, fn) {
  const full = suite.full(name);
  if (options.skip || options.todo || !fn || (only && !options.only)) {
    results.push({ name: full, outcome: 'skipped' });
    return;
  }
  const context = new Context(suite, name);
  const failed = [];
  try {
    for (const hook of suite.all('beforeEach')) await hook(context);
    const given =
      fn.length > 1
        ? new Promise((resolve, reject) => fn(context, (error) => (error ? reject(error) : resolve())))
        : fn(context);
    await limited(Promise.resolve(given), options, full);
  } catch (error) {
    if (error?.[TODO]) {
      results.push({ name: full, outcome: error[TODO] });
      return;
    }
    failed.push(error);
  }
  for (const end of [() => context._end(), ...suite.all('afterEach').map((hook) => () => hook(context))]) {
    try {
      await end();
    } catch (error) {
      failed.push(error);
    }
  }
  results.push(
    failed.length === 0
      ? { name: full, outcome: 'passed' }
      : { name: full, outcome: 'failed', ...told(failed[0]) },
  );
}

function told(error) {
  if (!(error instanceof Error)) return { why: `${String(error)} was thrown, which is not an Error` };
  const frame = (error.stack ?? '')
    .split('\n')
    .find((line) => line.includes('/') && !line.includes('ostler:') && !line.includes('node:'));
  return { why: `${error.name}: ${error.message}`, at: frame?.trim().replace(/^at /, '') };
}

async function runSuite(suite, skipped) {
  if (!skipped) for (const hook of suite.before) await hook();
  for (const entry of suite.entries) await (skipped ? entry.skip() : entry.run());
  if (!skipped) for (const hook of suite.after) await hook();
}

function add(entry) {
  if (current !== root) {
    current.entries.push(entry);
    return Promise.resolve();
  }
  const done = queue.then(entry.run);
  queue = done.catch((error) => {
    results.push({ name: entry.name, outcome: 'failed', ...told(error) });
  });
  return queue;
}

export function test(...given) {
  const { name, options, fn } = read(given);
  const suite = current;
  if (options.only) only = true;
  return add({
    name: suite.full(name),
    run: () => runTest(suite, name, options, fn),
    skip: () => runTest(suite, name, { skip: true }, fn),
  });
}

export function suite(...given) {
  const { name, options, fn } = read(given);
  const inner = new Suite(name, current);
  const outer = current;
  current = inner;
  let collected;
  try {
    collected = fn?.({ name });
  } finally {
    current = outer;
  }
  if (typeof collected?.then === 'function')
    throw new TypeError('a suite is collected at once; await in its tests');
  const skipped = Boolean(options.skip || options.todo);
  return add({
    name: inner.full(''),
    run: () => runSuite(inner, skipped),
    skip: () => runSuite(inner, true),
  });
}

const hook = (kind) => (fn) => {
  current[kind].push(fn);
};
export const before = hook('before');
export const after = hook('after');
export const beforeEach = hook('beforeEach');
export const afterEach = hook('afterEach');

for (const [name, run] of Object.entries({ test, suite })) {
  run.skip = (...given) => {
    const { name, options, fn } = read(given);
    return run(name, { ...options, skip: true }, fn);
  };
  run.todo = run.skip;
  run.only = (...given) => {
    const { name, options, fn } = read(given);
    return run(name, { ...options, only: true }, fn);
  };
  Object.defineProperty(run, 'name', { value: name });
}

/** Functions that remember how they were called, and timers that a test moves. */
class MockTracker {
  #mocked = new Set();
  #timers;

  get timers() {
    this.#timers ??= new MockTimers();
    return this.#timers;
  }

  fn(original = () => undefined, implementation = original) {
    const calls = [];
    let behaves = implementation;
    const spy = function spy(...given) {
      const call = { arguments: given, this: this, result: undefined, error: undefined };
      calls.push(call);
      try {
        call.result = Reflect.apply(behaves, this, given);
        return call.result;
      } catch (error) {
        call.error = error;
        throw error;
      }
    };
    spy.mock = {
      calls,
      callCount: () => calls.length,
      resetCalls: () => calls.splice(0),
      mockImplementation: (next) => {
        behaves = next;
      },
      restore: () => {
        behaves = original;
      },
    };
    return spy;
  }

  method(object, name, implementation = object[name]) {
    const own = Object.getOwnPropertyDescriptor(object, name);
    const spy = this.fn(object[name], implementation);
    Object.defineProperty(object, name, { value: spy, configurable: true, writable: true });
    spy.mock.restore = () => {
      if (own) Object.defineProperty(object, name, own);
      else delete object[name];
      this.#mocked.delete(spy);
    };
    this.#mocked.add(spy);
    return spy;
  }

  restoreAll() {
    for (const spy of this.#mocked) spy.mock.restore();
  }

  reset() {
    this.restoreAll();
    this.#timers?.reset();
  }
}

export const mock = new MockTracker();

/** Every outcome, once all have run: for the host. */
export async function outcomes() {
  for (let seen; seen !== queue;) {
    seen = queue;
    await seen;
  }
  for (const end of root.after) await end();
  return results;
}
