import { Buffer, Bytes } from 'internal/buffer';
import native from 'native/encoding';

const KEPT = Symbol('kept');

/**
 * Text from bytes that come in pieces: a character cut in two is kept until its rest is there. A function, because packages
 * call it on objects of their own.
 */
export function StringDecoder(encoding) {
  encoding ??= 'utf8';
  if (!Bytes.isEncoding(encoding)) {
    throw Object.assign(new TypeError(`Unknown encoding: ${encoding}`), { code: 'ERR_UNKNOWN_ENCODING' });
  }
  this.encoding = Buffer._encoding(encoding);
  Object.defineProperty(this, KEPT, { value: Bytes.alloc(0), writable: true });
}

StringDecoder.prototype.write = function write(chunk) {
  if (typeof chunk === 'string') return chunk;
  const bytes = this[KEPT].length > 0 ? Bytes.concat([this[KEPT], chunk]) : Bytes.from(chunk);
  let kept = 0;
  let text;
  if (this.encoding === 'utf8') {
    [text, kept] = native.decodeUtf8(bytes, true, false);
  } else {
    if (this.encoding === 'utf16le') {
      kept = bytes.length % 2;
      const last = bytes.length - kept >= 2 ? bytes.readUInt16LE(bytes.length - kept - 2) : 0;
      if (last >= 0xd800 && last <= 0xdbff) kept += 2;
    } else if (this.encoding.startsWith('base64')) {
      kept = bytes.length % 3;
    }
    text = bytes.subarray(0, bytes.length - kept).toString(this.encoding);
  }
  this[KEPT] = bytes.subarray(bytes.length - kept);
  return text;
};

StringDecoder.prototype.end = function end(chunk) {
  const text = chunk === undefined ? '' : this.write(chunk);
  const rest = this[KEPT].toString(this.encoding);
  this[KEPT] = Bytes.alloc(0);
  return text + rest;
};

export default { StringDecoder };
