// The tests of a module, one after the other in the order they were written: what stands behind `node:test`.

import native from 'native/globals';
import { AbortController } from 'internal/event-target';
import { MockTracker } from 'internal/mock-functions';
import { checkFunction, checkObject, coded, outOfRange, wrongType } from 'internal/errors';
import { clearTimeout, setTimeout } from 'internal/timers';
import assert from 'node:assert';

const failure = (why) => coded(Error, 'ERR_TEST_FAILURE', why);

/** The functions of `node:assert` that a context has. `snapshot` and `fileSnapshot` are not there. */
const ASSERTIONS = (
  'deepEqual deepStrictEqual doesNotMatch doesNotReject doesNotThrow equal fail ifError match notDeepEqual ' +
  'notDeepStrictEqual notEqual notStrictEqual ok partialDeepStrictEqual rejects strictEqual throws'
).split(' ');
const registered = new Map();

/** Adds a function to the `assert` of contexts. */
export function register(name, fn) {
  if (typeof name !== 'string') throw wrongType('name', 'of type string', name);
  checkFunction(fn, 'fn');
  registered.set(name, fn);
}

/** How many assertions and subtests a test has to have. */
class Plan {
  #met;
  count = 0;

  constructor(expected, { wait = false }) {
    if (typeof wait !== 'boolean' && typeof wait !== 'number')
      throw wrongType('options.wait', 'one of type boolean or number', wait);
    this.expected = expected;
    this.wait = wait;
  }

  add() {
    this.count += 1;
    if (this.count === this.expected) this.#met?.();
  }

  /** Fails unless the count is reached, or comes to be while it may wait. */
  async check() {
    const { expected, wait } = this;
    if (this.count !== expected && wait !== false) {
      let timer;
      await new Promise((resolve, reject) => {
        this.#met = resolve;
        if (wait === true) return;
        const late = () =>
          failure(`plan timed out after ${wait}ms with ${this.count} assertions when expecting ${expected}`);
        timer = setTimeout(() => reject(late()), wait);
      }).finally(() => clearTimeout(timer));
    }
    if (this.count !== expected)
      throw failure(`plan expected ${expected} assertions but received ${this.count}`);
  }
}

class Suite {
  before = [];
  after = [];
  beforeEach = [];
  afterEach = [];
  entries = [];

