// `Buffer` and what stands beside it in `node:buffer`.

import { coded, outOfBounds, outOfRange, wrongType, wrongValue } from 'internal/errors';
import { methods as numeric } from 'internal/buffer-numbers';
import native from 'native/encoding';
import loader from 'native/globals';

const encodings = {
  utf8: 'utf8',
  'utf-8': 'utf8',
  hex: 'hex',
  base64: 'base64',
  base64url: 'base64url',
  latin1: 'latin1',
  binary: 'latin1',
  ascii: 'ascii',
  ucs2: 'utf16le',
  'ucs-2': 'utf16le',
  utf16le: 'utf16le',
  'utf-16le': 'utf16le',
};

export const kMaxLength = Number.MAX_SAFE_INTEGER;
export const kStringMaxLength = 2 ** 29 - 24;
export const constants = { MAX_LENGTH: kMaxLength, MAX_STRING_LENGTH: kStringMaxLength };
/** How many bytes of a buffer are shown. */
let shownBytes = 50;
export const showing = {
  get INSPECT_MAX_BYTES() {
    return shownBytes;
  },
  set INSPECT_MAX_BYTES(many) {
    if (typeof many !== 'number') throw wrongType('INSPECT_MAX_BYTES', 'of type number', many);
    if (!(many >= 0)) throw outOfRange('INSPECT_MAX_BYTES', '>= 0', many);
    shownBytes = many;
  },
};

function encodingOf(name) {
  if (name === undefined || name === null || name === '') return 'utf8';
  const known = encodings[`${name}`.toLowerCase()];
  if (!known) throw coded(TypeError, 'ERR_UNKNOWN_ENCODING', `Unknown encoding: ${name}`);
  return known;
}

// `subarray` and its like make what `species` says: a Buffer again.
class FastBuffer extends Uint8Array {}

export function Buffer(value, encodingOrOffset, length) {
  if (typeof value === 'number') return statics.alloc(value);
  return statics.from(value, encodingOrOffset, length);
}

Buffer.prototype = FastBuffer.prototype;
Object.setPrototypeOf(Buffer, Uint8Array);
Object.defineProperty(FastBuffer.prototype, 'constructor', {
  value: Buffer,
  configurable: true,
  writable: true,
});
Object.defineProperty(FastBuffer, Symbol.species, { get: () => FastBuffer });
Object.defineProperty(Buffer, Symbol.species, { get: () => FastBuffer });

