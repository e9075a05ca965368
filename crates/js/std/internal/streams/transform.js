// `TransformStream`, and encoders and decoders of text as streams.

import { TextDecoder, TextEncoder } from 'internal/text';
import {
  Deferred,
  INSIDE,
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
import { makeReadable } from 'internal/streams/readable';
import { makeWritable } from 'internal/streams/writable';
import { wrongValue } from 'internal/errors';

function unsupported(name, value) {
  return Object.assign(new RangeError(wrongValue(name, value).message), { code: 'ERR_INVALID_ARG_VALUE' });
}

/** The inside of a `TransformStream`. */
class Transform {
  readable;
  writable;
  backpressure = undefined;
  change = undefined;
  ending = undefined;

  constructor(transformer, { writable, readable, start }) {
    this.transformer = transformer;
    const started = new Deferred();
    this.writable = makeWritable({
      start: () => started.promise,
      write: (chunk) => this.write(chunk),
      close: () => this.close(),
      abort: (reason) => this.abort(reason),
      ...writable,
    });
    this.readable = makeReadable({
      start: () => started.promise,
      pull: () => {
        this.setBackpressure(false);
        return this.change.promise;
      },
      cancel: (reason) => this.cancel(reason),
      ...readable,
    });
    this.setBackpressure(true);
    this.controller = new TransformStreamDefaultController(INSIDE, this);
    this.begin = () => started.resolve(start?.(this.controller));
  }

  setBackpressure(backpressure) {
    this.change?.resolve();
    this.change = new Deferred();
    this.backpressure = backpressure;
  }

  forget() {
    this.transformer = {};
  }

  fail(error) {
    this.readable.controller.error(error);
    this.failWritable(error);
  }

  failWritable(error) {
    this.forget();
    this.writable.controller.errorIfWritable(error);
    this.unblock();
  }

  unblock() {
    if (this.backpressure) this.setBackpressure(false);
  }

  enqueue(chunk) {
    const { controller, inside } = this.readable;
    if (!controller.open) throw invalidState('Unable to enqueue');
    try {
      controller.enqueue(chunk);
    } catch (error) {
      this.failWritable(error);
      throw inside.error;
    }
    const { reader } = inside;
    const pulls = (reader && reader.requests.length > 0) || controller.high - controller.queue.total > 0;
    if (pulls === this.backpressure) this.setBackpressure(true);
  }

  terminate() {
    this.readable.controller.close();
    this.failWritable(invalidState('TransformStream has been terminated'));
  }

  perform(chunk) {
    const { transform } = this.transformer;
    const done = promised(() => (transform ? transform(chunk, this.controller) : this.enqueue(chunk)));
    return done.then(undefined, (error) => {
      this.fail(error);
      throw error;
    });
  }

  write(chunk) {
    if (!this.backpressure) return this.perform(chunk);
    return this.change.promise.then(() => {
      const { inside } = this.writable;
      if (inside.state === 'erroring') throw inside.error;
      return this.perform(chunk);
    });
  }

  /** Runs the transformer's `flush` or `cancel` once, and then `done` with how it ended. */
  end(run, done) {
    if (this.ending) return this.ending.promise;
    this.ending = new Deferred();
    const ending = this.ending;
    const result = run ? promised(run) : Promise.resolve();
    this.forget();
    result.then(
      () => done(ending),
      (error) => done(ending, { error }),
    );
    return ending.promise;
  }

  abort(reason) {
    const { cancel } = this.transformer;
    const { inside, controller } = this.readable;
    return this.end(cancel && (() => cancel(reason)), (ending, failure) => {
      if (failure) {
        controller.error(failure.error);
        ending.reject(failure.error);
      } else if (inside.state === 'errored') ending.reject(inside.error);
      else {
        controller.error(reason);
        ending.resolve();
      }
    });
  }

  cancel(reason) {
    const { cancel } = this.transformer;
    const { inside, controller } = this.writable;
    return this.end(cancel && (() => cancel(reason)), (ending, failure) => {
      if (!failure && inside.state === 'errored') {
        ending.reject(inside.error);
        return;
      }
      controller.errorIfWritable(failure ? failure.error : reason);
      this.unblock();
      if (failure) ending.reject(failure.error);
      else ending.resolve();
    });
  }

  close() {
    const { flush } = this.transformer;
    const { inside, controller } = this.readable;
    return this.end(flush && (() => flush(this.controller)), (ending, failure) => {
      if (failure) {
        controller.error(failure.error);
        ending.reject(failure.error);
      } else if (inside.state === 'errored') ending.reject(inside.error);
      else {
        controller.close();
        ending.resolve();
      }
    });
  }
}

export class TransformStreamDefaultController {
  #inside;

  constructor(key, inside) {
    if (key !== INSIDE) throw illegal();
    this.#inside = inside;
  }

  get desiredSize() {
    if (!(#inside in this)) throw invalidThis('TransformStreamDefaultController');
    return this.#inside.readable.controller.desiredSize;
  }

  enqueue(chunk = undefined) {
    if (!(#inside in this)) throw invalidThis('TransformStreamDefaultController');
    this.#inside.enqueue(chunk);
  }

  error(reason = undefined) {
    if (!(#inside in this)) throw invalidThis('TransformStreamDefaultController');
    this.#inside.fail(reason);
  }

  terminate() {
    if (!(#inside in this)) throw invalidThis('TransformStreamDefaultController');
    this.#inside.terminate();
  }

  [inspectCustom](depth, options, inspect) {
    return shown('TransformStreamDefaultController', {}, depth, options, inspect);
  }
}

export class TransformStream {
  #inside;

  constructor(transformer, writableStrategy, readableStrategy) {
    transformer = dictionary(transformer, 'transformer');
    const cancel = method(transformer, 'cancel', 'transformer');
    const flush = method(transformer, 'flush', 'transformer');
    if (transformer.readableType !== undefined)
      throw unsupported('transformer.readableType', transformer.readableType);
    const start = method(transformer, 'start', 'transformer');
    const transform = method(transformer, 'transform', 'transformer');
    if (transformer.writableType !== undefined)
      throw unsupported('transformer.writableType', transformer.writableType);
    const readable = strategyOf(readableStrategy, 0);
    const writable = strategyOf(writableStrategy, 1);
    this.#inside = new Transform(
      {
        transform: transform && ((chunk, to) => transform.call(transformer, chunk, to)),
        flush: flush && ((to) => flush.call(transformer, to)),
        cancel: cancel && ((reason) => cancel.call(transformer, reason)),
      },
      { readable, writable, start: start && ((to) => start.call(transformer, to)) },
    );
    this.#inside.begin();
  }

  get readable() {
    if (!(#inside in this)) throw invalidThis('TransformStream');
    return this.#inside.readable.stream;
  }

  get writable() {
    if (!(#inside in this)) throw invalidThis('TransformStream');
    return this.#inside.writable.stream;
  }

  [inspectCustom](depth, options, inspect) {
    const members = {
      readable: this.readable,
      writable: this.writable,
      backpressure: this.#inside.backpressure,
    };
    return shown('TransformStream', members, depth, options, inspect);
  }
}

export class TextEncoderStream {
  #stream;

  constructor() {
    const encoder = new TextEncoder();
    let high = '';
    this.#stream = new TransformStream({
      transform(chunk, controller) {
        let text = high + `${chunk}`;
        high = /[\ud800-\udbff]$/.test(text) ? text.slice(-1) : '';
        if (high) text = text.slice(0, -1);
        if (text !== '') controller.enqueue(encoder.encode(text));
      },
      flush(controller) {
        if (high) controller.enqueue(encoder.encode('\ufffd'));
      },
    });
  }

  get encoding() {
    if (!(#stream in this)) throw invalidThis('TextEncoderStream');
    return 'utf-8';
  }

  get readable() {
    if (!(#stream in this)) throw invalidThis('TextEncoderStream');
    return this.#stream.readable;
  }

  get writable() {
    if (!(#stream in this)) throw invalidThis('TextEncoderStream');
    return this.#stream.writable;
  }
}

export class TextDecoderStream {
  #stream;
  #decoder;

  constructor(label = 'utf-8', options = {}) {
    const decoder = new TextDecoder(label, options);
    this.#decoder = decoder;
    this.#stream = new TransformStream({
      transform(chunk, controller) {
        const text = decoder.decode(chunk, { stream: true });
        if (text !== '') controller.enqueue(text);
      },
      flush(controller) {
        const text = decoder.decode();
        if (text !== '') controller.enqueue(text);
      },
    });
  }

  get encoding() {
    return this.#decoder.encoding;
  }

  get fatal() {
    return this.#decoder.fatal;
  }

  get ignoreBOM() {
    return this.#decoder.ignoreBOM;
  }

  get readable() {
    return this.#stream.readable;
  }

  get writable() {
    return this.#stream.writable;
  }
}

for (const Class of [
  TransformStream,
  TransformStreamDefaultController,
  TextEncoderStream,
  TextDecoderStream,
]) {
  webInterface(Class);
}
