// Byte streams: their controller, and readers that bring their own buffer.

import { coded, wrongType, wrongValue } from 'internal/errors';
import {
  Fifo,
  INSIDE,
  RESOLVED,
  illegal,
  inspectCustom,
  invalidState,
  invalidThis,
  promised,
  shown,
  webInterface,
} from 'internal/streams/common';
import { Readable } from 'internal/streams/readable';

export { ReadableStreamBYOBReader } from 'internal/streams/byob-reader';
export { tee } from 'internal/streams/tee-bytes';

function transfer(buffer) {
  if (buffer.detached) throw invalidState('Buffer is detached');
  return buffer.transfer();
}

function range(name, value) {
  return coded(RangeError, 'ERR_INVALID_ARG_VALUE', `The argument '${name}' is invalid. Received ${value}`);
}

/** The inside of a `ReadableByteStreamController`. */
class Controller {
  // What was enqueued and not read: `{ buffer, offset, length }`.
  #chunks = new Fifo();
  #total = 0;
  // The buffers to fill, each `{ buffer, bufferLength, offset, length, filled, least, size, View, reader }`.
  #pulls = [];
  #request = null;
  started = false;
  closeRequested = false;
  pulling = false;
  pullAgain = false;

  constructor(stream, { pull, cancel, high, allocate }) {
    this.stream = stream;
    this.pull = pull;
    this.cancel = cancel;
    this.high = high;
    this.allocate = allocate;
    stream.controller = this;
  }

