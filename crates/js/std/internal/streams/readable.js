// `ReadableStream`, its default reader and controller.

import native from 'native/globals';
import { AbortSignal } from 'internal/event-target';
import { coded, wrongType, wrongValue } from 'internal/errors';
import {
  Deferred,
  INSIDE,
  RESOLVED,
  SizedQueue,
  dictionary,
  illegal,
  inspectCustom,
  invalidState,
  invalidThis,
  method,
  noop,
  promised,
  shown,
  strategyOf,
  webInterface,
} from 'internal/streams/common';

// Most plugins need none of these.
const bytes = () => native.load('internal/streams/bytes');
const piping = () => native.load('internal/streams/pipe');
const teeing = () => native.load('internal/streams/tee');

/** The inside of a `ReadableStream`. */
export class Readable {
  state = 'readable';
  reader = undefined;
  error = undefined;
  disturbed = false;
  controller = undefined;
  #ended;

  get locked() {
    return this.reader !== undefined;
  }

  /** Settles with the stream, whether or not it has a reader. */
  get ended() {
    if (!this.#ended) {
      if (this.state === 'readable') this.#ended = new Deferred();
      else this.#ended = this.state === 'closed' ? Deferred.resolved() : Deferred.rejected(this.error);
    }
    return this.#ended.promise;
  }

  close() {
    this.state = 'closed';
    this.#ended?.resolve();
    const { reader } = this;
    if (!reader) return;
    reader.closed.resolve();
    if (!reader.byob) for (const request of reader.takeRequests()) request.close();
  }

  fail(error) {
    this.state = 'errored';
    this.error = error;
    this.#ended?.reject(error);
    const { reader } = this;
    if (!reader) return;
    reader.closed.reject(error);
    reader.failRequests(error);
  }

  cancel(reason) {
    this.disturbed = true;
    if (this.state === 'closed') return Promise.resolve();
    if (this.state === 'errored') return Promise.reject(this.error);
    this.close();
    const { reader } = this;
    if (reader?.byob) for (const request of reader.takeRequests()) request.close(undefined);
    return this.controller.cancelSteps(reason).then(noop);
  }
}

/** The inside of a reader of either kind. */
export class Reader {
  requests = [];

  constructor(stream, byob = false) {
    if (stream.locked) throw invalidState('ReadableStream is locked');
    if (byob && !stream.controller.isBytes)
      throw wrongValue('reader', 'byob', 'is not supported by the stream');
    this.byob = byob;
    this.stream = stream;
    stream.reader = this;
    if (stream.state === 'readable') this.closed = new Deferred();
    else if (stream.state === 'closed') this.closed = Deferred.resolved();
    else this.closed = Deferred.rejected(stream.error);
  }

  takeRequests() {
    const { requests } = this;
    this.requests = [];
    return requests;
  }

  failRequests(error) {
    for (const request of this.takeRequests()) request.error(error);
  }

  /** Reads with `{ chunk, close, error }`. */
  read(request) {
    const { stream } = this;
    stream.disturbed = true;
    if (stream.state === 'closed') request.close();
    else if (stream.state === 'errored') request.error(stream.error);
    else stream.controller.pullSteps(request);
  }

  cancel(reason) {
    return this.stream.cancel(reason);
  }

  release() {
    const { stream } = this;
    if (!stream) return;
    const error = invalidState('Reader released');
    if (this.closed.pending) this.closed.reject(error);
    else this.closed = Deferred.rejected(error);
    stream.controller.releaseSteps();
    stream.reader = undefined;
    this.stream = undefined;
    if (this.requests.length > 0) this.failRequests(invalidState('Releasing reader'));
  }
}

/** The inside of a `ReadableStreamDefaultController`. */
class Controller {
  queue = new SizedQueue();
  started = false;
  closeRequested = false;
  pulling = false;
  pullAgain = false;

  constructor(stream, { pull, cancel, high, size }) {
    this.stream = stream;
    this.pull = pull;
    this.cancel = cancel;
    this.high = high;
    this.size = size;
    stream.controller = this;
  }

  get isBytes() {
    return false;
  }

  /** Begins with what `start` returned. */
  start(result) {
    Promise.resolve(result).then(
      () => {
        this.started = true;
        this.callPull();
      },
      (error) => this.error(error),
    );
  }

  get open() {
    return !this.closeRequested && this.stream.state === 'readable';
  }