  constructor(name, parent) {
    this.name = name;
    this.parent = parent;
    this.depth = parent ? parent.depth + 1 : 0;
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
let current = root;
let queue = Promise.resolve();
let only = false;

/** The longest time that a timer measures. */
const LONGEST = 2 ** 31 - 1;
/** What is awaited now: tests and hooks with the depths of their suites. */
const awaited = new Set();
let defaultLimit = Infinity;
let began = () => {};
let ended = () => {};
let changed = () => {};
let longest = 0;

/**
 * Sets the time limit of tests and hooks without one, and who learns of tests and of the longest limit of what is awaited: for the
 * host. Returns `stalled`.
 */
export function observe(limit, onBegan, onEnded, onChanged) {
  defaultLimit = limit;
  began = onBegan;
  ended = onEnded;
  changed = onChanged;
  return stalled;
}

function tellLongest() {
  let most = 0;
  for (const { limit } of awaited) most = Math.max(most, limit);
  if (most !== longest) changed((longest = most));
}

/** Fails the innermost of what is awaited: nothing is left that could settle it. Returns whether there was any. */
function stalled() {
  let innermost;
  for (const wait of awaited) if (!innermost || wait.depth >= innermost.depth) innermost = wait;
  if (!innermost) return false;
  awaited.delete(innermost);
  innermost.reject(failure('Promise resolution is still pending but the event loop has already resolved'));
  return true;
}

/** Awaits a test or a hook: until its time limit, and only as long as something can still settle it. */
function limited(run, timeout, what, { depth }) {
  const { promise: end, reject } = Promise.withResolvers();
  const limit = timeout ?? defaultLimit;
  const wait = { reject, depth, limit, byDefault: timeout === undefined };
  if (limit <= LONGEST) {
    const late = () => reject(failure(`${what} did not end within ${limit} ms`));
    // As in Node, a limit is nothing that a test can wait for.
    wait.timer = setTimeout(late, limit).unref();
  }
  awaited.add(wait);
  tellLongest();
  // In a job: the interruption of a test that runs for too long ends nothing else.
  return Promise.race([Promise.resolve().then(run), end]).finally(() => {
    clearTimeout(wait.timer);
    awaited.delete(wait);
    tellLongest();
  });
}

/** A hook, with its own time limit. */
const hooked = (run, options) => ({ run, timeout: options?.timeout });

const runHook = (hook, what, suite, context) => limited(() => hook.run(context), hook.timeout, what, suite);

/** Reports the end of a test. The default limit of the tests around it starts again. */
function report(name, outcome, { why, at } = {}) {
  for (const { byDefault, timer } of awaited) if (byDefault) timer?.refresh();
  ended(name, outcome, why, at);
}

/** `(name?, options?, fn?)` in whichever order Node takes them. */
function read(given) {
  const name = typeof given[0] === 'string' ? given.shift() : undefined;
  const options = typeof given[0] === 'object' && given[0] !== null ? given.shift() : {};
  const [fn] = given;
  return { name: name ?? (fn?.name || '<anonymous>'), options, fn };
}

class Context {
  #suite;
  /** Of its subtests. */
  #inner;
  #before = [];
  #after = [];
  #subtests = Promise.resolve();
  #failed = 0;
  #plan;
  #assert;
  #mock;
  skipped = false;

  constructor(suite, name) {
    this.#suite = suite;
    this.#inner = new Suite(name, suite);
    this.name = name;
    this.fullName = suite.full(name);
    this.signal = new AbortController().signal;
  }

  test(...given) {
    const { name, options, fn } = read(given);
    this.#plan?.add();
    const done = this.#subtests.then(async () => {
      if ((await runTest(this.#inner, name, options, fn)) === 'failed') this.#failed += 1;
    });
    this.#subtests = done.catch(() => {});
    return done;
  }

  plan(count, options = {}) {
    if (this.#plan) throw failure('cannot set plan more than once');
    if (typeof count !== 'number') throw wrongType('count', 'of type number', count);
    if (!Number.isInteger(count)) throw outOfRange('count', 'an integer', count);
    if (count < 0 || count >= 2 ** 32) throw outOfRange('count', '>= 0 && <= 4294967295', count);
    checkObject(options, 'options');
    this.#plan = new Plan(count, options);
  }

  /** The assertions, which the plan counts. */
  get assert() {
    this.#assert ??= Object.fromEntries(
      [...ASSERTIONS.map((name) => [name, assert[name]]), ...registered].map(([name, run]) => [
        name,
        (...given) => {
          this.#plan?.add();
          return Reflect.apply(run, this, given);
        },
      ]),
    );
    return this.#assert;
  }

  /** Calls a function until it does not throw. */
  waitFor(condition, options = {}) {
    checkFunction(condition, 'condition');
    checkObject(options, 'options');
    const { interval = 50, timeout = 1000 } = options;
    for (const [name, value] of Object.entries({ interval, timeout }))
      if (typeof value !== 'number') throw wrongType(`options.${name}`, 'of type number', value);
    return new Promise((resolve, reject) => {
      let cause;
      let next;
      const limit = setTimeout(() => {
        clearTimeout(next);
        reject(new Error('waitFor() timed out', cause));
      }, timeout);
      const poll = async () => {
        try {
          const value = await condition();
          clearTimeout(limit);
          resolve(value);
        } catch (error) {
          cause = { cause: error };
          next = setTimeout(poll, interval);
        }
      };
      void poll();
    });
  }

  /** What this test replaces, until it ends. */
  get mock() {
    this.#mock ??= new MockTracker();
    return this.#mock;
  }

  /** As in Node, what follows still runs. */
  skip() {
    this.skipped = true;
  }

  runOnly() {}

  todo() {}

  diagnostic(line) {
    console.log(line);
  }

  /** Runs at once. As in Node, the test fails with it. */
  before(fn, options) {
    const begun = new Promise((resolve) => resolve(fn()));
    begun.catch(() => {});
    const done = runHook(
      hooked(() => begun, options),
      `before of ${this.fullName}`,
      this.#suite,
    );
    done.catch(() => {});
    this.#before.push(done);
    return done;
  }

  after(fn, options) {
    this.#after.push(hooked(fn, options));
  }

  beforeEach(fn, options) {
    this.#inner.beforeEach.push(hooked(fn, options));
  }

  afterEach(fn, options) {
    this.#inner.afterEach.push(hooked(fn, options));
  }

  /** Waits for the `before` hooks, each of which has its own limit. */
  async _begun() {
    for (const done of this.#before) await done;
  }

  async _end() {
    await this.#subtests;
    await this.#plan?.check();
    await this.#subtests;
    if (this.#failed > 0)
      throw failure(`${this.#failed} ${this.#failed > 1 ? 'subtests' : 'subtest'} failed`);
  }

  /** Runs the `after` hooks, and restores what the test replaced. */
  async _after() {
    try {
      for (const hook of this.#after) await runHook(hook, `after of ${this.fullName}`, this.#suite);
    } finally {
      this.#mock?.reset();
    }
  }
}

async function runTest(suite, name, options, fn) {
  const full = suite.full(name);
  if (options.skip || options.todo || !fn || (only && !options.only)) {
    report(full, 'skipped');
    return 'skipped';
  }
  const context = new Context(suite, name);
  const failed = [];
  began(full);
  const hooks = (kind) =>
    suite.all(kind).map((hook) => () => runHook(hook, `${kind} of ${full}`, suite, context));
  const run = () =>
    fn.length > 1
      ? new Promise((resolve, reject) => fn(context, (error) => (error ? reject(error) : resolve())))
      : fn(context);
  try {
    for (const hook of hooks('beforeEach')) await hook();
    await limited(run, options.timeout, full, suite);
  } catch (error) {
    failed.push(error);
  }
  const ends = () => limited(() => context._end(), options.timeout, full, suite);
  for (const end of [() => context._begun(), ends, () => context._after(), ...hooks('afterEach')]) {
    try {
      await end();
    } catch (error) {
      failed.push(error);
    }
  }
  const succeeded = context.skipped ? 'skipped' : 'passed';
  const outcome = failed.length === 0 ? succeeded : 'failed';
  report(full, outcome, failed.length > 0 ? told(failed[0]) : {});
  return outcome;
}

function told(error) {
  if (!(error instanceof Error)) return { why: `${String(error)} was thrown, which is not an Error` };
  const frame = native
    .mapped(`${error.stack ?? ''}`)
    .split('\n')
    .find((line) => line.includes('/') && !line.includes('ostler:') && !line.includes('node:'));
  return { why: `${error.name}: ${error.message}`, at: frame?.trim().replace(/^at /, '') };
}

async function runHooks(suite, kind) {
  const name = suite.full('');
  for (const hook of suite[kind]) await runHook(hook, name ? `${kind} of ${name}` : kind, suite);
}

async function runSuite(suite, skipped) {
  if (!skipped) await runHooks(suite, 'before');
  for (const entry of suite.entries) await (skipped ? entry.skip() : entry.run());
  if (!skipped) await runHooks(suite, 'after');
}

let prepared;
/** Runs the `before` hooks outside of all suites, once. */
function prepare() {
  prepared ??= runHooks(root, 'before');
  return prepared;
}

function add(entry) {
  if (current !== root) {
    current.entries.push(entry);
    return Promise.resolve();
  }
  const done = queue.then(prepare).then(entry.run);
  queue = done.catch((error) => report(entry.name, 'failed', told(error)));
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

const hook = (kind) => (fn, options) => {
  current[kind].push(hooked(fn, options));
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

export const mock = new MockTracker();

/** Waits until all have run: for the host. */
export async function finish() {
  for (let seen; seen !== queue;) {
    seen = queue;
    await seen;
  }
  await runHooks(root, 'after');
}
