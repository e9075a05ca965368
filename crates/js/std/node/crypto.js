import native from 'native/crypto';
import { Bytes } from 'internal/buffer';
import { Transform } from 'node:stream';
import { Cipher, createCipheriv, createDecipheriv, getCiphers } from 'internal/ciphers';
import { CIPHER_NUMBERS, constants } from 'internal/crypto-constants';
import {
  DiffieHellman,
  DiffieHellmanGroup,
  createDiffieHellman,
  getDiffieHellman,
} from 'internal/diffie-hellman';
import { checkPrime, checkPrimeSync, generatePrime, generatePrimeSync } from 'internal/primes';
import { X509Certificate } from 'internal/x509-certificate';
import { bytesOf, encoded } from 'internal/crypto-bytes';
import { absent } from 'internal/absent';
import {
  ECDH,
  createECDH,
  diffieHellman,
  privateDecrypt,
  privateEncrypt,
  publicDecrypt,
  publicEncrypt,
} from 'internal/ecdh';
import { checkFunction, checkString, coded, missing, outOfRange, wrongType } from 'internal/errors';
import {
  generateKey,
  generateKeyPair,
  generateKeyPairSync,
  generateKeySync,
  getCurves,
} from 'internal/generate-keys';
import { getRandomValues, randomUUID } from 'internal/random';
import { KeyObject, createPrivateKey, createPublicKey, createSecretKey, secretOf } from 'internal/keys';
import { Crypto, CryptoKey, SubtleCrypto, crypto as webcrypto } from 'internal/webcrypto';

class Digest extends Transform {
  #native;

  constructor(native) {
    super();
    this.#native = native;
  }

  update(data, encoding) {
    this.#native.update(bytesOf(data, encoding));
    return this;
  }

  digest(encoding) {
    return encoded(this.#native.digest(), encoding);
  }

  _transform(chunk, encoding, callback) {
    this.#native.update(bytesOf(chunk, encoding));
    callback();
  }

  _flush(callback) {
    this.push(this.digest());
    callback();
  }

  _copy() {
    return this.#native.copy();
  }
}

export class Hash extends Digest {
  constructor(algorithm) {
    super(typeof algorithm === 'string' ? native.hash(algorithm) : algorithm);
  }