function over(bytes) {
  return new FastBuffer(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function fromText(text, encoding) {
  const known = encodingOf(encoding);
  return over(native.encode(text, known === 'ascii' ? 'latin1' : known));
}

function checkSize(size) {
  if (typeof size !== 'number') throw wrongType('size', 'of type number', size);
  if (!(size >= 0 && size <= kMaxLength)) throw outOfRange('size', `>= 0 && <= ${kMaxLength}`, size);
}

/** Bytes of anything that holds some, without a copy. */
function view(value, name = 'buffer', expected = 'an instance of Buffer or Uint8Array') {
  if (value instanceof Uint8Array) return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return new Uint8Array(value);
  throw wrongType(name, expected, value);
}

/** A part of an `ArrayBuffer`. */
function part(bytes, offset, length) {
  const from = offset === undefined ? 0 : Number.isNaN(+offset) ? 0 : +offset;
  const most = bytes.byteLength - from;
  if (!(most >= 0)) throw outOfBounds('offset');
  if (length === undefined) return new FastBuffer(bytes, from, most);
  const many = +length > 0 ? +length : 0;
  if (many > most) throw outOfBounds('length');
  return new FastBuffer(bytes, from, many);
}

// Functions that packages call with `new`, as they may.
const statics = {
  poolSize: 8192,

  from: function from(value, encodingOrOffset, length) {
    if (typeof value === 'string') return fromText(value, encodingOrOffset);
    if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) {
      return part(value, encodingOrOffset, length);
    }
    if (value !== null && typeof value === 'object') {
      if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
        return value instanceof Uint8Array ? new FastBuffer(value) : FastBuffer.from(value);
      }
      const primitive = value.valueOf?.();
      if (primitive != null && primitive !== value && typeof primitive !== 'function') {
        return statics.from(primitive, encodingOrOffset, length);
      }
      if (value.type === 'Buffer' && Array.isArray(value.data)) return FastBuffer.from(value.data);
      if (typeof value.length === 'number') return FastBuffer.from(Array.from(value, (byte) => byte & 0xff));
      if (typeof value[Symbol.toPrimitive] === 'function') {
        return statics.from(value[Symbol.toPrimitive]('string'), encodingOrOffset, length);
      }
    }
    const expected = 'of type string or an instance of Buffer, ArrayBuffer, or Array or an Array-like Object';
    throw wrongType('first argument', expected, value);
  },

  alloc: function alloc(size, fill, encoding) {
    checkSize(size);
    const buffer = new FastBuffer(size);
    return fill === undefined || fill === 0 || size === 0
      ? buffer
      : fillWith(buffer, fill, 0, undefined, encoding);
  },

  allocUnsafe: function allocUnsafe(size) {
    checkSize(size);
    return new FastBuffer(size);
  },

  allocUnsafeSlow: function allocUnsafeSlow(size) {
    return statics.allocUnsafe(size);
  },

  isBuffer(value) {
    return value instanceof Buffer;
  },

  isEncoding(name) {
    return typeof name === 'string' && encodings[name.toLowerCase()] !== undefined;
  },

  byteLength(value, encoding) {
    if (typeof value !== 'string') {
      const expected = 'of type string or an instance of Buffer or ArrayBuffer';
      return view(value, 'string', expected).byteLength;
    }
    // As in Node, what is not known is taken for UTF-8.
    switch (encodings[`${encoding}`.toLowerCase()] ?? 'utf8') {
      case 'utf8':
        return native.byteLength(value);
      case 'hex':
        return value.length >>> 1;
      case 'utf16le':
        return value.length * 2;
      case 'base64':
      case 'base64url':
        return Math.floor((value.replace(/={1,2}$/, '').length * 3) / 4);
      default:
        return value.length;
    }
  },

  concat: function concat(list, length) {
    if (!Array.isArray(list)) throw wrongType('list', 'an instance of Array', list);
    if (length !== undefined) {
      if (typeof length !== 'number') throw wrongType('length', 'of type number', length);
      if (!Number.isInteger(length)) throw outOfRange('length', 'an integer', length);
      if (length < 0 || length > Number.MAX_SAFE_INTEGER)
        throw outOfRange('length', `>= 0 && <= ${Number.MAX_SAFE_INTEGER}`, length);
    }
    if (list.length === 0) return new FastBuffer(0);
    list.forEach((one, at) => {
      if (!(one instanceof Uint8Array))
        throw wrongType(`list[${at}]`, 'an instance of Buffer or Uint8Array', one);
    });
    const total = length ?? list.reduce((sum, one) => sum + one.length, 0);
    const all = statics.alloc(total);
    let at = 0;
    for (const bytes of list) {
      if (at >= total) break;
      all.set(bytes.length > total - at ? bytes.subarray(0, total - at) : bytes, at);
      at += bytes.length;
    }
    return all;
  },

  compare(a, b) {
    const [left, right] = [view(a, 'buf1'), view(b, 'buf2')];
    const shared = Math.min(left.length, right.length);
    for (let at = 0; at < shared; at += 1) {
      if (left[at] !== right[at]) return left[at] < right[at] ? -1 : 1;
    }
    return Math.sign(left.length - right.length);
  },

  copyBytesFrom(source, offset = 0, length = source.length - offset) {
    return statics.from(view(source.subarray(offset, offset + length)));
  },

  of: function of(...bytes) {
    return FastBuffer.from(bytes);
  },

  _encoding: encodingOf,
};

for (const name in statics) {
  Object.defineProperty(Buffer, name, {
    value: statics[name],
    configurable: true,
    writable: true,
    enumerable: !name.startsWith('_'),
  });
}

function bytesOf(value, name) {
  if (value instanceof Uint8Array) return value;
  throw wrongType(name, 'an instance of Buffer or Uint8Array', value);
}

/** A whole number within these bounds. */
function whole(value, name, most) {
  if (typeof value !== 'number') throw wrongType(name, 'of type number', value);
  if (!Number.isInteger(value)) throw outOfRange(name, 'an integer', value);
  if (value < 0 || value > most) throw outOfRange(name, `>= 0 && <= ${most}`, value);
  return value;
}