  get desiredSize() {
    const { state } = this.stream;
    if (state === 'errored') return null;
    return state === 'closed' ? 0 : this.high - this.queue.total;
  }

  callPull() {
    if (!this.open || !this.started) return;
    const { reader } = this.stream;
    if (!(reader && reader.requests.length > 0) && !(this.high - this.queue.total > 0)) return;
    if (this.pulling) {
      this.pullAgain = true;
      return;
    }
    this.pulling = true;
    const { pull } = this;
    (pull ? promised(pull) : RESOLVED).then(
      () => {
        this.pulling = false;
        if (!this.pullAgain) return;
        this.pullAgain = false;
        this.callPull();
      },
      (error) => this.error(error),
    );
  }

  forget() {
    this.pull = undefined;
    this.cancel = undefined;
    this.size = undefined;
  }

  enqueue(chunk) {
    if (!this.open) return;
    const { reader } = this.stream;
    if (reader && reader.requests.length > 0) reader.requests.shift().chunk(chunk);
    else {
      try {
        const { size } = this;
        this.queue.push(chunk, size === undefined ? 1 : size(chunk));
      } catch (error) {
        this.error(error);
        throw error;
      }
    }
    this.callPull();
  }

  close() {
    if (!this.open) return;
    this.closeRequested = true;
    if (this.queue.length > 0) return;
    this.forget();
    this.stream.close();
  }

  error(error) {
    if (this.stream.state !== 'readable') return;
    this.queue.clear();
    this.forget();
    this.stream.fail(error);
  }

  pullSteps(request) {
    if (this.queue.length === 0) {
      this.stream.reader.requests.push(request);
      this.callPull();
      return;
    }
    const chunk = this.queue.shift();
    if (this.closeRequested && this.queue.length === 0) {
      this.forget();
      this.stream.close();
    } else this.callPull();
    request.chunk(chunk);
  }

  cancelSteps(reason) {
    this.queue.clear();
    const { cancel } = this;
    const result = cancel ? promised(() => cancel(reason)) : Promise.resolve();
    this.forget();
    return result;
  }

  releaseSteps() {}
}

let insideOf;

/** The inside of a `ReadableStream`; nothing of anything else. */
export const readableInside = (value) => insideOf(value);

/** A `ReadableStream` of algorithms of our own. */
export function makeReadable({ start, pull, cancel, high = 1, size }) {
  const inside = new Readable();
  const controller = new Controller(inside, { pull, cancel, high, size });
  const stream = new ReadableStream(INSIDE, inside);
  controller.start(start?.());
  return { stream, inside, controller };
}

/** Whether something was read of the stream, or it was cancelled. */
export const isDisturbed = (stream) => insideOf(stream).disturbed;

/** Whether the stream failed. */
export const isErrored = (stream) => insideOf(stream).state === 'errored';

/** How a stream is: `readable`, `closed` or `errored`. */
export const readableState = (stream) => insideOf(stream).state;

function checkPipe(options) {
  const { preventAbort, preventCancel, preventClose, signal } = dictionary(options, 'options');
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw wrongType('options.signal', 'an instance of AbortSignal', signal);
  return [!!preventClose, !!preventAbort, !!preventCancel, signal];
}

export class ReadableStream {
  #inside;

  static {
    insideOf = (value) =>
      value !== null && typeof value === 'object' && #inside in value ? value.#inside : undefined;
  }