  copy() {
    return new Hash(this._copy());
  }
}

export class Hmac extends Digest {
  constructor(algorithm, key) {
    super(native.hmac(algorithm, key));
  }
}

export function createHash(algorithm) {
  checkString(algorithm, 'algorithm');
  return new Hash(algorithm);
}

export function createHmac(algorithm, key, options) {
  checkString(algorithm, 'hmac');
  return new Hmac(algorithm, secretOf(key, options?.encoding));
}

export function hash(algorithm, data, encoding = 'hex') {
  return createHash(algorithm).update(data).digest(encoding);
}

export const getHashes = () => [
  'RSA-SHA1',
  'RSA-SHA224',
  'RSA-SHA256',
  'RSA-SHA384',
  'RSA-SHA512',
  'md5',
  'sha1',
  'sha224',
  'sha256',
  'sha384',
  'sha512',
  'sha512-256',
];

function calling(callback, run) {
  if (callback === undefined) return run();
  checkFunction(callback, 'callback');
  let answer;
  try {
    answer = run();
  } catch (error) {
    queueMicrotask(() => callback(error));
    return undefined;
  }
  queueMicrotask(() => callback(null, answer));
  return undefined;
}

export function randomBytes(size, callback) {
  if (typeof size !== 'number') throw wrongType('size', 'of type number', size);
  if (!(size >= 0 && size <= 2 ** 31 - 1)) throw outOfRange('size', '>= 0 && <= 2147483647', size);
  return calling(callback, () => encoded(native.random(size)));
}
export { randomBytes as pseudoRandomBytes };

export function randomInt(min, max, callback) {
  if (max === undefined || typeof max === 'function') [min, max, callback] = [0, min, max];
  if (!Number.isSafeInteger(min)) throw wrongType('min', 'a safe integer', min);
  if (!Number.isSafeInteger(max)) throw wrongType('max', 'a safe integer', max);
  const range = max - min;
  if (range <= 0 || range > 2 ** 48 - 1)
    throw outOfRange('max', `greater than the value of "min" (${min})`, max);
  return calling(callback, () => {
    // Without the few values at the top that would make some numbers likelier.
    const fair = 2 ** 48 - (2 ** 48 % range);
    for (;;) {
      const drawn = Bytes.from(native.random(6)).readUIntBE(0, 6);
      if (drawn < fair) return min + (drawn % range);
    }
  });
}

export function randomFillSync(buffer, offset = 0, size = buffer.byteLength - offset) {
  const view = new Uint8Array(buffer.buffer ?? buffer, (buffer.byteOffset ?? 0) + offset, size);
  view.set(native.random(size));
  return buffer;
}

export function randomFill(buffer, offset, size, callback) {
  if (typeof offset === 'function') [offset, callback] = [undefined, offset];
  else if (typeof size === 'function') [size, callback] = [undefined, size];
  calling(callback, () => randomFillSync(buffer, offset, size));
}

export function timingSafeEqual(a, b) {
  for (const [name, value] of [
    ['buf1', a],
    ['buf2', b],
  ]) {
    if (!ArrayBuffer.isView(value) && !(value instanceof ArrayBuffer)) {
      throw wrongType(name, 'an instance of ArrayBuffer, Buffer, TypedArray, or DataView', value);
    }
  }
  if (a.byteLength !== b.byteLength) {
    throw coded(
      RangeError,
      'ERR_CRYPTO_TIMING_SAFE_EQUAL_LENGTH',
      'Input buffers must have the same byte length',
    );
  }
  return native.equal(a, b);
}

export function pbkdf2Sync(password, salt, iterations, length, digest) {
  return encoded(native.pbkdf2(digest, bytesOf(password), bytesOf(salt), iterations, length));
}

export function pbkdf2(password, salt, iterations, length, digest, callback) {
  checkFunction(callback, 'callback');
  native
    .pbkdf2Later(digest, bytesOf(password), bytesOf(salt), iterations, length)
    .then((key) => callback(null, encoded(key)), callback);
}

function stretched(password, salt, length, options = {}) {
  const N = options.N ?? options.cost ?? 16384;
  const r = options.r ?? options.blockSize ?? 8;
  const p = options.p ?? options.parallelization ?? 1;
  const most = options.maxmem ?? 32 * 1024 * 1024;
  if (!Number.isSafeInteger(length) || length < 0 || length > 2 ** 31 - 1)
    throw outOfRange('keylen', '>= 0 && <= 2147483647', length);
  const log = Math.log2(N);
  if (!(Number.isInteger(log) && log >= 1 && r >= 1 && p >= 1)) throw scryptParams('Invalid scrypt params');
  if (128 * r * (N + p + 2) > most) throw scryptParams('Invalid scrypt params: memory limit exceeded');
  return [bytesOf(password, undefined, 'password'), bytesOf(salt, undefined, 'salt'), [log, r, p], length];
}

const scryptParams = (message) => coded(RangeError, 'ERR_CRYPTO_INVALID_SCRYPT_PARAMS', message);

export function scryptSync(password, salt, length, options) {
  const given = stretched(password, salt, length, options);
  try {
    return encoded(native.scrypt(...given));
  } catch (error) {
    throw scryptParams(error.message);
  }
}

export function scrypt(password, salt, length, options, callback) {
  if (typeof options === 'function') [options, callback] = [undefined, options];
  checkFunction(callback, 'callback');
  const given = stretched(password, salt, length, options);
  let done;
  try {
    done = native.scryptLater(...given);
  } catch (error) {
    throw scryptParams(error.message);
  }
  done.then((key) => callback(null, encoded(key)), callback);
}

export function hkdfSync(digest, key, salt, info, length) {
  return native.hkdf(digest, secretOf(key), bytesOf(salt), bytesOf(info), length).buffer;
}

export function hkdf(digest, key, salt, info, length, callback) {
  checkFunction(callback, 'callback');
  calling(callback, () => hkdfSync(digest, key, salt, info, length));
}

/** How the native side signs: in which form, and with how long a salt. */
function manner(key, given) {
  const pss = given?.padding === constants.RSA_PKCS1_PSS_PADDING;
  const salt = given?.saltLength ?? constants.RSA_PSS_SALTLEN_AUTO;
  if (pss) return ['pss', salt];
  if (given?.padding !== undefined && given.padding !== constants.RSA_PKCS1_PADDING) {
    throw coded(
      Error,
      'ERR_OSSL_RSA_ILLEGAL_OR_UNSUPPORTED_PADDING_MODE',
      'error:1C8000A5:Provider routines::illegal or unsupported padding mode',
    );
  }
  return [given?.dsaEncoding === 'ieee-p1363' ? 'p1363' : 'der', salt];
}

export function sign(algorithm, data, key, callback) {
  return calling(callback, () => {
    const object = createPrivateKey(key);
    return encoded(native.sign(algorithm ?? '', object._bytes, bytesOf(data), ...manner(object, key)));
  });
}

export function verify(algorithm, data, key, signature, callback) {
  return calling(callback, () => {
    const object = createPublicKey(key);
    return native.verify(algorithm ?? '', object._bytes, bytesOf(data), signature, ...manner(object, key));
  });
}

class Signer extends Transform {
  #algorithm;
  #parts = [];

  constructor(algorithm) {
    super();
    this.#algorithm = algorithm;
  }

