// `mock.timers`: timers and dates that move only when a test says so.

import timers from 'node:timers';
import promises from 'node:timers/promises';
import { AbortController, AbortSignal } from 'internal/event-target';
import { abortError, checkFunction, coded, wrongType, wrongValue } from 'internal/errors';

const APIS = ['setTimeout', 'setInterval', 'setImmediate', 'Date', 'scheduler.wait', 'AbortSignal.timeout'];
const RealDate = Date;

let ids = 0;

class MockTimer {
  #queue;

  constructor(queue, runAt, every, callback, given) {
    this.id = ++ids;
    this.runAt = runAt;
    this.every = every;
    this.callback = callback;
    this.given = given;
    this.#queue = queue;
  }

  ref() {
    return this;
  }

  unref() {
    return this;
  }

  hasRef() {
    return true;
  }

  refresh() {
    return this.#queue.restart(this);
  }

  close() {
    this.#queue.clear(this);
    return this;
  }

  [Symbol.toPrimitive]() {
    return this.id;
  }

  [Symbol.dispose]() {
    this.close();
  }
}

/** What is due, and the time there is. */
class Queue {
  now = 0;
  #waiting = [];

  start(callback, after, given, repeats) {
    checkFunction(callback, 'callback');
    const delay = Number(after) || 0;
    const timer = new MockTimer(
      this,
      this.now + delay,
      repeats ? Math.max(delay, 1) : undefined,
      callback,
      given,
    );
    timer.delay = delay;
    return this.#put(timer);
  }

  #put(timer) {
    const at = this.#waiting.findIndex((other) => other.runAt > timer.runAt);
    this.#waiting.splice(at < 0 ? this.#waiting.length : at, 0, timer);
    return timer;
  }

  restart(timer) {
    this.clear(timer);
    timer.runAt = this.now + timer.delay;
    return this.#put(timer);
  }

  clear(timer) {
    const at = this.#waiting.findIndex((other) => other === timer || other.id === timer);
    if (at >= 0) this.#waiting.splice(at, 1);
  }

  run() {
    while (this.#waiting[0]?.runAt <= this.now) {
      const [timer] = this.#waiting;
      // One that throws has had its turn.
      this.#waiting.shift();
      if (timer.every !== undefined) {
        timer.runAt += timer.every;
        this.#put(timer);
      }
      Reflect.apply(timer.callback, undefined, timer.given);
    }
  }

  get last() {
    return this.#waiting.at(-1)?.runAt ?? this.now;
  }

  empty() {
    this.#waiting.length = 0;
  }
}

function dates(queue) {
  function MockDate(...given) {
    if (!new.target) return new RealDate(queue.now).toString();
    return Reflect.construct(RealDate, given.length === 0 ? [queue.now] : given, new.target);
  }
  for (const key of Reflect.ownKeys(RealDate))
    Object.defineProperty(MockDate, key, Object.getOwnPropertyDescriptor(RealDate, key));
  const now = { value: () => queue.now, configurable: true, writable: true };
  return Object.defineProperties(MockDate, { now, isMock: { value: true } });
}

const later = (queue, after, value, signal) =>
  new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(abortError(signal));
      return;
    }
    const give = () => {
      queue.clear(timer);
      reject(abortError(signal));
    };
    const done = () => {
      signal?.removeEventListener('abort', give);
      resolve(value);
    };
    const timer = queue.start(done, after, [], false);
    signal?.addEventListener('abort', give, { once: true });
  });

async function* ticks(queue, after, value, signal) {
  let due = queue.now;
  for (;;) {
    due += after;
    await later(queue, due - queue.now, undefined, signal);
    yield value;
  }
}

function timeout(queue, after) {
  const controller = new AbortController();
  // As Node's, with the reason of `abort()`.
  queue.start(() => controller.abort(), after, [], false);
  return controller.signal;
}

/** What each name replaces: an object, the name of its member, and what stands there. */
function replaced(api, queue) {
  const set =
    (repeats) =>
    (callback, after, ...given) =>
      queue.start(callback, after, given, repeats);
  const clear = (timer) => queue.clear(timer);
  const both = (name, value) => [
    [globalThis, name, value],
    [timers, name, value],
  ];
  switch (api) {
    case 'setTimeout':
      return [
        ...both('setTimeout', set(false)),
        ...both('clearTimeout', clear),
        [promises, api, (after, value, options) => later(queue, after, value, options?.signal)],
      ];
    case 'setInterval':
      return [
        ...both('setInterval', set(true)),
        ...both('clearInterval', clear),
        [promises, api, (after, value, options) => ticks(queue, after, value, options?.signal)],
      ];
    case 'setImmediate':
      return [
        ...both('setImmediate', (callback, ...given) => queue.start(callback, -1, given, false)),
        ...both('clearImmediate', clear),
        [promises, api, (value, options) => later(queue, -1, value, options?.signal)],
      ];
    case 'scheduler.wait':
      return [
        [promises.scheduler, 'wait', (after, options) => later(queue, after, undefined, options?.signal)],
      ];
    case 'AbortSignal.timeout':
      return [[AbortSignal, 'timeout', (after) => timeout(queue, after)]];
    default:
      return [[globalThis, 'Date', dates(queue)]];
  }
}

function startOf(now) {
  const time = now instanceof RealDate ? now.getTime() : now;
  if (typeof time !== 'number') throw wrongType('initialTime', 'of type number', time);
  if (!(time >= 0)) throw wrongValue('time', 'positive integer', String(time));
  return time;
}

export class MockTimers {
  #queue = new Queue();
  #own;

  enable(options = {}) {
    if (this.#own) throw coded(Error, 'ERR_INVALID_STATE', 'Invalid state: MockTimers is already enabled!');
    const { apis = APIS, now = 0 } = options;
    if (!Array.isArray(apis)) throw wrongType('options.apis', 'an instance of Array', apis);
    for (const api of apis) {
      if (!APIS.includes(api))
        throw wrongValue('options.apis', api, `option ${String(api)} is not supported`);
    }
    this.#queue.now = startOf(now);
    this.#own = [];
    for (const [object, name, value] of apis.flatMap((api) => replaced(api, this.#queue))) {
      this.#own.push([object, name, Object.getOwnPropertyDescriptor(object, name)]);
      Object.defineProperty(object, name, { value, configurable: true, writable: true });
    }
  }

  #check() {
    if (this.#own) return;
    const message = 'Invalid state: You should enable MockTimers first by calling the .enable function';
    throw coded(Error, 'ERR_INVALID_STATE', message);
  }

  tick(milliseconds = 1) {
    this.#check();
    if (milliseconds < 0) throw wrongValue('time', 'positive integer', String(milliseconds));
    this.#queue.now += milliseconds;
    this.#queue.run();
  }

  runAll() {
    this.#check();
    this.tick(Math.max(0, this.#queue.last - this.#queue.now));
  }

  setTime(milliseconds = 0) {
    this.#check();
    this.#queue.now = startOf(milliseconds);
  }

  reset() {
    for (const [object, name, own] of this.#own ?? []) Object.defineProperty(object, name, own);
    this.#own = undefined;
    this.#queue.empty();
    this.#queue.now = 0;
  }

  [Symbol.dispose]() {
    this.reset();
  }
}
