// `WritableStream`, its writer and controller.

import { AbortController } from 'internal/event-target';
import { wrongType, wrongValue } from 'internal/errors';
import {
  Deferred,
  Fifo,
  INSIDE,
  SizedQueue,
  dictionary,
  illegal,
  inspectCustom,
  invalidState,
  invalidThis,
  method,
  promised,
  shown,
  strategyOf,
  webInterface,
} from 'internal/streams/common';

const CLOSE = Symbol('close');

/** A promise that the caller receives, so that its rejection may go unhandled. */
function request() {
  const made = {};
  made.promise = new Promise((resolve, reject) => {
    made.resolve = resolve;
    made.reject = reject;
  });
  return made;
}

/** The inside of a `WritableStream`. */
export class Writable {
  state = 'writable';
  error = undefined;
  writer = undefined;
  controller = undefined;
  writing = undefined;
  closeRequest = undefined;
  closing = undefined;
  aborting = undefined;
  requests = new Fifo();
  backpressure = false;
  #ended;

  get locked() {
    return this.writer !== undefined;
  }

  /** Settles with the stream, whether or not it has a writer. */
  get ended() {
    if (!this.#ended) {
      if (this.state === 'closed') this.#ended = Deferred.resolved();
      else this.#ended = this.state === 'errored' ? Deferred.rejected(this.error) : new Deferred();
    }
    return this.#ended.promise;
  }

  get closeQueued() {
    return this.closeRequest !== undefined || this.closing !== undefined;
  }

  abort(reason) {
    if (this.state === 'closed' || this.state === 'errored') return Promise.resolve();
    this.controller.abortSignal(reason);
    if (this.state === 'closed' || this.state === 'errored') return Promise.resolve();
    if (this.aborting) return this.aborting.promise;
    const wasErroring = this.state === 'erroring';
    if (wasErroring) reason = undefined;
    this.aborting = { ...request(), reason, wasErroring };
    const { promise } = this.aborting;
    if (!wasErroring) this.startErroring(reason);
    return promise;
  }

  close() {
    if (this.state === 'closed' || this.state === 'errored')
      return Promise.reject(invalidState('WritableStream is closed'));
    this.closeRequest = request();
    const { promise } = this.closeRequest;
    if (this.writer && this.backpressure && this.state === 'writable') this.writer.ready.resolve();
    this.controller.close();
    return promise;
  }

  rejected(error) {
    if (this.state === 'writable') this.startErroring(error);
    else this.finishErroring();
  }

  startErroring(reason) {
    this.state = 'erroring';
    this.error = reason;
    this.writer?.rejectReady(reason);
    if (!this.writing && !this.closing && this.controller.started) this.finishErroring();
  }

  finishErroring() {
    this.state = 'errored';
    this.controller.queue.clear();
    for (const each of this.requests.take()) each.reject(this.error);
    const { aborting } = this;
    this.aborting = undefined;
    if (!aborting) {
      this.rejectClosed();
      return;
    }
    if (aborting.wasErroring) {
      aborting.reject(this.error);
      this.rejectClosed();
      return;
    }
    this.controller.abortSteps(aborting.reason).then(
      () => {
        aborting.resolve();
        this.rejectClosed();
      },
      (error) => {
        aborting.reject(error);
        this.rejectClosed();
      },
    );
  }

  rejectClosed() {
    this.closeRequest?.reject(this.error);
    this.closeRequest = undefined;
    this.#ended?.reject(this.error);
    this.writer?.closed.reject(this.error);
  }

  finishWrite() {
    this.writing.resolve();
    this.writing = undefined;
  }

  failWrite(error) {
    this.writing.reject(error);
    this.writing = undefined;
    this.rejected(error);
  }

  finishClose() {
    this.closing.resolve();
    this.closing = undefined;
    if (this.state === 'erroring') {
      this.error = undefined;
      this.aborting?.resolve();
      this.aborting = undefined;
    }
    this.state = 'closed';
    this.#ended?.resolve();
    this.writer?.closed.resolve();
  }

  failClose(error) {
    this.closing.reject(error);
    this.closing = undefined;
    this.aborting?.reject(error);
    this.aborting = undefined;
    this.rejected(error);
  }

  updateBackpressure() {
    const backpressure = this.controller.desiredSize <= 0;
    if (this.writer && backpressure !== this.backpressure) {
      if (backpressure) this.writer.ready = new Deferred();
      else this.writer.ready.resolve();
    }
    this.backpressure = backpressure;
  }
}

/** The inside of a `WritableStreamDefaultWriter`. */
export class Writer {
  constructor(stream) {
    if (stream.locked) throw invalidState('WritableStream is locked');
    this.stream = stream;
    stream.writer = this;
    const { state, error } = stream;
    if (state === 'writable' && !stream.closeQueued && stream.backpressure) this.ready = new Deferred();
    else if (state === 'writable' || state === 'closed') this.ready = Deferred.resolved();
    else this.ready = Deferred.rejected(error);
    if (state === 'closed') this.closed = Deferred.resolved();
    else if (state === 'errored') this.closed = Deferred.rejected(error);
    else this.closed = new Deferred();
  }