  update(data, encoding) {
    this.#parts.push(Bytes.from(bytesOf(data, encoding)));
    return this;
  }
  _transform(chunk, encoding, callback) {
    this.update(chunk, encoding);
    callback();
  }
  sign(key, encoding) {
    return encoded(sign(this.#algorithm, Bytes.concat(this.#parts), key), encoding);
  }
  verify(key, signature, encoding) {
    return verify(this.#algorithm, Bytes.concat(this.#parts), key, bytesOf(signature, encoding));
  }
}

export const createSign = (algorithm) => new Signer(algorithm);
export const createVerify = (algorithm) => new Signer(algorithm);

export const { subtle } = webcrypto;
export const getFips = () => 0;

export function setFips(fips) {
  if (fips) throw missing('crypto.setFips(true)', 'the host has no such mode');
}
export const secureHeapUsed = () => ({ total: 0, min: 0, used: 0, utilization: 0 });

/** What is known of a cipher by its name or its number. */
export function getCipherInfo(given, options) {
  const found = typeof given === 'string' && /^aes-?(\d+)-(cbc|ctr|gcm)$/i.exec(given);
  if (!found || !getCiphers().includes(`aes-${found[1]}-${found[2].toLowerCase()}`)) return undefined;
  const bits = Number(found[1]);
  const mode = found[2].toLowerCase();
  const info = {
    mode,
    name: mode === 'gcm' ? `id-aes${bits}-gcm` : `aes-${bits}-${mode}`,
    nid: CIPHER_NUMBERS[`${bits}-${mode}`],
    blockSize: mode === 'cbc' ? 16 : 1,
    ivLength: mode === 'gcm' ? 12 : 16,
    keyLength: bits / 8,
  };
  const { keyLength = info.keyLength, ivLength = info.ivLength } = options ?? {};
  const fits = mode === 'gcm' ? ivLength > 0 : ivLength === info.ivLength;
  if (keyLength !== info.keyLength || !fits) return undefined;
  return { ...info, ivLength };
}

/** The classes of what the functions make. */
export function Sign(algorithm) {
  return new Signer(algorithm);
}
Sign.prototype = Signer.prototype;
export function Verify(algorithm) {
  return new Signer(algorithm);
}
Verify.prototype = Signer.prototype;
export function Cipheriv(...given) {
  return createCipheriv(...given);
}
export function Decipheriv(...given) {
  return createDecipheriv(...given);
}
Cipheriv.prototype = Cipher.prototype;
Decipheriv.prototype = Cipher.prototype;

// What packages import and plugins seldom call.
const [argon2, argon2Sync, decapsulate, encapsulate] = [];
const [Certificate, setEngine] = [
  ['Certificate', 'verify with X509Certificate'],
  ['setEngine', 'the host has no engines'],
].map(([name, instead]) => absent(`crypto.${name}`, instead));

export {
  Certificate,
  Crypto,
  CryptoKey,
  DiffieHellman,
  DiffieHellmanGroup,
  ECDH,
  KeyObject,
  SubtleCrypto,
  X509Certificate,
  argon2,
  argon2Sync,
  checkPrime,
  checkPrimeSync,
  constants,
  createCipheriv,
  createDecipheriv,
  createDiffieHellman,
  createECDH,
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  decapsulate,
  diffieHellman,
  encapsulate,
  generateKey,
  generateKeyPair,
  generateKeyPairSync,
  generateKeySync,
  generatePrime,
  generatePrimeSync,
  getCiphers,
  getCurves,
  getDiffieHellman,
  getRandomValues,
  privateDecrypt,
  privateEncrypt,
  publicDecrypt,
  publicEncrypt,
  randomUUID,
  setEngine,
  webcrypto,
  getDiffieHellman as createDiffieHellmanGroup,
};
export default {
  Certificate,
  Cipheriv,
  Crypto,
  CryptoKey,
  Decipheriv,
  DiffieHellman,
  DiffieHellmanGroup,
  ECDH,
  Hash,
  Hmac,
  KeyObject,
  Sign,
  SubtleCrypto,
  Verify,
  X509Certificate,
  checkPrime,
  checkPrimeSync,
  constants,
  createCipheriv,
  createDecipheriv,
  createDiffieHellman,
  createDiffieHellmanGroup: getDiffieHellman,
  createECDH,
  createHash,
  createHmac,
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  createSign,
  createVerify,
  diffieHellman,
  generateKey,
  generateKeyPair,
  generateKeyPairSync,
  generateKeySync,
  generatePrime,
  generatePrimeSync,
  getCipherInfo,
  getCiphers,
  getCurves,
  getDiffieHellman,
  getFips,
  getHashes,
  getRandomValues,
  hash,
  hkdf,
  hkdfSync,
  pbkdf2,
  pbkdf2Sync,
  privateDecrypt,
  privateEncrypt,
  pseudoRandomBytes: randomBytes,
  publicDecrypt,
  publicEncrypt,
  randomBytes,
  randomFill,
  randomFillSync,
  randomInt,
  randomUUID,
  scrypt,
  scryptSync,
  secureHeapUsed,
  setEngine,
  setFips,
  sign,
  subtle,
  timingSafeEqual,
  verify,
  webcrypto,
};
