// `TextEncoder` and `TextDecoder`, whole and as streams.

import native from 'native/encoding';
import { enumerable, shown } from 'internal/members';

const labels = {
  'utf-8': ['utf-8', 'utf8', 'unicode-1-1-utf-8', 'unicode11utf8', 'unicode20utf8', 'x-unicode20utf8'],
  'utf-16le': ['utf-16le', 'utf-16', 'ucs-2', 'unicode', 'unicodefeff', 'iso-10646-ucs-2', 'csunicode'],
  'utf-16be': ['utf-16be', 'unicodefffe'],
  'windows-1252': [
    'windows-1252',
    'latin1',
    'iso-8859-1',
    'iso8859-1',
    'iso_8859-1',
    'iso88591',
    'ascii',
    'us-ascii',
    'l1',
    'cp1252',
    'x-cp1252',
    'ansi_x3.4-1968',
    'cp819',
    'csisolatin1',
    'ibm819',
    'iso-ir-100',
    'iso_8859-1:1987',
  ],
};

// Where windows-1252 is not Latin-1.
const windows1252 =
  '\u20ac\u0081\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\u008d\u017d\u008f' +
  '\u0090\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\u009d\u017e\u0178';

/** Pairs of bytes the other way round. */
function swapped(bytes) {
  const turned = bytes.slice();
  for (let at = 0; at + 1 < turned.length; at += 2) [turned[at], turned[at + 1]] = [bytes[at + 1], bytes[at]];
  return turned;
}

export class TextEncoder {
  get encoding() {
    return 'utf-8';
  }

  encode(text = '') {
    return native.encode(`${text}`, 'utf8');
  }

  encodeInto(text, into) {
    let read = 0;
    let written = 0;
    for (const character of `${text}`) {
      const bytes = native.encode(character, 'utf8');
      if (written + bytes.length > into.length) break;
      into.set(bytes, written);
      written += bytes.length;
      read += character.length;
    }
    return { read, written };
  }

  get [Symbol.toStringTag]() {
    return 'TextEncoder';
  }
}

export class TextDecoder {
  #encoding;
  #fatal;
  #ignoreBom;
  #kept = new Uint8Array(0);
  /** Makes decoders of an encoding that is decoded natively, and the one in use. */
  #make;
  #native;
  #begun = false;

  constructor(label = 'utf-8', options = {}) {
    const wanted = `${label}`.trim().toLowerCase();
    this.#encoding = Object.keys(labels).find((name) => labels[name].includes(wanted));
    if (!this.#encoding) [this.#encoding, this.#make] = native.decoder(wanted) ?? [];
    if (!this.#encoding) {
      const error = new RangeError(`The "${label}" encoding is not supported`);
      error.code = 'ERR_ENCODING_NOT_SUPPORTED';
      throw error;
    }
    this.#fatal = !!options?.fatal;
    this.#ignoreBom = !!options?.ignoreBOM;
  }

  get encoding() {
    return this.#encoding;
  }
  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return shown(
      this,
      { encoding: this.encoding, fatal: this.fatal, ignoreBOM: this.ignoreBOM },
      depth,
      options,
      inspect,
    );
  }

  get fatal() {
    return this.#fatal;
  }
  get ignoreBOM() {
    return this.#ignoreBom;
  }

  decode(input, options = {}) {
    const more = !!options?.stream;
    let bytes = input === undefined ? new Uint8Array(0) : view(input);
    if (this.#make) {
      this.#native ??= this.#make(this.#fatal);
      const text = this.#native(bytes, more);
      if (!more || text === undefined) this.#native = undefined;
      return text ?? invalid(this.#encoding);
    }
    if (this.#kept.length > 0) {
      const joined = new Uint8Array(this.#kept.length + bytes.length);
      joined.set(this.#kept);
      joined.set(bytes, this.#kept.length);
      bytes = joined;
    }
    let text;
    let kept = 0;
    if (this.#encoding === 'utf-8') {
      [text, kept] = native.decodeUtf8(bytes, more, this.#fatal) ?? invalid(this.#encoding);
    } else if (this.#encoding.startsWith('utf-16')) {
      kept = more ? bytes.length % 2 : 0;
      let whole = bytes.subarray(0, bytes.length - kept);
      if (this.#encoding === 'utf-16be') whole = swapped(whole);
      text = native.decode(whole, 'utf16le');
      // Half a character at the end.
      if (whole.length % 2 === 1) text += '\ufffd';
      if (this.#fatal && (whole.length % 2 === 1 || !isWellFormed(whole))) invalid(this.#encoding);
    } else {
      text = native
        .decode(bytes, 'latin1')
        .replace(/[\u0080-\u009f]/g, (c) => windows1252[c.charCodeAt(0) - 0x80]);
    }
    this.#kept = bytes.slice(bytes.length - kept);
    if (!this.#begun && !this.#ignoreBom && this.#encoding !== 'windows-1252' && text.startsWith('\ufeff')) {
      text = text.slice(1);
    }
    this.#begun = more && (this.#begun || text.length > 0);
    return text;
  }

  get [Symbol.toStringTag]() {
    return 'TextDecoder';
  }
}
enumerable([TextEncoder, TextDecoder]);

/** Whether no half of a surrogate pair stands alone. */
function isWellFormed(bytes) {
  for (let at = 1, high = false; at <= bytes.length; at += 2) {
    const kind = bytes[at] & 0xfc;
    if (high !== (kind === 0xdc)) return false;
    high = kind === 0xd8;
    if (high && at + 2 > bytes.length) return false;
  }
  return true;
}

function invalid(encoding) {
  const error = new TypeError(`The encoded data was not valid for encoding ${encoding}`);
  error.code = 'ERR_ENCODING_INVALID_ENCODED_DATA';
  throw error;
}

function view(input) {
  if (input instanceof Uint8Array) return input;
  if (ArrayBuffer.isView(input)) return new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
  if (input instanceof ArrayBuffer || input instanceof SharedArrayBuffer) return new Uint8Array(input);
  const error = new TypeError('The "input" argument must be an instance of ArrayBuffer or ArrayBufferView');
  error.code = 'ERR_INVALID_ARG_TYPE';
  throw error;
}
