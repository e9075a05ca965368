// `Blob` and `File`.

import { TextDecoder, TextEncoder } from 'internal/text';
import { enumerable, shown } from 'internal/members';

function bytesOf(part, endings) {
  if (part instanceof Blob) return part._bytes;
  if (ArrayBuffer.isView(part)) {
    return new Uint8Array(part.buffer.slice(part.byteOffset, part.byteOffset + part.byteLength));
  }
  if (part instanceof ArrayBuffer) return new Uint8Array(part.slice(0));
  const text = `${part}`;
  return new TextEncoder().encode(endings === 'native' ? text.replace(/\r\n|\r/g, '\n') : text);
}

export class Blob {
  #type;

  constructor(parts = [], options = {}) {
    if (parts === null || typeof parts !== 'object' || typeof parts[Symbol.iterator] !== 'function') {
      throw new TypeError('The "sources" argument must be an iterable object');
    }
    const pieces = [...parts].map((part) => bytesOf(part, options?.endings));
    const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
    let at = 0;
    for (const piece of pieces) {
      bytes.set(piece, at);
      at += piece.length;
    }
    Object.defineProperty(this, '_bytes', { value: bytes });
    const type = `${options?.type ?? ''}`;
    this.#type = /[^\u0020-\u007e]/.test(type) ? '' : type.toLowerCase();
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return shown(this, { size: this.size, type: this.type }, depth, options, inspect);
  }

  get size() {
    return this._bytes.length;
  }

  get type() {
    return this.#type;
  }

  slice(start = 0, end = this.size, type = '') {
    const place = (at) => Math.min(Math.max(at < 0 ? this.size + at : at, 0), this.size);
    return new Blob([this._bytes.subarray(place(start), Math.max(place(start), place(end)))], { type });
  }

  async text() {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(this._bytes);
  }

  async arrayBuffer() {
    return this._bytes.slice().buffer;
  }

  async bytes() {
    return this._bytes.slice();
  }

  stream() {
    const bytes = this._bytes;
    let at = 0;
    return new ReadableStream({
      pull(controller) {
        if (at < bytes.length) {
          controller.enqueue(bytes.slice(at, at + 65536));
          at += 65536;
        }
        if (at >= bytes.length) controller.close();
      },
    });
  }

  get [Symbol.toStringTag]() {
    return 'Blob';
  }
}

export class File extends Blob {
  #name;
  #lastModified;

  constructor(parts, name, options = {}) {
    if (arguments.length < 2) throw new TypeError('The "fileName" argument must be given');
    super(parts, options);
    this.#name = `${name}`;
    this.#lastModified = options?.lastModified === undefined ? Date.now() : Number(options.lastModified);
  }

  get name() {
    return this.#name;
  }

  get lastModified() {
    return this.#lastModified;
  }

  get webkitRelativePath() {
    return '';
  }

  get [Symbol.toStringTag]() {
    return 'File';
  }
}

enumerable([Blob, File], ['webkitRelativePath']);
