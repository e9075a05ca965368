import { setImmediate } from 'internal/timers';
import native from 'native/zlib';
import { Bytes } from 'internal/buffer';
import { Transform } from 'node:stream';
import { absent } from 'internal/absent';
import { checkFunction, coded, missing, outOfRange, wrongType } from 'internal/errors';

const FLUSHES = {
  Z_NO_FLUSH: 0,
  Z_PARTIAL_FLUSH: 1,
  Z_SYNC_FLUSH: 2,
  Z_FULL_FLUSH: 3,
  Z_FINISH: 4,
  Z_BLOCK: 5,
};
export const codes = {
  Z_OK: 0,
  Z_STREAM_END: 1,
  Z_NEED_DICT: 2,
  Z_ERRNO: -1,
  Z_STREAM_ERROR: -2,
  Z_DATA_ERROR: -3,
  Z_MEM_ERROR: -4,
  Z_BUF_ERROR: -5,
  Z_VERSION_ERROR: -6,
};
for (const [name, number] of Object.entries(codes)) codes[number] = name;
Object.freeze(codes);

export const constants = Object.freeze({
  ...FLUSHES,
  Z_OK: 0,
  Z_STREAM_END: 1,
  Z_NEED_DICT: 2,
  Z_ERRNO: -1,
  Z_STREAM_ERROR: -2,
  Z_DATA_ERROR: -3,
  Z_MEM_ERROR: -4,
  Z_BUF_ERROR: -5,
  Z_VERSION_ERROR: -6,
  Z_NO_COMPRESSION: 0,
  Z_BEST_SPEED: 1,
  Z_BEST_COMPRESSION: 9,
  Z_DEFAULT_COMPRESSION: -1,
  Z_FILTERED: 1,
  Z_HUFFMAN_ONLY: 2,
  Z_RLE: 3,
  Z_FIXED: 4,
  Z_DEFAULT_STRATEGY: 0,
  ZLIB_VERNUM: 4880,
  DEFLATE: 1,
  INFLATE: 2,
  GZIP: 3,
  GUNZIP: 4,
  DEFLATERAW: 5,
  INFLATERAW: 6,
  UNZIP: 7,
  Z_MIN_WINDOWBITS: 8,
  Z_MAX_WINDOWBITS: 15,
  Z_DEFAULT_WINDOWBITS: 15,
  Z_MIN_CHUNK: 64,
  Z_MAX_CHUNK: Infinity,
  Z_DEFAULT_CHUNK: 16384,
  Z_MIN_MEMLEVEL: 1,
  Z_MAX_MEMLEVEL: 9,
  Z_DEFAULT_MEMLEVEL: 8,
  Z_MIN_LEVEL: -1,
  Z_MAX_LEVEL: 9,
  Z_DEFAULT_LEVEL: -1,
});

const MOST = 2 ** 32;

function failure(error, most) {
  if (error.message === 'too large') {
    return coded(RangeError, 'ERR_BUFFER_TOO_LARGE', `Cannot create a Buffer larger than ${most} bytes`);
  }
  const [code, errno] =
    error.message === 'unexpected end of file' ? ['Z_BUF_ERROR', -5] : ['Z_DATA_ERROR', -3];
  return coded(Error, code, error.message, { errno });
}

/** One direction of one format. */
class Codec {
  #level;
  #native;
  #most;
  #left;
  #whole;
  #head = Bytes.alloc(0);

  constructor(kind, options = {}) {
    const { level = -1, maxOutputLength = MOST, finishFlush, dictionary } = options ?? {};
    if (typeof level !== 'number') throw wrongType('options.level', 'of type number', level);
    if (!(level >= -1 && level <= 9)) throw outOfRange('options.level', '>= -1 and <= 9', level);
    if (!(maxOutputLength >= 1))
      throw outOfRange('options.maxOutputLength', '>= 1 and <= 4294967296', maxOutputLength);
    if (dictionary !== undefined) throw missing('zlib with a dictionary');
    this.#level = level < 0 ? 6 : level;
    this.#most = maxOutputLength;
    this.#left = maxOutputLength;
    this.#whole = finishFlush === undefined || finishFlush === FLUSHES.Z_FINISH;
    if (kind !== 'unzip') this.#native = native.codec(kind, this.#level);
  }