/** Text of UTF-16, in which a half of a character may stand alone. */
function fromUtf16(bytes) {
  const units = new Uint16Array(bytes.length >>> 1);
  new Uint8Array(units.buffer).set(Uint8Array.prototype.subarray.call(bytes, 0, units.length * 2));
  let text = '';
  for (let at = 0; at < units.length; at += 8192) {
    text += String.fromCharCode.apply(null, units.subarray(at, at + 8192));
  }
  return text;
}

function clamp(at, length, fallback) {
  const index = at === undefined ? fallback : Math.trunc(Number(at)) || 0;
  return Math.min(Math.max(index < 0 ? index + length : index, 0), length);
}

/** Where `wanted` stands in `buffer`; the last place with `last`. */
function find(buffer, wanted, from, encoding, last) {
  if (typeof from === 'string') [from, encoding] = [undefined, from];
  const length = buffer.length;
  let start =
    from === undefined || Number.isNaN(Number(from)) ? (last ? length : 0) : Math.trunc(Number(from));
  if (start < 0) start += length;
  let bytes;
  if (typeof wanted === 'number') bytes = [wanted & 0xff];
  else if (typeof wanted === 'string') bytes = fromText(wanted, encoding);
  else bytes = view(wanted, 'value');
  if (bytes.length === 0) return Math.min(Math.max(start, 0), length);
  if (start < 0) {
    if (last) return -1;
    start = 0;
  }
  const matches = (at) => {
    for (let i = 0; i < bytes.length; i += 1) if (buffer[at + i] !== bytes[i]) return false;
    return true;
  };
  if (last) {
    for (let at = Math.min(start, length - bytes.length); at >= 0; at -= 1) if (matches(at)) return at;
  } else {
    for (let at = start; at <= length - bytes.length; at += 1) if (matches(at)) return at;
  }
  return -1;
}

/** Writes as many bytes of a text as there is room for, and no half characters. */
function put(buffer, text, from, room, encoding) {
  const bytes = fromText(text, encoding);
  let many = Math.min(room, bytes.length);
  if (many < bytes.length && encoding === 'utf8') while (many > 0 && (bytes[many] & 0xc0) === 0x80) many -= 1;
  if (encoding === 'utf16le') many -= many % 2;
  Uint8Array.prototype.set.call(buffer, many < bytes.length ? bytes.subarray(0, many) : bytes, from);
  return many;
}

function fillWith(buffer, value, offset, end, encoding) {
  if (typeof value === 'string') {
    if (encoding !== undefined && encoding !== null && typeof encoding !== 'string')
      throw wrongType('encoding', 'of type string', encoding);
    encodingOf(encoding);
  }
  const from = offset === undefined ? 0 : whole(offset, 'offset', kMaxLength);
  const to = offset === undefined || end === undefined ? buffer.length : whole(end, 'end', buffer.length);
  if (from >= to) return buffer;
  let bytes = [0];
  if (typeof value === 'string') bytes = fromText(value, encoding);
  else if (ArrayBuffer.isView(value)) bytes = view(value);
  else bytes = [Number(value) & 0xff];
  if (bytes.length === 0) {
    if (value !== '') throw wrongValue('value', value);
    bytes = [0];
  }
  if (bytes.length === 1) return Uint8Array.prototype.fill.call(buffer, bytes[0], from, to);
  for (let at = from; at < to; at += 1) buffer[at] = bytes[(at - from) % bytes.length];
  return buffer;
}

