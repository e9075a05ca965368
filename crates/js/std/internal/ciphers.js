// Ciphers: AES, in the modes there are.

import native from 'native/crypto';
import { Bytes } from 'internal/buffer';
import { Transform } from 'node:stream';
import { bytesOf, encoded } from 'internal/crypto-bytes';
import { checkString, coded, missing } from 'internal/errors';
import { secretOf } from 'internal/keys';

const NAMES = [
  'aes-128-cbc',
  'aes-128-ctr',
  'aes-128-gcm',
  'aes-192-cbc',
  'aes-192-ctr',
  'aes-256-cbc',
  'aes-256-ctr',
  'aes-256-gcm',
];

export const getCiphers = () => [...NAMES];

const REASONS = {
  'bad decrypt': ['ERR_OSSL_BAD_DECRYPT', 'error:1C800064:Provider routines::bad decrypt'],
  'wrong final block length': [
    'ERR_OSSL_WRONG_FINAL_BLOCK_LENGTH',
    'error:1C80006B:Provider routines::wrong final block length',
  ],
};

const invalidState = (operation) =>
  coded(Error, 'ERR_CRYPTO_INVALID_STATE', `Invalid state for operation ${operation}`);

class Cipher extends Transform {
  _transform(chunk, encoding, callback) {
    try {
      callback(null, this.update(chunk, encoding));
    } catch (error) {
      callback(error);
    }
  }
  _flush(callback) {
    try {
      callback(null, this.final());
    } catch (error) {
      callback(error);
    }
  }
}

/** CBC and CTR. */
class PlainCipher extends Cipher {
  #native;
  #over = false;

  constructor(name, key, iv, seals) {
    super();
    this.#native = native.cipher(name, key, iv, seals);
  }

  setAutoPadding(pads = true) {
    if (this.#over) throw invalidState('setAutoPadding');
    this.#native.pad(Boolean(pads));
    return this;
  }
  setAAD() {
    throw invalidState('setAAD');
  }
  setAuthTag() {
    throw invalidState('setAuthTag');
  }
  getAuthTag() {
    throw invalidState('getAuthTag');
  }

  update(data, from, to) {
    if (this.#over) throw invalidState('update');
    return encoded(this.#native.update(bytesOf(data, from)), to);
  }

  final(to) {
    if (this.#over) throw invalidState('final');
    this.#over = true;
    try {
      return encoded(this.#native.final(), to);
    } catch (error) {
      const [code, message] = REASONS[error.message] ?? [];
      throw code ? coded(Error, code, message, { reason: error.message }) : error;
    }
  }
}

/** GCM. Everything is known to be right only once all of it is there, so it is given out at the end. */
class AuthenticatedCipher extends Cipher {
  #parts = [];
  #beside = Bytes.alloc(0);
  #tag = null;
  #key;
  #iv;
  #seals;

  constructor(key, iv, seals) {
    super();
    this.#key = key;
    this.#iv = iv;
    this.#seals = seals;
  }

  setAAD(bytes) {
    this.#beside = bytesOf(bytes);
    return this;
  }
  setAuthTag(tag, encoding) {
    this.#tag = Bytes.from(bytesOf(tag, encoding));
    return this;
  }
  getAuthTag() {
    if (!this.#tag) throw invalidState('getAuthTag');
    return this.#tag;
  }
  setAutoPadding() {
    return this;
  }

  update(data, from, to) {
    this.#parts.push(Bytes.from(bytesOf(data, from)));
    return to && to !== 'buffer' ? '' : Bytes.alloc(0);
  }

  final(encoding) {
    const all = Bytes.concat(this.#parts);
    if (!this.#seals) {
      if (!this.#tag) throw new Error('Unsupported state or unable to authenticate data');
      return encoded(
        native.open(this.#key, this.#iv, Bytes.concat([all, this.#tag]), this.#beside),
        encoding,
      );
    }
    const sealed = encoded(native.seal(this.#key, this.#iv, all, this.#beside));
    this.#tag = sealed.subarray(sealed.length - 16);
    return encoded(sealed.subarray(0, sealed.length - 16), encoding);
  }
}

function make(algorithm, givenKey, givenIv, seals) {
  checkString(algorithm, 'cipher');
  const name = algorithm
    .toLowerCase()
    .replace(/^id-/, '')
    .replace(/^aes-?(\d+)-/, 'aes-$1-');
  if (!NAMES.includes(name)) throw missing(`The cipher ${algorithm}`);
  const key = secretOf(givenKey);
  const iv = bytesOf(givenIv, undefined, 'iv');
  const bits = Number(name.slice(4, 7));
  if (key.byteLength * 8 !== bits) throw coded(RangeError, 'ERR_CRYPTO_INVALID_KEYLEN', 'Invalid key length');
  if (name.endsWith('gcm')) return new AuthenticatedCipher(key, iv, seals);
  if (iv.byteLength !== 16) throw coded(TypeError, 'ERR_CRYPTO_INVALID_IV', 'Invalid initialization vector');
  return new PlainCipher(name, key, iv, seals);
}

export const createCipheriv = (algorithm, key, iv) => make(algorithm, key, iv, true);
export const createDecipheriv = (algorithm, key, iv) => make(algorithm, key, iv, false);