  #run(run) {
    let made;
    try {
      made = run(this.#left);
    } catch (error) {
      throw failure(error, this.#most);
    }
    this.#left -= made.byteLength;
    return Bytes.from(made.buffer, made.byteOffset, made.byteLength);
  }

  write(bytes) {
    if (!this.#native) {
      this.#head = Bytes.concat([this.#head, bytes]);
      if (this.#head.length < 2) return Bytes.alloc(0);
      const zipped = this.#head[0] === 0x1f && this.#head[1] === 0x8b;
      this.#native = native.codec(zipped ? 'gunzip' : 'inflate', this.#level);
      bytes = this.#head;
    }
    return this.#run((room) => this.#native.write(bytes, room));
  }

  flush() {
    return this.#native ? this.#run((room) => this.#native.flush(room)) : Bytes.alloc(0);
  }

  finish() {
    this.#native ??= native.codec('inflate', this.#level);
    return this.#run((room) => this.#native.finish(this.#whole, room));
  }
}

function bytesOf(data) {
  if (typeof data === 'string') return Bytes.from(data);
  if (ArrayBuffer.isView(data)) return Bytes.from(data.buffer, data.byteOffset, data.byteLength);
  if (data instanceof ArrayBuffer) return Bytes.from(data);
  throw wrongType(
    'buffer',
    'of type string or an instance of Buffer, TypedArray, DataView, or ArrayBuffer',
    data,
  );
}

class Zlib extends Transform {
  #codec;
  bytesWritten = 0;

  constructor(kind, options) {
    super(options);
    this.#codec = new Codec(kind, options);
  }

  _transform(chunk, encoding, callback) {
    try {
      const bytes = typeof chunk === 'string' ? Bytes.from(chunk, encoding) : bytesOf(chunk);
      this.bytesWritten += bytes.length;
      // In pieces: what comes out of one may be a thousand times as long.
      for (let at = 0; at < bytes.length; at += 16384)
        this.#give(this.#codec.write(bytes.subarray(at, at + 16384)));
      callback();
    } catch (error) {
      callback(error);
    }
  }

  _flush(callback) {
    try {
      this.#give(this.#codec.finish());
      callback();
    } catch (error) {
      callback(error);
    }
  }

  #give(bytes) {
    if (bytes.length > 0) this.push(bytes);
  }

  flush(kind, callback) {
    if (typeof kind === 'function') callback = kind;
    // After what was written before.
    this.write(Bytes.alloc(0), () => {
      try {
        this.#give(this.#codec.flush());
        callback?.();
      } catch (error) {
        this.destroy(error);
      }
    });
  }

  close(callback) {
    if (callback) this.once('close', callback);
    this.destroy();
  }

  // Not documented by Node, and what packages work on that need no stream.
  _handle = { close() {} };

  _processChunk(chunk, flush) {
    const bytes = bytesOf(chunk);
    this.bytesWritten += bytes.length;
    const made = [this.#codec.write(bytes)];
    if (flush === FLUSHES.Z_FINISH) made.push(this.#codec.finish());
    else if (flush > 0) made.push(this.#codec.flush());
    return Bytes.concat(made);
  }
}

export class Gzip extends Zlib {
  constructor(options) {
    super('gzip', options);
  }
}
export class Gunzip extends Zlib {
  constructor(options) {
    super('gunzip', options);
  }
}
export class Deflate extends Zlib {
  constructor(options) {
    super('deflate', options);
  }
}
export class Inflate extends Zlib {
  constructor(options) {
    super('inflate', options);
  }
}
export class DeflateRaw extends Zlib {
  constructor(options) {
    super('deflateRaw', options);
  }
}
export class InflateRaw extends Zlib {
  constructor(options) {
    super('inflateRaw', options);
  }
}
export class Unzip extends Zlib {
  constructor(options) {
    super('unzip', options);
  }
}

export const createGzip = (options) => new Gzip(options);
export const createGunzip = (options) => new Gunzip(options);
export const createDeflate = (options) => new Deflate(options);
export const createInflate = (options) => new Inflate(options);
export const createDeflateRaw = (options) => new DeflateRaw(options);
export const createInflateRaw = (options) => new InflateRaw(options);
export const createUnzip = (options) => new Unzip(options);

function atOnce(kind) {
  const sync = (data, options) => {
    const codec = new Codec(kind, options);
    return Bytes.concat([codec.write(bytesOf(data)), codec.finish()]);
  };
  const later = (data, options, callback) => {
    if (typeof options === 'function') [options, callback] = [undefined, options];
    checkFunction(callback, 'callback');
    const bytes = bytesOf(data);
    setImmediate(() => {
      let made;
      try {
        made = sync(bytes, options);
      } catch (error) {
        callback(error);
        return;
      }
      callback(null, made);
    });
  };
  return [sync, later];
}

const [gzipSync, gzip] = atOnce('gzip');
const [gunzipSync, gunzip] = atOnce('gunzip');
const [deflateSync, deflate] = atOnce('deflate');
const [inflateSync, inflate] = atOnce('inflate');
const [deflateRawSync, deflateRaw] = atOnce('deflateRaw');
const [inflateRawSync, inflateRaw] = atOnce('inflateRaw');
const [unzipSync, unzip] = atOnce('unzip');

let table;

export function crc32(data, value = 0) {
  table ??= Uint32Array.from({ length: 256 }, (_, at) => {
    for (let bit = 0; bit < 8; bit += 1) at = at & 1 ? (at >>> 1) ^ 0xedb88320 : at >>> 1;
    return at;
  });
  let sum = ~value;
  for (const byte of bytesOf(data)) sum = table[(sum ^ byte) & 255] ^ (sum >>> 8);
  return ~sum >>> 0;
}

const [
  BrotliCompress,
  BrotliDecompress,
  brotliCompress,
  brotliCompressSync,
  brotliDecompress,
  brotliDecompressSync,
  createBrotliCompress,
  createBrotliDecompress,
] = [
  'BrotliCompress',
  'BrotliDecompress',
  'brotliCompress',
  'brotliCompressSync',
  'brotliDecompress',
  'brotliDecompressSync',
  'createBrotliCompress',
  'createBrotliDecompress',
].map((name) => absent(`zlib.${name}`));

export {
  BrotliCompress,
  BrotliDecompress,
  brotliCompress,
  brotliCompressSync,
  brotliDecompress,
  brotliDecompressSync,
  createBrotliCompress,
  createBrotliDecompress,
  deflate,
  deflateRaw,
  deflateRawSync,
  deflateSync,
  gunzip,
  gunzipSync,
  gzip,
  gzipSync,
  inflate,
  inflateRaw,
  inflateRawSync,
  inflateSync,
  unzip,
  unzipSync,
};
export default {
  BrotliCompress,
  BrotliDecompress,
  Deflate,
  DeflateRaw,
  Gunzip,
  Gzip,
  Inflate,
  InflateRaw,
  Unzip,
  brotliCompress,
  brotliCompressSync,
  brotliDecompress,
  brotliDecompressSync,
  codes,
  constants,
  crc32,
  createBrotliCompress,
  createBrotliDecompress,
  createDeflate,
  createDeflateRaw,
  createGunzip,
  createGzip,
  createInflate,
  createInflateRaw,
  createUnzip,
  deflate,
  deflateRaw,
  deflateRawSync,
  deflateSync,
  gunzip,
  gunzipSync,
  gzip,
  gzipSync,
  inflate,
  inflateRaw,
  inflateRawSync,
  inflateSync,
  unzip,
  unzipSync,
};