  rejectReady(error) {
    if (this.ready.pending) this.ready.reject(error);
    else this.ready = Deferred.rejected(error);
  }

  get desiredSize() {
    const { state, controller } = this.stream;
    if (state === 'errored' || state === 'erroring') return null;
    return state === 'closed' ? 0 : controller.desiredSize;
  }

  close() {
    return this.stream.close();
  }

  /** For pipes: what closed or failed already says so. */
  closeOrFail() {
    const { state, error, closeQueued } = this.stream;
    if (closeQueued || state === 'closed') return Promise.resolve();
    return state === 'errored' ? Promise.reject(error) : this.close();
  }

  write(chunk) {
    const { stream } = this;
    const { controller } = stream;
    const size = controller.sizeOf(chunk);
    if (stream !== this.stream) return Promise.reject(invalidState('Mismatched WritableStreams'));
    if (stream.state === 'errored') return Promise.reject(stream.error);
    if (stream.closeQueued || stream.state === 'closed')
      return Promise.reject(invalidState('WritableStream is closed'));
    if (stream.state === 'erroring') return Promise.reject(stream.error);
    const made = request();
    stream.requests.push(made);
    controller.write(chunk, size);
    return made.promise;
  }

  release() {
    const { stream } = this;
    if (!stream) return;
    const error = invalidState('Writer has been released');
    this.rejectReady(error);
    if (this.closed.pending) this.closed.reject(error);
    else this.closed = Deferred.rejected(error);
    stream.writer = undefined;
    this.stream = undefined;
  }
}

/** The inside of a `WritableStreamDefaultController`. */
class Controller {
  queue = new SizedQueue();
  started = false;
  #aborter;
  #aborted;

  constructor(stream, { write, close, abort, high, size }) {
    this.stream = stream;
    this.sink = { write, close, abort };
    this.high = high;
    this.size = size;
    stream.controller = this;
    stream.updateBackpressure();
  }

  start(result) {
    Promise.resolve(result).then(
      () => {
        this.started = true;
        this.advance();
      },
      (error) => {
        this.started = true;
        this.stream.rejected(error);
      },
    );
  }

  get signal() {
    if (!this.#aborter) {
      this.#aborter = new AbortController();
      if (this.#aborted) this.#aborter.abort(this.#aborted.reason);
    }
    return this.#aborter.signal;
  }

  abortSignal(reason) {
    this.#aborted ??= { reason };
    this.#aborter?.abort(reason);
  }

  get desiredSize() {
    return this.high - this.queue.total;
  }

  forget() {
    this.sink = {};
    this.size = undefined;
  }

  abortSteps(reason) {
    const { abort } = this.sink;
    const result = abort ? promised(() => abort(reason)) : Promise.resolve();
    this.forget();
    return result;
  }

  sizeOf(chunk) {
    const { size } = this;
    if (!size) return 1;
    try {
      return size(chunk);
    } catch (error) {
      this.errorIfWritable(error);
      return 1;
    }
  }

  write(chunk, size) {
    try {
      this.queue.push(chunk, size);
    } catch (error) {
      this.errorIfWritable(error);
      return;
    }
    if (!this.stream.closeQueued && this.stream.state === 'writable') this.stream.updateBackpressure();
    this.advance();
  }

  close() {
    this.queue.push(CLOSE, 0);
    this.advance();
  }

  advance() {
    const { stream } = this;
    if (!this.started || stream.writing) return;
    if (stream.state === 'erroring') {
      stream.finishErroring();
      return;
    }
    if (this.queue.length === 0 || stream.state === 'closed' || stream.state === 'errored') return;
    const chunk = this.queue.first;
    if (chunk === CLOSE) {
      stream.closing = stream.closeRequest;
      stream.closeRequest = undefined;
      this.queue.shift();
      const { close } = this.sink;
      const closed = close ? promised(close) : Promise.resolve();
      this.forget();
      closed.then(
        () => stream.finishClose(),
        (error) => stream.failClose(error),
      );
      return;
    }
    stream.writing = stream.requests.shift();
    const { write } = this.sink;
    const written = write ? promised(() => write(chunk)) : Promise.resolve();
    written.then(
      () => {
        stream.finishWrite();
        this.queue.shift();
        if (!stream.closeQueued && stream.state === 'writable') stream.updateBackpressure();
        this.advance();
      },
      (error) => {
        if (stream.state === 'writable') this.forget();
        stream.failWrite(error);
      },
    );
  }

  errorIfWritable(error) {
    if (this.stream.state === 'writable') this.error(error);
  }

  error(error) {
    this.forget();
    this.stream.startErroring(error);
  }
}

let insideOf;

/** The inside of a `WritableStream`; nothing of anything else. */
export const writableInside = (value) => insideOf(value);

/** A `WritableStream` of algorithms of our own. */
export function makeWritable({ start, write, close, abort, high = 1, size }) {
  const inside = new Writable();
  const controller = new Controller(inside, { write, close, abort, high, size });
  const stream = new WritableStream(INSIDE, inside);
  controller.start(start?.());
  return { stream, inside, controller };
}

export class WritableStream {
  #inside;