  get isBytes() {
    return true;
  }

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
    return state === 'closed' ? 0 : this.high - this.#total;
  }

  callPull() {
    if (!this.open || !this.started) return;
    const waits = this.stream.reader?.requests.length > 0;
    if (!waits && !(this.high - this.#total > 0)) return;
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

  #forget() {
    this.pull = undefined;
    this.cancel = undefined;
  }

  #clearPulls() {
    this.invalidate();
    this.#pulls = [];
  }

  #clearChunks() {
    this.#chunks.take();
    this.#total = 0;
  }

  /** What was handed out as `byobRequest` answers no longer. */
  invalidate() {
    this.#request?.end();
    this.#request = null;
  }

  get request() {
    if (this.#request === null && this.#pulls.length > 0) {
      const [{ buffer, offset, filled, length }] = this.#pulls;
      const request = new Request(this, new Uint8Array(buffer, offset + filled, length - filled));
      request.shown = new ReadableStreamBYOBRequest(INSIDE, request);
      this.#request = request;
    }
    return this.#request;
  }

  #push(buffer, offset, length) {
    this.#chunks.push({ buffer, offset, length });
    this.#total += length;
  }

  #pushCopy(buffer, offset, length) {
    let copy;
    try {
      copy = buffer.slice(offset, offset + length);
    } catch (error) {
      this.error(error);
      throw error;
    }
    this.#push(copy, 0, length);
  }

  /** Keeps what a released reader's buffer was filled with. */
  #pushReleased(pull) {
    if (pull.filled > 0) this.#pushCopy(pull.buffer, pull.offset, pull.filled);
    this.#pulls.shift();
  }

  #drained() {
    if (this.#total === 0 && this.closeRequested) {
      this.#forget();
      this.stream.close();
    } else this.callPull();
  }

  #give(request) {
    const { buffer, offset, length } = this.#chunks.shift();
    this.#total -= length;
    this.#drained();
    request.chunk(new Uint8Array(buffer, offset, length));
  }

  /** Whether it is as full as its reader asked for. */
  #fill(pull) {
    const most = Math.min(this.#total, pull.length - pull.filled);
    const reached = pull.filled + most;
    const aligned = reached - (reached % pull.size);
    const ready = aligned >= pull.least;
    let left = ready ? aligned - pull.filled : most;
    while (left > 0) {
      const head = this.#chunks.first;
      const count = Math.min(left, head.length);
      new Uint8Array(pull.buffer, pull.offset + pull.filled, count).set(
        new Uint8Array(head.buffer, head.offset, count),
      );
      if (head.length === count) this.#chunks.shift();
      else {
        head.offset += count;
        head.length -= count;
      }
      this.#total -= count;
      pull.filled += count;
      left -= count;
    }
    return ready;
  }

  #fillPulls() {
    const full = [];
    while (this.#pulls.length > 0 && this.#total > 0) {
      if (!this.#fill(this.#pulls[0])) break;
      full.push(this.#pulls.shift());
    }
    return full;
  }

  #view(pull) {
    return new pull.View(transfer(pull.buffer), pull.offset, pull.filled / pull.size);
  }

  #commit(pull) {
    const { state, reader } = this.stream;
    const view = this.#view(pull);
    const request = reader.requests.shift();
    if (state === 'closed') request.close(view);
    else request.chunk(view);
  }

  enqueue(chunk) {
    if (!this.open) return;
    const { byteOffset, byteLength } = chunk;
    const buffer = transfer(chunk.buffer);
    if (this.#pulls.length > 0) {
      const [first] = this.#pulls;
      if (first.buffer.detached) throw invalidState('Destination ArrayBuffer is detached');
      this.invalidate();
      first.buffer = transfer(first.buffer);
      if (first.reader === 'none') this.#pushReleased(first);
    }
    const { reader } = this.stream;
    if (reader && !reader.byob) {
      while (reader.requests.length > 0 && this.#total > 0) this.#give(reader.requests.shift());
      if (reader.requests.length === 0) this.#push(buffer, byteOffset, byteLength);
      else {
        this.#pulls.shift();
        reader.requests.shift().chunk(new Uint8Array(buffer, byteOffset, byteLength));
      }
    } else {
      this.#push(buffer, byteOffset, byteLength);
      if (reader) for (const pull of this.#fillPulls()) this.#commit(pull);
    }
    this.callPull();
  }

  close() {
    if (!this.open) return;
    if (this.#total > 0) {
      this.closeRequested = true;
      return;
    }
    if (this.#pulls.length > 0 && this.#pulls[0].filled % this.#pulls[0].size !== 0) {
      const error = invalidState('Partial read');
      this.error(error);
      throw error;
    }
    this.#forget();
    this.stream.close();
  }

  error(error) {
    if (this.stream.state !== 'readable') return;
    this.#clearPulls();
    this.#clearChunks();
    this.#forget();
    this.stream.fail(error);
  }

  pullSteps(request) {
    if (this.#total > 0) {
      this.#give(request);
      return;
    }
    const { allocate } = this;
    if (allocate !== undefined) {
      let buffer;
      try {
        buffer = new ArrayBuffer(allocate);
      } catch (error) {
        request.error(error);
        return;
      }
      this.#pulls.push({
        buffer,
        bufferLength: allocate,
        offset: 0,
        length: allocate,
        filled: 0,
        least: 1,
        size: 1,
        View: Uint8Array,
        reader: 'default',
      });
    }
    this.stream.reader.requests.push(request);
    this.callPull();
  }

  cancelSteps(reason) {
    this.#clearPulls();
    this.#clearChunks();
    const { cancel } = this;
    const result = cancel ? promised(() => cancel(reason)) : Promise.resolve();
    this.#forget();
    return result;
  }

  releaseSteps() {
    if (this.#pulls.length === 0) return;
    this.#pulls[0].reader = 'none';
    this.#pulls.length = 1;
  }

  /** Fills a buffer of the reader's own with at least `min` elements. */
  pullInto(view, min, request) {
    const size = view instanceof DataView ? 1 : view.BYTES_PER_ELEMENT;
    const View = view instanceof DataView ? DataView : view.constructor;
    const { byteOffset: offset, byteLength: length } = view;
    let buffer;
    try {
      buffer = transfer(view.buffer);
    } catch (error) {
      request.error(error);
      return;
    }
    const pull = {
      buffer,
      bufferLength: buffer.byteLength,
      offset,
      length,
      filled: 0,
      least: min * size,
      size,
      View: standardView(View, size),
      reader: 'byob',
    };
    const { stream } = this;
    const { requests } = stream.reader;
    if (this.#pulls.length > 0) {
      this.#pulls.push(pull);
      requests.push(request);
      return;
    }
    if (stream.state === 'closed') {
      request.close(new pull.View(buffer, offset, 0));
      return;
    }
    if (this.#total > 0) {
      if (this.#fill(pull)) {
        const filled = this.#view(pull);
        this.#drained();
        request.chunk(filled);
        return;
      }
      if (this.closeRequested) {
        const error = invalidState('ReadableStream closed');
        this.error(error);
        request.error(error);
        return;
      }
    }
    this.#pulls.push(pull);
    requests.push(request);
    this.callPull();
  }

  respond(written) {
    const [first] = this.#pulls;
    if (this.stream.state === 'closed') {
      if (written !== 0) throw invalidState('Controller is closed');
    } else {
      if (written === 0) throw invalidState('Controller cannot respond with 0 bytes');
      if (first.filled + written > first.length) throw range('bytesWritten', written);
    }
    first.buffer = transfer(first.buffer);
    this.#respond(written);
  }

  respondWithNewView(view) {
    const [first] = this.#pulls;
    const written = view.byteLength;
    if (this.stream.state === 'closed') {
      if (written !== 0) throw invalidState('View is not zero-length');
    } else if (written === 0) throw invalidState('View is zero-length');
    if (first.offset + first.filled !== view.byteOffset) throw range('view', 'one at another place');
    if (first.bufferLength !== view.buffer.byteLength) throw range('view', 'one of another buffer');
    if (first.filled + written > first.length) throw range('view', 'one that is too long');
    first.buffer = transfer(view.buffer);
    this.#respond(written);
  }

  #respond(written) {
    const [first] = this.#pulls;
    this.invalidate();
    if (this.stream.state === 'closed') this.#respondClosed(first);
    else this.#respondReadable(written, first);
    this.callPull();
  }

  #respondClosed(first) {
    if (first.reader === 'none') this.#pulls.shift();
    const { reader } = this.stream;
    if (!reader?.byob) return;
    const ended = this.#pulls.splice(0, reader.requests.length);
    for (const pull of ended) this.#commit(pull);
  }

  #respondReadable(written, pull) {
    pull.filled += written;
    if (pull.reader === 'none') {
      this.#pushReleased(pull);
      for (const full of this.#fillPulls()) this.#commit(full);
      return;
    }
    if (pull.filled < pull.least) return;
    this.#pulls.shift();
    const rest = pull.filled % pull.size;
    if (rest > 0) this.#pushCopy(pull.buffer, pull.offset + pull.filled - rest, rest);
    pull.filled -= rest;
    const full = this.#fillPulls();
    this.#commit(pull);
    for (const each of full) this.#commit(each);
  }
}

