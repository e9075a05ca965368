import { setImmediate } from 'internal/timers';
import native from 'native/zlib';
import { Bytes } from 'internal/buffer';
import { Transform } from 'node:stream';
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

/** The errors of a decoder, by what its result is less than zero. */
const DECODER_ERRORS = [
  'FORMAT_EXUBERANT_NIBBLE',
  'FORMAT_RESERVED',
  'FORMAT_EXUBERANT_META_NIBBLE',
  'FORMAT_SIMPLE_HUFFMAN_ALPHABET',
  'FORMAT_SIMPLE_HUFFMAN_SAME',
  'FORMAT_CL_SPACE',
  'FORMAT_HUFFMAN_SPACE',
  'FORMAT_CONTEXT_MAP_REPEAT',
  'FORMAT_BLOCK_LENGTH_1',
  'FORMAT_BLOCK_LENGTH_2',
  'FORMAT_TRANSFORM',
  'FORMAT_DICTIONARY',
  'FORMAT_WINDOW_BITS',
  'FORMAT_PADDING_1',
  'FORMAT_PADDING_2',
  'FORMAT_DISTANCE',
  undefined,
  undefined,
  'DICTIONARY_NOT_SET',
  'INVALID_ARGUMENTS',
  'ALLOC_CONTEXT_MODES',
  'ALLOC_TREE_GROUPS',
  undefined,
  undefined,
  'ALLOC_CONTEXT_MAP',
  'ALLOC_RING_BUFFER_1',
  'ALLOC_RING_BUFFER_2',
  undefined,
  undefined,
  'ALLOC_BLOCK_TYPE_TREES',
  'UNREACHABLE',
];
const BROTLI = {
  BROTLI_DECODE: 8,
  BROTLI_ENCODE: 9,
  BROTLI_OPERATION_PROCESS: 0,
  BROTLI_OPERATION_FLUSH: 1,
  BROTLI_OPERATION_FINISH: 2,
  BROTLI_OPERATION_EMIT_METADATA: 3,
  BROTLI_PARAM_MODE: 0,
  BROTLI_MODE_GENERIC: 0,
  BROTLI_MODE_TEXT: 1,
  BROTLI_MODE_FONT: 2,
  BROTLI_DEFAULT_MODE: 0,
  BROTLI_PARAM_QUALITY: 1,
  BROTLI_MIN_QUALITY: 0,
  BROTLI_MAX_QUALITY: 11,
  BROTLI_DEFAULT_QUALITY: 11,
  BROTLI_PARAM_LGWIN: 2,
  BROTLI_MIN_WINDOW_BITS: 10,
  BROTLI_MAX_WINDOW_BITS: 24,
  BROTLI_LARGE_MAX_WINDOW_BITS: 30,
  BROTLI_DEFAULT_WINDOW: 22,
  BROTLI_PARAM_LGBLOCK: 3,
  BROTLI_MIN_INPUT_BLOCK_BITS: 16,
  BROTLI_MAX_INPUT_BLOCK_BITS: 24,
  BROTLI_PARAM_DISABLE_LITERAL_CONTEXT_MODELING: 4,
  BROTLI_PARAM_SIZE_HINT: 5,
  BROTLI_PARAM_LARGE_WINDOW: 6,
  BROTLI_PARAM_NPOSTFIX: 7,
  BROTLI_PARAM_NDIRECT: 8,
  BROTLI_DECODER_RESULT_ERROR: 0,
  BROTLI_DECODER_RESULT_SUCCESS: 1,
  BROTLI_DECODER_RESULT_NEEDS_MORE_INPUT: 2,
  BROTLI_DECODER_RESULT_NEEDS_MORE_OUTPUT: 3,
  BROTLI_DECODER_PARAM_DISABLE_RING_BUFFER_REALLOCATION: 0,
  BROTLI_DECODER_PARAM_LARGE_WINDOW: 1,
  BROTLI_DECODER_NO_ERROR: 0,
  BROTLI_DECODER_SUCCESS: 1,
  BROTLI_DECODER_NEEDS_MORE_INPUT: 2,
  BROTLI_DECODER_NEEDS_MORE_OUTPUT: 3,
};
for (const [at, name] of DECODER_ERRORS.entries()) {
  if (name) BROTLI[`BROTLI_DECODER_ERROR_${name}`] = -1 - at;
}

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
  ...BROTLI,
});