  static {
    insideOf = (value) =>
      value !== null && typeof value === 'object' && #inside in value ? value.#inside : undefined;
  }

  constructor(sink, strategy) {
    if (sink === INSIDE) {
      this.#inside = strategy;
      return;
    }
    sink = dictionary(sink, 'sink');
    const abort = method(sink, 'abort', 'sink');
    const close = method(sink, 'close', 'sink');
    const start = method(sink, 'start', 'sink');
    if (sink.type !== undefined) {
      throw Object.assign(new RangeError(wrongValue('sink.type', sink.type).message), {
        code: 'ERR_INVALID_ARG_VALUE',
      });
    }
    const write = method(sink, 'write', 'sink');
    const { high, size } = strategyOf(strategy, 1);
    this.#inside = new Writable();
    let facade;
    const controller = new Controller(this.#inside, {
      write: write && ((chunk) => write.call(sink, chunk, facade)),
      close: close && (() => close.call(sink)),
      abort: abort && ((reason) => abort.call(sink, reason)),
      high,
      size,
    });
    facade = new WritableStreamDefaultController(INSIDE, controller);
    controller.start(start?.call(sink, facade));
  }

  get locked() {
    if (!(#inside in this)) throw invalidThis('WritableStream');
    return this.#inside.locked;
  }

  abort(reason = undefined) {
    if (!(#inside in this)) return Promise.reject(invalidThis('WritableStream'));
    if (this.#inside.locked) return Promise.reject(invalidState('WritableStream is locked'));
    return this.#inside.abort(reason);
  }

  close() {
    if (!(#inside in this)) return Promise.reject(invalidThis('WritableStream'));
    if (this.#inside.locked) return Promise.reject(invalidState('WritableStream is locked'));
    if (this.#inside.closeQueued) return Promise.reject(invalidState('Failure closing WritableStream'));
    return this.#inside.close();
  }

  getWriter() {
    if (!(#inside in this)) throw invalidThis('WritableStream');
    return new WritableStreamDefaultWriter(this);
  }

  [inspectCustom](depth, options, inspect) {
    const { locked, state } = this.#inside;
    return shown('WritableStream', { locked, state }, depth, options, inspect);
  }
}

export class WritableStreamDefaultWriter {
  #writer;

  constructor(stream) {
    const inside = insideOf(stream);
    if (!inside) throw wrongType('stream', 'an instance of WritableStream', stream);
    this.#writer = new Writer(inside);
  }

  #refused() {
    return this.#writer.stream ? undefined : invalidState('Writer is not bound to a WritableStream');
  }

  get closed() {
    if (!(#writer in this)) return Promise.reject(invalidThis('WritableStreamDefaultWriter'));
    return this.#writer.closed.promise;
  }

  get desiredSize() {
    if (!(#writer in this)) throw invalidThis('WritableStreamDefaultWriter');
    const refused = this.#refused();
    if (refused) throw refused;
    return this.#writer.desiredSize;
  }

  get ready() {
    if (!(#writer in this)) return Promise.reject(invalidThis('WritableStreamDefaultWriter'));
    return this.#writer.ready.promise;
  }

  abort(reason = undefined) {
    if (!(#writer in this)) return Promise.reject(invalidThis('WritableStreamDefaultWriter'));
    const refused = this.#refused();
    return refused ? Promise.reject(refused) : this.#writer.stream.abort(reason);
  }

  close() {
    if (!(#writer in this)) return Promise.reject(invalidThis('WritableStreamDefaultWriter'));
    const refused = this.#refused();
    if (refused) return Promise.reject(refused);
    if (this.#writer.stream.closeQueued)
      return Promise.reject(invalidState('Failure to close WritableStream'));
    return this.#writer.close();
  }

  releaseLock() {
    if (!(#writer in this)) throw invalidThis('WritableStreamDefaultWriter');
    this.#writer.release();
  }

  write(chunk = undefined) {
    if (!(#writer in this)) return Promise.reject(invalidThis('WritableStreamDefaultWriter'));
    const refused = this.#refused();
    return refused ? Promise.reject(refused) : this.#writer.write(chunk);
  }

  [inspectCustom](depth, options, inspect) {
    const { closed, ready, stream } = this.#writer;
    const members = { close: closed.promise, ready: ready.promise, desiredSize: stream && this.desiredSize };
    return shown('WritableStreamDefaultWriter', members, depth, options, inspect);
  }
}

export class WritableStreamDefaultController {
  #controller;

  constructor(key, controller) {
    if (key !== INSIDE) throw illegal();
    this.#controller = controller;
  }

  get signal() {
    if (!(#controller in this)) throw invalidThis('WritableStreamDefaultController');
    return this.#controller.signal;
  }

  error(error = undefined) {
    if (!(#controller in this)) throw invalidThis('WritableStreamDefaultController');
    this.#controller.errorIfWritable(error);
  }

  [inspectCustom](depth, options, inspect) {
    return shown('WritableStreamDefaultController', {}, depth, options, inspect);
  }
}

for (const Class of [WritableStream, WritableStreamDefaultWriter, WritableStreamDefaultController]) {
  webInterface(Class);
}
