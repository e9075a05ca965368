// Values as bytes, in V8's format (version 15), so that Node reads what a plugin writes and the other way round.

import { Buffer, Bytes } from 'internal/buffer';
import { coded } from 'internal/errors';

const VIEWS = [
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
  DataView,
  Buffer,
  BigInt64Array,
  BigUint64Array,
];
const ERRORS = { E: EvalError, R: RangeError, F: ReferenceError, S: SyntaxError, T: TypeError, U: URIError };
const FLAGS = ['g', 'i', 'm', 'y', 'u', 's', '-', 'd', 'v'];
const VERSION = 15;
/** The number of a view of no class, for what only a subclass writes. */
const OTHER = 100;

function refusal(value) {
  const plain = typeof value === 'function' || typeof value === 'symbol';
  return `${plain ? String(value) : `#<${value.constructor?.name ?? 'Object'}>`} could not be cloned.`;
}

export class Serializer {
  #bytes = Bytes.alloc(256);
  #length = 0;
  #seen = new Map();

  _getDataCloneError(message) {
    return new Error(message);
  }

  #room(many) {
    if (this.#length + many <= this.#bytes.length) return;
    const larger = Bytes.alloc(Math.max(this.#bytes.length * 2, this.#length + many));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }

  #byte(value) {
    this.#room(1);
    this.#bytes[this.#length] = value;
    this.#length += 1;
  }

  #tag(letter) {
    this.#byte(letter.charCodeAt(0));
  }

  writeHeader() {
    this.#byte(0xff);
    this.#byte(VERSION);
  }

  writeUint32(value) {
    let rest = value >>> 0;
    for (; rest > 127; rest >>>= 7) this.#byte((rest & 127) | 128);
    this.#byte(rest);
  }

  writeUint64(high, low) {
    let rest = (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
    for (; rest > 127n; rest >>= 7n) this.#byte(Number(rest & 127n) | 128);
    this.#byte(Number(rest));
  }

  writeDouble(value) {
    this.#room(8);
    this.#length = this.#bytes.writeDoubleLE(value, this.#length);
  }

  writeRawBytes(source) {
    const bytes = ArrayBuffer.isView(source)
      ? new Uint8Array(source.buffer, source.byteOffset, source.byteLength)
      : new Uint8Array(source);
    this.#room(bytes.length);
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  transferArrayBuffer() {}

  releaseBuffer() {
    const written = Bytes.from(this.#bytes.subarray(0, this.#length));
    this.#length = 0;
    return written;
  }

  #text(text) {
    const plain = !/[^\0-\xFF]/.test(text);
    if (!plain) {
      // Two-byte text begins at an even offset.
      let digits = 1;
      for (let rest = text.length * 2; rest > 127; rest >>>= 7) digits += 1;
      if ((this.#length + 1 + digits) % 2 === 1) this.#byte(0);
    }
    this.#tag(plain ? '"' : 'c');
    const bytes = Bytes.from(text, plain ? 'latin1' : 'utf16le');
    this.writeUint32(bytes.length);
    this.writeRawBytes(bytes);
  }

  #bigint(value) {
    const negative = value < 0n;
    let rest = negative ? -value : value;
    const words = [];
    for (; rest > 0n; rest >>= 64n) words.push(rest & 0xffff_ffff_ffff_ffffn);
    this.writeUint32(((words.length * 8) << 1) | (negative ? 1 : 0));
    for (const word of words) {
      this.#room(8);
      this.#length = this.#bytes.writeBigUInt64LE(word, this.#length);
    }
  }

  #members(value, keys) {
    for (const key of keys) {
      this.writeValue(/^(0|[1-9]\d{0,9})$/.test(key) && Number(key) < 2 ** 31 ? Number(key) : key);
      this.writeValue(value[key]);
    }
  }

  #array(value) {
    const keys = Object.keys(value);
    const dense = keys.length >= value.length && value.length >= 0 && !hasHoles(value);
    if (dense) {
      this.#tag('A');
      this.writeUint32(value.length);
      for (let at = 0; at < value.length; at += 1) this.writeValue(value[at]);
      const rest = keys.slice(value.length);
      this.#members(value, rest);
      this.#tag('$');
      this.writeUint32(rest.length);
    } else {
      this.#tag('a');
      this.writeUint32(value.length);
      this.#members(value, keys);
      this.#tag('@');
      this.writeUint32(keys.length);
    }
    this.writeUint32(value.length);
  }

  #error(value) {
    this.#tag('r');
    const prototype = Object.keys(ERRORS).find((letter) => ERRORS[letter].name === value.name);
    if (prototype) this.#tag(prototype);
    if (Object.hasOwn(value, 'message')) {
      this.#tag('m');
      this.#text(`${value.message}`);
    }
    if (Object.hasOwn(value, 'cause')) {
      this.#tag('c');
      this.writeValue(value.cause);
    }
    if (typeof value.stack === 'string') {
      this.#tag('s');
      this.#text(value.stack);
    }
    this.#tag('.');
  }

  /** The number under which a subclass passes an object on; most are written. */
  _otherNumber() {
    return undefined;
  }

  _writeHostObject(view) {
    const at = Bytes.isBuffer(view) ? 10 : VIEWS.findIndex((View) => view.constructor === View);
    if (at < 0) throw this._getDataCloneError(refusal(view));
    this.writeUint32(at);
    this.writeUint32(view.byteLength);
    this.writeRawBytes(view);
  }

  writeValue(value) {
    switch (typeof value) {
      case 'undefined':
        this.#tag('_');
        return true;
      case 'boolean':
        this.#tag(value ? 'T' : 'F');
        return true;
      case 'number':
        if (Number.isInteger(value) && Math.abs(value) < 2 ** 30 && !Object.is(value, -0)) {
          this.#tag('I');
          this.writeUint32((value << 1) ^ (value >> 31));
        } else {
          this.#tag('N');
          this.writeDouble(value);
        }
        return true;
      case 'bigint':
        this.#tag('Z');
        this.#bigint(value);
        return true;
      case 'string':
        this.#text(value);
        return true;
      case 'object':
        break;
      default:
        throw this._getDataCloneError(refusal(value));
    }
    if (value === null) {
      this.#tag('0');
      return true;
    }
    if (this.#seen.has(value)) {
      this.#tag('^');
      this.writeUint32(this.#seen.get(value));
      return true;
    }
    this.#seen.set(value, this.#seen.size);
    this.#object(value);
    return true;
  }

  #object(value) {
    const other = this._otherNumber(value);
    if (other !== undefined) {
      this.#tag('\\');
      this.writeUint32(OTHER);
      this.writeUint32(other);
    } else if (ArrayBuffer.isView(value)) {
      this.#tag('\\');
      this._writeHostObject(value);
    } else if (value instanceof Date) {
      this.#tag('D');
      this.writeDouble(value.getTime());
    } else if (value instanceof Boolean) {
      this.#tag(value.valueOf() ? 'y' : 'x');
    } else if (value instanceof Number) {
      this.#tag('n');
      this.writeDouble(value.valueOf());
    } else if (value instanceof BigInt) {
      this.#tag('z');
      this.#bigint(value.valueOf());
    } else if (value instanceof String) {
      this.#tag('s');
      this.#text(value.valueOf());
    } else if (value instanceof RegExp) {
      this.#tag('R');
      this.#text(value.source);
      this.writeUint32([...value.flags].reduce((bits, flag) => bits | (1 << FLAGS.indexOf(flag)), 0));
    } else if (value instanceof Map) {
      this.#tag(';');
      for (const [key, entry] of [...value]) {
        this.writeValue(key);
        this.writeValue(entry);
      }
      this.#tag(':');
      this.writeUint32(value.size * 2);
    } else if (value instanceof Set) {
      this.#tag("'");
      for (const entry of [...value]) this.writeValue(entry);
      this.#tag(',');
      this.writeUint32(value.size);
    } else if (value instanceof ArrayBuffer) {
      this.#tag('B');
      this.writeUint32(value.byteLength);
      this.writeRawBytes(value);
    } else if (Array.isArray(value)) {
      this.#array(value);
    } else if (Error.isError(value)) {
      this.#error(value);
    } else if (
      value instanceof SharedArrayBuffer ||
      value instanceof Promise ||
      value instanceof WeakMap ||
      value instanceof WeakSet ||
      value instanceof WeakRef
    ) {
      throw this._getDataCloneError(refusal(value));
    } else {
      const keys = Object.keys(value);
      this.#tag('o');
      this.#members(value, keys);
      this.#tag('{');
      this.writeUint32(keys.length);
    }
  }
}

function hasHoles(value) {
  for (let at = 0; at < value.length; at += 1) if (!Object.hasOwn(value, at)) return true;
  return false;
}

const broken = () => coded(Error, 'ERR_BUFFER_OUT_OF_BOUNDS', 'Unable to deserialize cloned data.');

export class Deserializer {
  #bytes;
  #at = 0;
  #seen = [];