  constructor(source, strategy) {
    if (source === INSIDE) {
      this.#inside = strategy;
      return;
    }
    source = dictionary(source, 'source');
    strategy = dictionary(strategy, 'strategy');
    const { autoAllocateChunkSize } = source;
    const cancel = method(source, 'cancel', 'source');
    const pull = method(source, 'pull', 'source');
    const start = method(source, 'start', 'source');
    const { type } = source;
    this.#inside = new Readable();
    if (type !== undefined && `${type}` === 'bytes') {
      if (strategy.size !== undefined) {
        throw coded(
          RangeError,
          'ERR_INVALID_ARG_VALUE',
          "The argument 'strategy.size' is invalid: a byte stream has none",
        );
      }
      bytes().setUp(
        this.#inside,
        source,
        { autoAllocateChunkSize, cancel, pull, start },
        strategyOf(strategy, 0).high,
      );
      return;
    }
    if (type !== undefined) throw wrongValue('source.type', type);
    const { high, size } = strategyOf(strategy, 1);
    let facade;
    const controller = new Controller(this.#inside, {
      pull: pull && (() => pull.call(source, facade)),
      cancel: cancel && ((reason) => cancel.call(source, reason)),
      high,
      size,
    });
    facade = new ReadableStreamDefaultController(INSIDE, controller);
    controller.start(start?.call(source, facade));
  }

  get locked() {
    if (!(#inside in this)) throw invalidThis('ReadableStream');
    return this.#inside.locked;
  }

  cancel(reason = undefined) {
    if (!(#inside in this)) return Promise.reject(invalidThis('ReadableStream'));
    if (this.#inside.locked) return Promise.reject(invalidState('ReadableStream is locked'));
    return this.#inside.cancel(reason);
  }

  getReader(options = undefined) {
    if (!(#inside in this)) throw invalidThis('ReadableStream');
    const { mode } = dictionary(options, 'options');
    if (mode === undefined) return new ReadableStreamDefaultReader(this);
    if (`${mode}` !== 'byob') throw wrongValue('options.mode', mode);
    return new (bytes().ReadableStreamBYOBReader)(this);
  }

  pipeThrough(transform, options = undefined) {
    if (!(#inside in this)) throw invalidThis('ReadableStream');
    const { readable, writable } = dictionary(transform, 'transform');
    if (!insideOf(readable)) throw wrongType('transform.readable', 'an instance of ReadableStream', readable);
    const to = piping().writableInside(writable);
    if (!to) throw wrongType('transform.writable', 'an instance of WritableStream', writable);
    const checked = checkPipe(options);
    if (this.#inside.locked) throw invalidState('The ReadableStream is locked');
    if (to.locked) throw invalidState('The WritableStream is locked');
    piping()
      .pipe(this.#inside, to, ...checked)
      .catch(noop);
    return readable;
  }

  pipeTo(destination, options = undefined) {
    try {
      if (!(#inside in this)) throw invalidThis('ReadableStream');
      const to = piping().writableInside(destination);
      if (!to) throw wrongType('destination', 'an instance of WritableStream', destination);
      const checked = checkPipe(options);
      if (this.#inside.locked) throw invalidState('The ReadableStream is locked');
      if (to.locked) throw invalidState('The WritableStream is locked');
      return piping().pipe(this.#inside, to, ...checked);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  tee() {
    if (!(#inside in this)) throw invalidThis('ReadableStream');
    return this.#inside.controller.isBytes ? bytes().tee(this.#inside) : teeing().tee(this.#inside);
  }

  values(options = undefined) {
    if (!(#inside in this)) throw invalidThis('ReadableStream');
    const { preventCancel } = dictionary(options, 'options');
    return iterate(new Reader(this.#inside), !!preventCancel);
  }

  static from(iterable) {
    return from(iterable);
  }

  [inspectCustom](depth, options, inspect) {
    const { locked, state, controller } = this.#inside;
    return shown(
      'ReadableStream',
      { locked, state, supportsBYOB: controller.isBytes },
      depth,
      options,
      inspect,
    );
  }
}

export class ReadableStreamDefaultReader {
  #reader;

  constructor(stream) {
    const inside = insideOf(stream);
    if (!inside) throw wrongType('stream', 'an instance of ReadableStream', stream);
    this.#reader = new Reader(inside);
  }

  read() {
    if (!(#reader in this)) return Promise.reject(invalidThis('ReadableStreamDefaultReader'));
    if (!this.#reader.stream) return Promise.reject(invalidState('The reader is not attached to a stream'));
    return new Promise((resolve, reject) => {
      this.#reader.read({
        chunk: (value) => resolve({ value, done: false }),
        close: () => resolve({ value: undefined, done: true }),
        error: reject,
      });
    });
  }

  releaseLock() {
    if (!(#reader in this)) throw invalidThis('ReadableStreamDefaultReader');
    this.#reader.release();
  }

  get closed() {
    if (!(#reader in this)) return Promise.reject(invalidThis('ReadableStreamDefaultReader'));
    return this.#reader.closed.promise;
  }

  cancel(reason = undefined) {
    if (!(#reader in this)) return Promise.reject(invalidThis('ReadableStreamDefaultReader'));
    if (!this.#reader.stream) return Promise.reject(invalidState('The reader is not attached to a stream'));
    return this.#reader.cancel(reason);
  }

  [inspectCustom](depth, options, inspect) {
    const { stream, requests, closed } = this.#reader;
    const members = { stream: stream && {}, readRequests: requests.length, close: closed.promise };
    return shown('ReadableStreamDefaultReader', members, depth, options, inspect);
  }
}

export class ReadableStreamDefaultController {
  #controller;

  constructor(key, controller) {
    if (key !== INSIDE) throw illegal();
    this.#controller = controller;
  }

  get desiredSize() {
    if (!(#controller in this)) throw invalidThis('ReadableStreamDefaultController');
    return this.#controller.desiredSize;
  }

  close() {
    if (!(#controller in this)) throw invalidThis('ReadableStreamDefaultController');
    if (!this.#controller.open) throw invalidState('Controller is already closed');
    this.#controller.close();
  }

  enqueue(chunk = undefined) {
    if (!(#controller in this)) throw invalidThis('ReadableStreamDefaultController');
    if (!this.#controller.open) throw invalidState('Controller is already closed');
    this.#controller.enqueue(chunk);
  }

  error(error = undefined) {
    if (!(#controller in this)) throw invalidThis('ReadableStreamDefaultController');
    this.#controller.error(error);
  }

  [inspectCustom](depth, options, inspect) {
    return shown('ReadableStreamDefaultController', {}, depth, options, inspect);
  }
}

for (const Class of [ReadableStream, ReadableStreamDefaultReader, ReadableStreamDefaultController]) {
  webInterface(Class);
}
Object.defineProperty(ReadableStream.prototype, Symbol.asyncIterator, {
  configurable: true,
  writable: true,
  value: ReadableStream.prototype.values,
});
Object.defineProperty(ReadableStream, 'from', { enumerable: true });

const AsyncIteratorPrototype = Object.getPrototypeOf(Object.getPrototypeOf(async function* () {}).prototype);

/** Reads asked for while one is under way follow it. */
function iterate(reader, preventCancel) {
  let done = false;
  let ongoing;
  let settled;
  const settle = () => {
    settled = true;
    ongoing = undefined;
  };
  const read = () =>
    new Promise((resolve, reject) => {
      if (done) {
        resolve({ value: undefined, done: true });
        return;
      }
      // What is asked for next follows nothing once this is answered.
      const end = () => {
        done = true;
        settle();
        reader.release();
      };
      reader.read({
        chunk(value) {
          settle();
          resolve({ value, done: false });
        },
        close() {
          end();
          resolve({ value: undefined, done: true });
        },
        error(error) {
          end();
          reject(error);
        },
      });
    });
  const stop = async (value) => {
    if (done) return { value, done: true };
    done = true;
    if (preventCancel) reader.release();
    else {
      const cancelled = reader.cancel(value);
      reader.release();
      await cancelled;
    }
    return { value, done: true };
  };
  const follow = (run) => {
    if (ongoing) {
      ongoing = ongoing.then(run, run);
      return ongoing;
    }
    settled = false;
    const next = run();
    if (!settled) ongoing = next;
    return next;
  };
  const member = (value) => ({ configurable: true, enumerable: true, writable: true, value });
  return Object.create(AsyncIteratorPrototype, {
    next: member(() => follow(read)),
    return: member((value) => follow(() => stop(value))),
  });
}

function from(iterable) {
  const asynchronous = iterable?.[Symbol.asyncIterator];
  const open = asynchronous ?? iterable?.[Symbol.iterator];
  if (typeof open !== 'function') {
    throw coded(TypeError, 'ERR_ARG_NOT_ITERABLE', `${String(iterable)} must be iterable`);
  }
  const iterator = open.call(iterable);
  if (iterator === null || (typeof iterator !== 'object' && typeof iterator !== 'function')) {
    throw invalidState('The iterator method must return an object');
  }
  const { next } = iterator;
  const result = (got) => {
    if (got === null || typeof got !== 'object')
      throw invalidState('The promise or value returned by the iterator is not an object');
    return got;
  };
  const made = makeReadable({
    high: 0,
    async pull() {
      const got = next.call(iterator);
      const { done, value } = result(asynchronous ? await got : got);
      if (done) made.controller.close();
      else made.controller.enqueue(asynchronous ? value : await value);
    },
    async cancel(reason) {
      const stop = iterator.return;
      if (stop === undefined || stop === null) return;
      const got = stop.call(iterator, reason);
      result(asynchronous ? await got : got);
    },
  });
  return made.stream;
}
