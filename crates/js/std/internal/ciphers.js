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
  'aes-192-gcm',
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

export class Cipher extends Transform {
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

/** GCM. What is opened is given out before it is known to be right, which `final` checks, as in Node. */
class AuthenticatedCipher extends Cipher {
  #native;
  #beside = [];
  #begun = false;
  #over = false;
  #tag = null;
  #length;
  #seals;

  constructor(key, iv, seals, { authTagLength = 16 } = {}) {
    super();
    if (![4, 8, 12, 13, 14, 15, 16].includes(authTagLength)) {
      throw coded(
        TypeError,
        'ERR_CRYPTO_INVALID_AUTH_TAG',
        `Invalid authentication tag length: ${authTagLength}`,
      );
    }
    this.#native = native.gcm(key, iv, seals);
    this.#length = authTagLength;
    this.#seals = seals;
  }

  setAAD(bytes, options) {
    if (this.#over || this.#begun) throw invalidState('setAAD');
    this.#beside.push(Bytes.from(bytesOf(bytes, options?.encoding)));
    return this;
  }
  setAuthTag(tag, encoding) {
    if (this.#seals || this.#over) throw invalidState('setAuthTag');
    const given = Bytes.from(bytesOf(tag, encoding));
    if (![4, 8, 12, 13, 14, 15, 16].includes(given.length)) {
      throw coded(
        TypeError,
        'ERR_CRYPTO_INVALID_AUTH_TAG',
        `Invalid authentication tag length: ${given.length}`,
      );
    }
    this.#tag = given;
    return this;
  }
  getAuthTag() {
    if (!this.#seals || !this.#over) throw invalidState('getAuthTag');
    return this.#tag;
  }
  setAutoPadding() {
    return this;
  }

  #begin() {
    if (!this.#begun) this.#native.beside(Bytes.concat(this.#beside));
    this.#begun = true;
  }

  update(data, from, to) {
    if (this.#over) throw invalidState('update');
    this.#begin();
    return encoded(this.#native.update(bytesOf(data, from)), to);
  }

  final(encoding) {
    if (this.#over) throw invalidState('final');
    this.#begin();
    this.#over = true;
    const tag = encoded(this.#native.tag());
    if (this.#seals) {
      this.#tag = tag.subarray(0, this.#length);
    } else if (!this.#tag || !native.equal(tag.subarray(0, this.#tag.length), this.#tag)) {
      throw new Error('Unsupported state or unable to authenticate data');
    }
    return encoded(Bytes.alloc(0), encoding);
  }
}

function make(algorithm, givenKey, givenIv, seals, options) {
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
  if (name.endsWith('gcm')) {
    if (iv.byteLength === 0) throw coded(TypeError, 'ERR_CRYPTO_INVALID_IV', 'Invalid initialization vector');
    return new AuthenticatedCipher(key, iv, seals, options ?? undefined);
  }
  if (iv.byteLength !== 16) throw coded(TypeError, 'ERR_CRYPTO_INVALID_IV', 'Invalid initialization vector');
  return new PlainCipher(name, key, iv, seals);
}

export const createCipheriv = (algorithm, key, iv, options) => make(algorithm, key, iv, true, options);
export const createDecipheriv = (algorithm, key, iv, options) => make(algorithm, key, iv, false, options);