  constructor(bytes) {
    if (!ArrayBuffer.isView(bytes)) {
      throw coded(TypeError, 'ERR_INVALID_ARG_TYPE', 'buffer must be a TypedArray or a DataView');
    }
    this.#bytes = Bytes.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  #byte() {
    if (this.#at >= this.#bytes.length) throw broken();
    const byte = this.#bytes[this.#at];
    this.#at += 1;
    return byte;
  }

  #tag() {
    let byte = this.#byte();
    while (byte === 0) byte = this.#byte();
    return String.fromCharCode(byte);
  }

  #peek() {
    while (this.#bytes[this.#at] === 0) this.#at += 1;
    return String.fromCharCode(this.#bytes[this.#at]);
  }

  readHeader() {
    if (this.#byte() !== 0xff) throw broken();
    const version = this.#byte();
    if (version < 13 || version > VERSION) throw broken();
    return true;
  }

  getWireFormatVersion() {
    return VERSION;
  }

  readUint32() {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.#byte();
      value |= (byte & 127) << shift;
      if (byte < 128) return value >>> 0;
    }
  }

  readUint64() {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.#byte();
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return [Number(value >> 32n), Number(value & 0xffff_ffffn)];
    }
  }

  readDouble() {
    const value = Bytes.from(this.readRawBytes(8)).readDoubleLE(0);
    return value;
  }