const MOST = 2 ** 32;

function failure(error, most) {
  if (error.message === 'too large') {
    return coded(RangeError, 'ERR_BUFFER_TOO_LARGE', `Cannot create a Buffer larger than ${most} bytes`);
  }
  const brotli = /^brotli -(\d+)$/.exec(error.message);
  if (brotli) {
    const code = `ERR__ERROR_${DECODER_ERRORS[brotli[1] - 1]}`;
    return coded(Error, code, 'Decompression failed', { errno: -Number(brotli[1]) });
  }
  const [code, errno] =
    error.message === 'unexpected end of file' ? ['Z_BUF_ERROR', -5] : ['Z_DATA_ERROR', -3];
  return coded(Error, code, error.message, { errno });
}

/** Brotli's parameters by their numbers, with their defaults. */
function parameters(params = {}) {
  const all = [0, BROTLI.BROTLI_DEFAULT_QUALITY, 0, 0, 0, 0, 0, 0, 0];
  for (const [key, value] of Object.entries(params)) {
    if (!(key >= 0 && key < all.length)) {
      throw coded(RangeError, 'ERR_BROTLI_INVALID_PARAM', `${key} is not a valid Brotli parameter`);
    }
    if (typeof value !== 'number' && typeof value !== 'boolean') {
      throw wrongType('options.params[key]', 'of type number', value);
    }
    if (Number(key) === BROTLI.BROTLI_PARAM_LARGE_WINDOW && value) missingWindow();
    all[key] = Number(value);
  }
  return all;
}

function missingWindow() {
  throw missing('zlib with a large window of brotli');
}

/** One direction of one format. */
class Codec {
  #options;
  #native;
  #most;
  #left;
  #whole;
  #head = Bytes.alloc(0);