/** The view of the language's own that a class of the user's extends. */
function standardView(View, size) {
  for (let at = View; typeof at === 'function'; at = Object.getPrototypeOf(at)) {
    if (
      at === DataView ||
      (globalThis[at.name] === at && at.BYTES_PER_ELEMENT === size && at.name !== 'Buffer')
    )
      return at;
  }
  return Uint8Array;
}

/** The inside of a `ReadableStreamBYOBRequest`. */
class Request {
  constructor(controller, view) {
    this.controller = controller;
    this.view = view;
  }

  end() {
    this.controller = undefined;
    this.view = null;
  }
}

/** Makes the stream a byte stream. */
export function setUp(inside, source, { autoAllocateChunkSize, cancel, pull, start }, high) {
  let allocate = autoAllocateChunkSize;
  if (allocate !== undefined) {
    allocate = Number(allocate);
    if (!(Number.isInteger(allocate) && allocate > 0))
      throw wrongValue('source.autoAllocateChunkSize', autoAllocateChunkSize);
  }
  let facade;
  const controller = new Controller(inside, {
    pull: pull && (() => pull.call(source, facade)),
    cancel: cancel && ((reason) => cancel.call(source, reason)),
    high,
    allocate,
  });
  facade = new ReadableByteStreamController(INSIDE, controller);
  controller.start(start?.call(source, facade));
}