  readRawBytes(many) {
    if (this.#at + many > this.#bytes.length) throw broken();
    const bytes = this.#bytes.subarray(this.#at, this.#at + many);
    this.#at += many;
    return bytes;
  }

  transferArrayBuffer() {}

  #keep(value) {
    this.#seen.push(value);
    return value;
  }

  #bigint() {
    const bits = this.readUint32();
    const bytes = this.readRawBytes(bits >> 1);
    let value = 0n;
    for (let at = bytes.length - 1; at >= 0; at -= 1) value = (value << 8n) | BigInt(bytes[at]);
    return bits & 1 ? -value : value;
  }

  #members(into, end) {
    while (this.#peek() !== end) {
      const key = this.readValue();
      Object.defineProperty(into, key, {
        value: this.readValue(),
        configurable: true,
        enumerable: true,
        writable: true,
      });
    }
    this.#tag();
    this.readUint32();
  }

  #error() {
    const place = this.#seen.push(undefined) - 1;
    let Class = Error;
    let message;
    let stack;
    let cause;
    for (let tag = this.#tag(); tag !== '.'; tag = this.#tag()) {
      if (tag === 'm') message = this.readValue();
      else if (tag === 's') stack = this.readValue();
      else if (tag === 'c') cause = { cause: this.readValue() };
      else Class = ERRORS[tag] ?? Error;
    }
    const error = new Class(message, cause);
    if (stack !== undefined)
      Object.defineProperty(error, 'stack', { value: stack, configurable: true, writable: true });
    this.#seen[place] = error;
    return error;
  }

  /** What a subclass was passed under a number. */
  _readOther() {
    throw broken();
  }

  _readHostObject() {
    const number = this.readUint32();
    if (number === OTHER) return this._readOther(this.readUint32());
    const View = VIEWS[number];
    const length = this.readUint32();
    const bytes = this.readRawBytes(length);
    if (View === Buffer) return Bytes.from(bytes);
    if (!View) throw broken();
    return new View(new Uint8Array(bytes).buffer, 0, length / (View.BYTES_PER_ELEMENT ?? 1));
  }

  readValue() {
    const tag = this.#tag();
    switch (tag) {
      case '_':
        return undefined;
      case '0':
        return null;
      case 'T':
        return true;
      case 'F':
        return false;
      case 'I': {
        const value = this.readUint32();
        return (value >>> 1) ^ -(value & 1);
      }
      case 'U':
        return this.readUint32();
      case 'N':
        return this.readDouble();
      case 'Z':
        return this.#bigint();
      case '"':
        return this.readRawBytes(this.readUint32()).toString('latin1');
      case 'c':
        return this.readRawBytes(this.readUint32()).toString('utf16le');
      case 'S':
        return this.readRawBytes(this.readUint32()).toString('utf8');
      case '^': {
        const at = this.readUint32();
        if (at >= this.#seen.length) throw broken();
        return this.#seen[at];
      }
      case 'D':
        return this.#keep(new Date(this.readDouble()));
      case 'y':
        return this.#keep(Object(true));
      case 'x':
        return this.#keep(Object(false));
      case 'n':
        return this.#keep(Object(this.readDouble()));
      case 'z':
        return this.#keep(Object(this.#bigint()));
      case 's':
        return this.#keep(Object(this.readValue()));
      case 'R': {
        const source = this.readValue();
        const bits = this.readUint32();
        return this.#keep(new RegExp(source, FLAGS.filter((_, at) => bits & (1 << at)).join('')));
      }
      default:
        return this.#object(tag);
    }
  }

  #object(tag) {
    switch (tag) {
      case 'o': {
        const object = this.#keep({});
        this.#members(object, '{');
        return object;
      }
      case 'A': {
        const length = this.readUint32();
        const array = this.#keep([]);
        for (let at = 0; at < length; at += 1) array.push(this.readValue());
        this.#members(array, '$');
        this.readUint32();
        return array;
      }
      case 'a': {
        const array = this.#keep([]);
        array.length = this.readUint32();
        this.#members(array, '@');
        this.readUint32();
        return array;
      }
      case ';': {
        const map = this.#keep(new Map());
        while (this.#peek() !== ':') {
          const key = this.readValue();
          map.set(key, this.readValue());
        }
        this.#tag();
        this.readUint32();
        return map;
      }
      case "'": {
        const set = this.#keep(new Set());
        while (this.#peek() !== ',') set.add(this.readValue());
        this.#tag();
        this.readUint32();
        return set;
      }
      case 'B': {
        const bytes = this.readRawBytes(this.readUint32());
        return this.#keep(new Uint8Array(bytes).buffer);
      }
      case 'r':
        return this.#error();
      case '\\': {
        const place = this.#seen.push(undefined) - 1;
        const value = this._readHostObject();
        this.#seen[place] = value;
        return value;
      }
      default:
        throw broken();
    }
  }
}

export function serialize(value) {
  const serializer = new Serializer();
  serializer.writeHeader();
  serializer.writeValue(value);
  return serializer.releaseBuffer();
}

export function deserialize(bytes) {
  const deserializer = new Deserializer(bytes);
  deserializer.readHeader();
  return deserializer.readValue();
}
