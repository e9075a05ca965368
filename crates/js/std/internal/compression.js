// `CompressionStream` and `DecompressionStream`.

import zlib from 'node:zlib';
import { include } from 'internal/members';
import { webInterface } from 'internal/streams/common';

const FORMATS = {
  deflate: ['createDeflate', 'createInflate'],
  'deflate-raw': ['createDeflateRaw', 'createInflateRaw'],
  gzip: ['createGzip', 'createGunzip'],
};

function both(format, which) {
  const make = FORMATS[format]?.[which];
  if (!make) {
    throw Object.assign(
      new TypeError(
        `The argument 'format' must be one of: 'deflate', 'deflate-raw', 'gzip'. Received '${format}'`,
      ),
      { code: 'ERR_INVALID_ARG_VALUE' },
    );
  }
  const through = zlib[make]();
  let failed;
  return new TransformStream({
    start(controller) {
      through.on('data', (bytes) => controller.enqueue(new Uint8Array(bytes)));
      through.on('error', (error) => {
        failed = new TypeError(error.message, { cause: error });
        controller.error(failed);
      });
    },
    transform(chunk) {
      return new Promise((resolve, reject) => {
        through.write(chunk, (error) => (error ? reject(error) : resolve()));
      });
    },
    flush() {
      return new Promise((resolve, reject) => {
        through.once('end', resolve);
        through.once('error', reject);
        through.end();
      });
    },
  });
}

class Pair {
  #both;

  constructor(format, which) {
    this.#both = both(`${format}`, which);
  }
  get readable() {
    return this.#both.readable;
  }
  get writable() {
    return this.#both.writable;
  }
}

export class CompressionStream extends Pair {
  constructor(format) {
    super(format, 0);
  }
}

export class DecompressionStream extends Pair {
  constructor(format) {
    super(format, 1);
  }
}

for (const Class of [CompressionStream, DecompressionStream]) {
  include(Class, Pair);
  webInterface(Class);
}
