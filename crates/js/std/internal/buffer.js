// `Buffer` and what stands beside it in `node:buffer`.

import { coded, outOfRange, wrongType, wrongValue } from 'internal/errors';
import native from 'native/encoding';

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
export const INSPECT_MAX_BYTES = 50;

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
function view(value, name = 'buffer') {
  if (value instanceof Uint8Array) return value;
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return new Uint8Array(value);
  throw wrongType(name, 'an instance of Buffer or Uint8Array', value);
}

// Functions that packages call with `new`, as they may.
const statics = {
  poolSize: 8192,

  from: function from(value, encodingOrOffset, length) {
    if (typeof value === 'string') return fromText(value, encodingOrOffset);
    if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) {
      return new FastBuffer(value, encodingOrOffset, length);
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
    if (typeof value !== 'string') return view(value, 'string').byteLength;
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
    const total = length ?? list.reduce((sum, part) => sum + part.length, 0);
    const all = statics.alloc(total);
    let at = 0;
    for (const part of list) {
      if (at >= total) break;
      const bytes = view(part, 'list[0]');
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
  let bytes = [Number(value) & 0xff];
  if (typeof value === 'string') bytes = fromText(value, encoding);
  else if (value !== null && typeof value === 'object') bytes = view(value, 'value');
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

  compare(target, targetStart = 0, targetEnd = target.length, sourceStart = 0, sourceEnd = this.length) {
    return statics.compare(
      this.subarray(sourceStart, sourceEnd),
      view(target, 'target').subarray(targetStart, targetEnd),
    );
  },

  copy(target, targetStart = 0, sourceStart = 0, sourceEnd = this.length) {
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

  [Symbol.for('nodejs.util.inspect.custom')]() {
    const shown = Array.from(this.subarray(0, INSPECT_MAX_BYTES), (byte) =>
      byte.toString(16).padStart(2, '0'),
    );
    const more = this.length > INSPECT_MAX_BYTES ? ` ... ${this.length - INSPECT_MAX_BYTES} more bytes` : '';
    return `<Buffer${shown.length > 0 ? ' ' : ''}${shown.join(' ')}${more}>`;
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

// Numbers: `readUInt16LE`, `writeDoubleBE` and their like.
const numbers = [
  ['Int8', 1, -(2 ** 7), 2 ** 7 - 1],
  ['Uint8', 1, 0, 2 ** 8 - 1],
  ['Int16', 2, -(2 ** 15), 2 ** 15 - 1],
  ['Uint16', 2, 0, 2 ** 16 - 1],
  ['Int32', 4, -(2 ** 31), 2 ** 31 - 1],
  ['Uint32', 4, 0, 2 ** 32 - 1],
  ['Float32', 4],
  ['Float64', 8],
  ['BigInt64', 8, -(2n ** 63n), 2n ** 63n - 1n],
  ['BigUint64', 8, 0n, 2n ** 64n - 1n],
];
const spelt = {
  Float32: ['Float'],
  Float64: ['Double'],
  Uint8: ['UInt8', 'Uint8'],
  Uint16: ['UInt16', 'Uint16'],
  Uint32: ['UInt32', 'Uint32'],
  BigUint64: ['BigUInt64', 'BigUint64'],
};

function place(buffer, offset, size) {
  if (typeof offset !== 'number') throw wrongType('offset', 'of type number', offset);
  if (Math.floor(offset) !== offset) throw outOfRange('offset', 'an integer', offset);
  if (offset < 0 || offset + size > buffer.length) {
    if (buffer.length < size) {
      throw coded(RangeError, 'ERR_BUFFER_OUT_OF_BOUNDS', 'Attempt to access memory outside buffer bounds');
    }
    throw outOfRange('offset', `>= 0 and <= ${buffer.length - size}`, offset);
  }
  return new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength);
}

for (const [type, size, least, most] of numbers) {
  for (const name of spelt[type] ?? [type]) {
    for (const [ending, little] of size === 1
      ? [['', true]]
      : [
          ['LE', true],
          ['BE', false],
        ]) {
      methods[`read${name}${ending}`] = function read(offset = 0) {
        return place(this, offset, size)[`get${type}`](offset, little);
      };
      methods[`write${name}${ending}`] = function write(value, offset = 0) {
        if (size < 8 || least === undefined) value = +value;
        if (size === 1 && typeof offset !== 'number') throw wrongType('offset', 'of type number', offset);
        if (least !== undefined) checkValue(value, least, most, size);
        place(this, offset, size)[`set${type}`](offset, value, little);
        return offset + size;
      };
    }
  }
}

/** Whether a number fits into so many bytes. */
function checkValue(value, least, most, size) {
  if (!(value < least || value > most)) return;
  const n = typeof least === 'bigint' ? 'n' : '';
  const power = (bits) => `2${n} ** ${bits}${n}`;
  let range = `>= ${least} and <= ${most}`;
  if (size > 4) {
    range = least
      ? `>= -(${power(size * 8 - 1)}) and < ${power(size * 8 - 1)}`
      : `>= 0${n} and < ${power(size * 8)}`;
  }
  throw outOfRange('value', range, value);
}

/** Whether a number has as many bytes as there may be. */
function checkWidth(size) {
  if (typeof size !== 'number') throw wrongType('byteLength', 'of type number', size);
  if (!Number.isInteger(size)) throw outOfRange('byteLength', 'an integer', size);
  if (size < 1 || size > 6) throw outOfRange('byteLength', '>= 1 and <= 6', size);
}

for (const [ending, order] of [
  ['LE', 1],
  ['BE', -1],
]) {
  for (const [signed, names] of [
    [false, ['UInt', 'Uint']],
    [true, ['Int']],
  ]) {
    for (const name of names) {
      methods[`read${name}${ending}`] = function read(offset, size) {
        checkWidth(size);
        place(this, offset, size);
        let value = 0;
        for (let i = 0; i < size; i += 1) value = value * 256 + this[offset + (order > 0 ? size - 1 - i : i)];
        return signed && value >= 2 ** (size * 8 - 1) ? value - 2 ** (size * 8) : value;
      };
      methods[`write${name}${ending}`] = function write(value, offset, size) {
        checkWidth(size);
        value = +value;
        const half = 2 ** (size * 8 - 1);
        const [least, most] = signed ? [-half, half - 1] : [0, half * 2 - 1];
        checkValue(value, least, most, size);
        place(this, offset, size);
        let rest = value < 0 ? value + 2 ** (size * 8) : value;
        for (let i = 0; i < size; i += 1) {
          this[offset + (order > 0 ? i : size - 1 - i)] = rest % 256;
          rest = Math.floor(rest / 256);
        }
        return offset + size;
      };
    }
  }
}

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
    [`${name}Write`](text, offset, length) {
      return this.write(text, offset, length, encoding);
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

export function isUtf8(bytes) {
  try {
    native.decodeUtf8(view(bytes, 'input'), false, true);
    return true;
  } catch {
    return false;
  }
}

export function isAscii(bytes) {
  return view(bytes, 'input').every((byte) => byte < 0x80);
}

export function transcode(source, from, to) {
  return statics.from(statics.from(source).toString(from), to);
}

/** The functions of `Buffer` as they are made here: packages replace those of `Buffer` for a while. */
export const Bytes = Object.freeze({ ...statics });