const methods = {
  toString(encoding, start, end) {
    if (arguments.length === 0) return native.decode(this, 'utf8');
    const from = start === undefined ? 0 : Math.min(Math.max(Math.trunc(start) || 0, 0), this.length);
    const to = end === undefined ? this.length : Math.min(Math.max(Math.trunc(end) || 0, 0), this.length);
    if (to <= from) return '';
    const part = from === 0 && to === this.length ? this : this.subarray(from, to);
    if (encoding !== undefined && !encodings[`${encoding}`.toLowerCase()])
      throw coded(TypeError, 'ERR_UNKNOWN_ENCODING', `Unknown encoding: ${encoding}`);
    const known = encodingOf(encoding);
    return known === 'utf16le' ? fromUtf16(part) : native.decode(part, known);
  },

  toLocaleString(encoding, start, end) {
    return this.toString(encoding, start, end);
  },

  toJSON() {
    return { type: 'Buffer', data: Array.from(this) };
  },

  equals(other) {
    if (!(other instanceof Uint8Array))
      throw wrongType('otherBuffer', 'an instance of Buffer or Uint8Array', other);
    return this === other || statics.compare(this, other) === 0;
  },

  compare(target, targetStart, targetEnd, sourceStart, sourceEnd) {
    const other = bytesOf(target, 'target');
    const at = (value, name, fallback, most) => (value === undefined ? fallback : whole(value, name, most));
    const from = at(targetStart, 'targetStart', 0, Number.MAX_SAFE_INTEGER);
    const to = at(targetEnd, 'targetEnd', other.length, other.length);
    const ownFrom = at(sourceStart, 'sourceStart', 0, Number.MAX_SAFE_INTEGER);
    const ownTo = at(sourceEnd, 'sourceEnd', this.length, this.length);
    if (ownFrom >= ownTo) return from >= to ? 0 : -1;
    if (from >= to) return 1;
    const { subarray } = Uint8Array.prototype;
    return statics.compare(subarray.call(this, ownFrom, ownTo), subarray.call(other, from, to));
  },

  copy(target, targetStart = 0, sourceStart = 0, sourceEnd = this.length) {
    bytesOf(this, 'source');
    const into = view(target, 'target');
    const whole = (number) => (Number.isSafeInteger(Math.floor(number)) ? Math.floor(number) : 0);
    targetStart = whole(targetStart);
    sourceStart = whole(sourceStart);
    sourceEnd = whole(sourceEnd);
    if (targetStart < 0) throw outOfRange('targetStart', '>= 0', targetStart);
    if (sourceStart < 0 || sourceStart > this.length)
      throw outOfRange('sourceStart', `>= 0 && <= ${this.length}`, sourceStart);
    if (sourceEnd < 0) throw outOfRange('sourceEnd', '>= 0', sourceEnd);
    const many = Math.max(
      0,
      Math.min(sourceEnd - sourceStart, this.length - sourceStart, into.length - targetStart),
    );
    if (many > 0)
      into.set(Uint8Array.prototype.subarray.call(this, sourceStart, sourceStart + many), targetStart);
    return many;
  },

  slice(start, end) {
    return this.subarray(start, end);
  },

  subarray(start, end) {
    const from = clamp(start, this.length, 0);
    const to = Math.max(from, clamp(end, this.length, this.length));
    return new FastBuffer(this.buffer, this.byteOffset + from, to - from);
  },

  fill(value, offset, end, encoding) {
    if (typeof value === 'string') {
      if (offset === undefined || typeof offset === 'string')
        [offset, end, encoding] = [0, undefined, offset];
      else if (typeof end === 'string') [end, encoding] = [undefined, end];
    }
    return fillWith(this, value, offset, end, encoding);
  },

  write(text, offset, length, encoding) {
    if (typeof text !== 'string') throw wrongType('argument', 'of type string', text);
    // As in Node, no encoding counts without an offset.
    if (offset === undefined) return put(this, text, 0, this.length, 'utf8');
    if (length === undefined && typeof offset === 'string') [offset, encoding] = [0, offset];
    else if (typeof length === 'string') [length, encoding] = [undefined, length];
    const from = whole(offset, 'offset', this.length);
    const room = this.length - from;
    const most = length === undefined ? room : Math.min(whole(length, 'length', this.length), room);
    return put(this, text, from, most, encodingOf(encoding || 'utf8'));
  },

  indexOf(value, from, encoding) {
    return find(this, value, from, encoding, false);
  },

  lastIndexOf(value, from, encoding) {
    return find(this, value, from, encoding, true);
  },

  includes(value, from, encoding) {
    return this.indexOf(value, from, encoding) !== -1;
  },

  swap16() {
    return swap(this, 2);
  },

  swap32() {
    return swap(this, 4);
  },

  swap64() {
    return swap(this, 8);
  },

  [Symbol.for('nodejs.util.inspect.custom')](left, options) {
    const most = Math.min(shownBytes, this.length);
    const shown = Array.from({ length: most }, (_, at) => this[at].toString(16).padStart(2, '0'));
    const more = this.length - most;
    let text = shown.join(' ');
    if (more > 0) text += ` ... ${more} more byte${more > 1 ? 's' : ''}`;
    // What it has besides bytes.
    const extra = options && Object.keys(this).filter((key) => !/^(?:0|[1-9]\d*)$/.test(key));
    if (extra?.length > 0) {
      const { inspect } = loader.load('internal/inspect');
      const members = Object.defineProperties(
        Object.create(null),
        Object.fromEntries(extra.map((key) => [key, Object.getOwnPropertyDescriptor(this, key)])),
      );
      const written = inspect(members, { ...options, breakLength: Infinity, compact: true });
      text += `${text ? ', ' : ''}${written.slice('[Object: null prototype] { '.length, -2)}`;
    }
    const name = this.constructor?.name || 'Buffer';
    return `<${name} ${text}>`;
  },
};

