// The reader of a byte stream that brings its own buffer.

import { coded, wrongType, wrongValue } from 'internal/errors';
import { checkView } from 'internal/streams/bytes';
import {
  dictionary,
  inspectCustom,
  invalidState,
  invalidThis,
  shown,
  webInterface,
} from 'internal/streams/common';
import { Reader, readableInside } from 'internal/streams/readable';

export class ReadableStreamBYOBReader {
  #reader;

  constructor(stream) {
    const inside = readableInside(stream);
    if (!inside) throw wrongType('stream', 'an instance of ReadableStream', stream);
    this.#reader = new Reader(inside, true);
  }

  async read(view, options = undefined) {
    if (!(#reader in this)) throw invalidThis('ReadableStreamBYOBReader');
    checkView(view, 'view');
    const { min = 1 } = dictionary(options, 'options');
    if (view.byteLength === 0) throw invalidState('View or Viewed ArrayBuffer is zero-length or detached');
    if (view.buffer.byteLength === 0)
      throw invalidState('View or Viewed ArrayBuffer is zero-length or detached');
    const most = view instanceof DataView ? view.byteLength : view.length;
    if (typeof min !== 'number' || Math.trunc(min) < 1)
      throw wrongValue('options.min', min, 'must be greater than 0');
    if (min > most) {
      throw coded(
        RangeError,
        'ERR_OUT_OF_RANGE',
        `The value of "options.min" is out of range. It must be <= view.${view instanceof DataView ? 'byteLength' : 'length'}. Received ${min}`,
      );
    }
    const reader = this.#reader;
    if (!reader.stream) throw invalidState('The reader is not attached to a stream');
    return new Promise((resolve, reject) => {
      readInto(reader, view, Math.trunc(min), {
        chunk: (value) => resolve({ value, done: false }),
        close: (value) => resolve({ value, done: true }),
        error: reject,
      });
    });
  }

  releaseLock() {
    if (!(#reader in this)) throw invalidThis('ReadableStreamBYOBReader');
    this.#reader.release();
  }

  get closed() {
    if (!(#reader in this)) return Promise.reject(invalidThis('ReadableStreamBYOBReader'));
    return this.#reader.closed.promise;
  }

  cancel(reason = undefined) {
    if (!(#reader in this)) return Promise.reject(invalidThis('ReadableStreamBYOBReader'));
    if (!this.#reader.stream) return Promise.reject(invalidState('The reader is not attached to a stream'));
    return this.#reader.cancel(reason);
  }

  [inspectCustom](depth, options, inspect) {
    const { stream, requests, closed } = this.#reader;
    const members = { stream: stream && {}, requests: requests.length, close: closed.promise };
    return shown('ReadableStreamBYOBReader', members, depth, options, inspect);
  }
}

/** Reads into a buffer of the reader's own. */
export function readInto(reader, view, min, request) {
  const { stream } = reader;
  stream.disturbed = true;
  if (stream.state === 'errored') request.error(stream.error);
  else stream.controller.pullInto(view, min, request);
}

webInterface(ReadableStreamBYOBReader);