  constructor(kind, options = {}) {
    const { level = -1, maxOutputLength = MOST, finishFlush, dictionary } = options ?? {};
    if (!(maxOutputLength >= 1))
      throw outOfRange('options.maxOutputLength', '>= 1 and <= 4294967296', maxOutputLength);
    this.#most = maxOutputLength;
    this.#left = maxOutputLength;
    if (kind.startsWith('brotli')) {
      this.#options = parameters(options?.params);
      this.#whole = finishFlush === undefined || finishFlush === BROTLI.BROTLI_OPERATION_FINISH;
      this.#native = native.codec(kind, this.#options);
      return;
    }
    if (typeof level !== 'number') throw wrongType('options.level', 'of type number', level);
    if (!(level >= -1 && level <= 9)) throw outOfRange('options.level', '>= -1 and <= 9', level);
    if (dictionary !== undefined) throw missing('zlib with a dictionary');
    this.#options = [level < 0 ? 6 : level];
    this.#whole = finishFlush === undefined || finishFlush === FLUSHES.Z_FINISH;
    if (kind !== 'unzip') this.#native = native.codec(kind, this.#options);
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
      this.#native = native.codec(zipped ? 'gunzip' : 'inflate', this.#options);
      bytes = this.#head;
    }
    return this.#run((room) => this.#native.write(bytes, room));
  }

  flush() {
    return this.#native ? this.#run((room) => this.#native.flush(room)) : Bytes.alloc(0);
  }

  finish() {
    this.#native ??= native.codec('inflate', this.#options);
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

const kCodec = Symbol('codec');
const kGive = Symbol('give');

/** What all of them have. Packages call the constructors without `new`, and on objects of their own. */
function Zlib(kind, options) {
  Transform.call(this, options);
  this[kCodec] = new Codec(kind, options);
  this.bytesWritten = 0;
  this._chunkSize = options?.chunkSize ?? 16384;
  this._outOffset = 0;
  this._outBuffer = Bytes.allocUnsafe(this._chunkSize);
  this._hadError = false;
  this._handle = handleOf(this);
}
Object.setPrototypeOf(Zlib.prototype, Transform.prototype);
Object.setPrototypeOf(Zlib, Transform);

/** Not documented by Node, and what packages work on that need no stream. */
function handleOf(stream) {
  let waiting = Bytes.alloc(0);
  let taken = false;
  return {
    close() {},
    /** Answers how many bytes are left of what is read, and of the room for what is written. */
    writeSync(flush, input, from, length, output, at, room) {
      try {
        if (!taken && input) {
          waiting = methods._processChunk.call(stream, input.subarray(from, from + length), flush);
        }
      } catch (error) {
        stream._hadError = true;
        stream.emit('error', error);
        return [0, 0];
      }
      const many = Math.min(room, waiting.length);
      output.set(waiting.subarray(0, many), at);
      waiting = waiting.subarray(many);
      // What was read is all read at once; what it became is handed out as there is room.
      taken = waiting.length > 0 || many === room;
      return [0, room - many];
    },
  };
}

const methods = {
  _transform(chunk, encoding, callback) {
    try {
      const bytes = typeof chunk === 'string' ? Bytes.from(chunk, encoding) : bytesOf(chunk);
      this.bytesWritten += bytes.length;
      // In pieces: what comes out of one may be a thousand times as long.
      for (let at = 0; at < bytes.length; at += 16384)
        this[kGive](this[kCodec].write(bytes.subarray(at, at + 16384)));
      callback();
    } catch (error) {
      callback(error);
    }
  },

  _flush(callback) {
    try {
      this[kGive](this[kCodec].finish());
      callback();
    } catch (error) {
      callback(error);
    }
  },

  [kGive](bytes) {
    if (bytes.length > 0) this.push(bytes);
  },

  flush(kind, callback) {
    if (typeof kind === 'function') callback = kind;
    // After what was written before.
    this.write(Bytes.alloc(0), () => {
      try {
        this[kGive](this[kCodec].flush());
        callback?.();
      } catch (error) {
        this.destroy(error);
      }
    });
  },

  close(callback) {
    if (callback) this.once('close', callback);
    this.destroy();
  },

  _processChunk(chunk, flush) {
    const bytes = bytesOf(chunk);
    this.bytesWritten += bytes.length;
    const made = [this[kCodec].write(bytes)];
    if (flush === FLUSHES.Z_FINISH) made.push(this[kCodec].finish());
    else if (flush > 0) made.push(this[kCodec].flush());
    return Bytes.concat(made);
  },
};
for (const name of Reflect.ownKeys(methods)) {
  Object.defineProperty(Zlib.prototype, name, { value: methods[name], configurable: true, writable: true });
}

function kind(name, codec) {
  const Kind = {
    [name]: function (options) {
      if (!(this instanceof Kind)) return new Kind(options);
      Zlib.call(this, codec, options);
      return this;
    },
  }[name];
  Object.setPrototypeOf(Kind.prototype, Zlib.prototype);
  Object.setPrototypeOf(Kind, Zlib);
  return Kind;
}

export const Gzip = kind('Gzip', 'gzip');
export const Gunzip = kind('Gunzip', 'gunzip');
export const Deflate = kind('Deflate', 'deflate');
export const Inflate = kind('Inflate', 'inflate');
export const DeflateRaw = kind('DeflateRaw', 'deflateRaw');
export const InflateRaw = kind('InflateRaw', 'inflateRaw');
export const Unzip = kind('Unzip', 'unzip');
export const BrotliCompress = kind('BrotliCompress', 'brotliCompress');
export const BrotliDecompress = kind('BrotliDecompress', 'brotliDecompress');

export const createBrotliCompress = (options) => new BrotliCompress(options);
export const createBrotliDecompress = (options) => new BrotliDecompress(options);
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

const [brotliCompressSync, brotliCompress] = atOnce('brotliCompress');
const [brotliDecompressSync, brotliDecompress] = atOnce('brotliDecompress');

// There is no zstd, and packages ask.
const [
  ZstdCompress,
  ZstdDecompress,
  createZstdCompress,
  createZstdDecompress,
  zstdCompress,
  zstdCompressSync,
  zstdDecompress,
  zstdDecompressSync,
] = [];

export {
  ZstdCompress,
  ZstdDecompress,
  createZstdCompress,
  createZstdDecompress,
  zstdCompress,
  zstdCompressSync,
  zstdDecompress,
  zstdDecompressSync,
  brotliCompress,
  brotliCompressSync,
  brotliDecompress,
  brotliDecompressSync,
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
const zlib = {
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
// As Node once had them, and packages still read them.
for (const name of Object.keys(constants)) {
  if (!name.startsWith('BROTLI')) Object.defineProperty(zlib, name, { value: constants[name] });
}
export default zlib;