function swap(buffer, size) {
  if (buffer.length % size !== 0) {
    throw coded(RangeError, 'ERR_INVALID_BUFFER_SIZE', `Buffer size must be a multiple of ${size * 8}-bits`);
  }
  for (let at = 0; at < buffer.length; at += size)
    Uint8Array.prototype.subarray.call(buffer, at, at + size).reverse();
  return buffer;
}

Object.assign(methods, numeric);

for (const name of Reflect.ownKeys(methods)) {
  Object.defineProperty(FastBuffer.prototype, name, {
    value: methods[name],
    configurable: true,
    writable: true,
  });
}
// Not documented by Node, and used by packages that read and write a lot of text.
for (const [name, encoding] of Object.entries({
  ascii: 'ascii',
  base64: 'base64',
  base64url: 'base64url',
  hex: 'hex',
  latin1: 'latin1',
  ucs2: 'utf16le',
  utf8: 'utf8',
})) {
  const pair = {
    [`${name}Slice`](start, end) {
      return this.toString(encoding, start, end);
    },
    [`${name}Write`](text, offset = 0, length = this.length - offset) {
      if (typeof text !== 'string') throw wrongType('argument', 'of type string', text);
      if (offset < 0 || offset > this.length) throw outOfBounds('offset');
      if (length < 0 || length > this.length - offset) throw outOfBounds('length');
      return put(this, text, offset, length, encoding);
    },
  };
  for (const method in pair) {
    Object.defineProperty(FastBuffer.prototype, method, {
      value: pair[method],
      configurable: true,
      writable: true,
    });
  }
}
Object.defineProperty(FastBuffer.prototype, 'parent', {
  get() {
    return this.buffer;
  },
});
Object.defineProperty(FastBuffer.prototype, 'offset', {
  get() {
    return this.byteOffset;
  },
});

export function SlowBuffer(size) {
  return statics.allocUnsafe(size);
}

export function atob(text) {
  let clean = `${text}`.replace(/[\t\n\f\r ]/g, '');
  if (clean.length % 4 === 0) clean = clean.replace(/={1,2}$/, '');
  if (/[^A-Za-z0-9+/]/.test(clean)) throw new DOMException('Invalid character', 'InvalidCharacterError');
  if (clean.length % 4 === 1) {
    throw new DOMException('The string to be decoded is not correctly encoded.', 'InvalidCharacterError');
  }
  return native.decode(native.encode(clean, 'base64'), 'latin1');
}

export function btoa(text) {
  const given = `${text}`;
  // eslint-disable-next-line no-control-regex
  if (/[^\u0000-\u00ff]/.test(given)) {
    throw new DOMException('Invalid character', 'InvalidCharacterError');
  }
  return native.decode(native.encode(given, 'latin1'), 'base64');
}

/** Bytes to look at, of which none may be left out. */
function input(value) {
  if (!(value instanceof ArrayBuffer || (ArrayBuffer.isView(value) && !(value instanceof DataView))))
    throw wrongType('input', 'an instance of ArrayBuffer, Buffer, or TypedArray', value);
  if ((value.buffer ?? value).detached)
    throw coded(Error, 'ERR_INVALID_STATE', 'Invalid state: Cannot validate on a detached buffer');
  return view(value);
}

export function isUtf8(bytes) {
  return Boolean(native.decodeUtf8(input(bytes), false, true));
}

export function isAscii(bytes) {
  return Uint8Array.prototype.every.call(input(bytes), (byte) => byte < 0x80);
}

export function transcode(source, from, to) {
  return statics.from(statics.from(source).toString(from), to);
}

/** The functions of `Buffer` as they are made here: packages replace those of `Buffer` for a while. */
export const Bytes = Object.freeze({ ...statics });