/** A byte stream of algorithms of our own. */
export function makeBytes({ pull, cancel }, ReadableStream) {
  const inside = new Readable();
  const controller = new Controller(inside, { pull, cancel, high: 0 });
  const stream = new ReadableStream(INSIDE, inside);
  controller.start();
  return { stream, inside, controller };
}

/** Refuses what is no view, or one of shared memory. */
export function checkView(view, name) {
  if (!ArrayBuffer.isView(view))
    throw wrongType(name, 'an instance of Buffer, TypedArray, or DataView', view);
  if (view.buffer instanceof SharedArrayBuffer) throw invalidState('The view is of shared memory');
}

export class ReadableByteStreamController {
  #controller;

  constructor(key, controller) {
    if (key !== INSIDE) throw illegal();
    this.#controller = controller;
  }

  get byobRequest() {
    if (!(#controller in this)) throw invalidThis('ReadableByteStreamController');
    return this.#controller.request?.shown ?? null;
  }

  get desiredSize() {
    if (!(#controller in this)) throw invalidThis('ReadableByteStreamController');
    return this.#controller.desiredSize;
  }

  close() {
    if (!(#controller in this)) throw invalidThis('ReadableByteStreamController');
    if (this.#controller.closeRequested) throw invalidState('Controller is already closed');
    if (this.#controller.stream.state !== 'readable') throw invalidState('ReadableStream is already closed');
    this.#controller.close();
  }

  enqueue(chunk) {
    if (!(#controller in this)) throw invalidThis('ReadableByteStreamController');
    checkView(chunk, 'buffer');
    if (chunk.byteLength === 0) throw invalidState('chunk ArrayBuffer is zero-length or detached');
    if (chunk.buffer.byteLength === 0) throw invalidState('chunk ArrayBuffer is zero-length or detached');
    if (this.#controller.closeRequested) throw invalidState('Controller is already closed');
    if (this.#controller.stream.state !== 'readable') throw invalidState('ReadableStream is already closed');
    this.#controller.enqueue(chunk);
  }

  error(error = undefined) {
    if (!(#controller in this)) throw invalidThis('ReadableByteStreamController');
    this.#controller.error(error);
  }

  [inspectCustom](depth, options, inspect) {
    return shown('ReadableByteStreamController', {}, depth, options, inspect);
  }
}

export class ReadableStreamBYOBRequest {
  #request;

  constructor(key, request) {
    if (key !== INSIDE) throw illegal();
    this.#request = request;
  }

  get view() {
    if (!(#request in this)) throw invalidThis('ReadableStreamBYOBRequest');
    return this.#request.view;
  }

  respond(bytesWritten) {
    if (!(#request in this)) throw invalidThis('ReadableStreamBYOBRequest');
    const { view, controller } = this.#request;
    if (!controller) throw invalidState('This BYOB request has been invalidated');
    if (view.buffer.detached) throw invalidState('Viewed ArrayBuffer is detached');
    const written = Math.trunc(Number(bytesWritten));
    if (!(written >= 0)) throw wrongType('bytesWritten', 'a non-negative integer', bytesWritten);
    controller.respond(written);
  }

  respondWithNewView(view) {
    if (!(#request in this)) throw invalidThis('ReadableStreamBYOBRequest');
    const { controller } = this.#request;
    checkView(view, 'view');
    if (!controller) throw invalidState('This BYOB request has been invalidated');
    if (view.buffer.detached) throw invalidState('Viewed ArrayBuffer is detached');
    controller.respondWithNewView(view);
  }

  [inspectCustom](depth, options, inspect) {
    const { view, controller } = this.#request;
    return shown(
      'ReadableStreamBYOBRequest',
      { view, controller: controller && {} },
      depth,
      options,
      inspect,
    );
  }
}

for (const Class of [ReadableByteStreamController, ReadableStreamBYOBRequest]) webInterface(Class);
