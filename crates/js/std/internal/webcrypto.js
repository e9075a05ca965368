// `crypto`, as on the web.

import { Bytes } from 'internal/buffer';
import native from 'native/crypto';
import { getRandomValues, randomUUID } from 'internal/random';
import { newPrivate } from 'internal/generate-keys';
import { KeyObject, createPublicKey, privateFromJwk, publicFromJwk, publicFromPoint } from 'internal/keys';

const inside = Symbol('inside');

export class CryptoKey {
  constructor(key, type, algorithm, extractable, usages, bytes) {
    if (key !== inside) throw new TypeError('Illegal constructor');
    Object.assign(this, { type, algorithm, extractable, usages });
    Object.defineProperty(this, '_object', { value: new KeyObject(type, Bytes.from(bytes)) });
  }

  get [Symbol.toStringTag]() {
    return 'CryptoKey';
  }
}

function view(data) {
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  throw new TypeError('The data must be an ArrayBuffer or a view of one');
}

const AES = ['AES-CBC', 'AES-CTR', 'AES-GCM'];
const PAIRS = ['ECDSA', 'Ed25519', 'RSASSA-PKCS1-v1_5', 'RSA-PSS'];

/** The algorithms there are, by what can be done with them. */
export const ALGORITHMS = {
  digest: ['SHA-1', 'SHA-256', 'SHA-384', 'SHA-512'],
  encrypt: AES,
  deriveBits: ['HKDF', 'PBKDF2'],
  sign: ['HMAC', ...PAIRS],
  generateKey: [...AES, 'ECDSA', 'Ed25519', 'HMAC'],
  importKey: [...AES, 'HKDF', 'HMAC', 'PBKDF2', ...PAIRS],
};
const KNOWN = [...new Set(Object.values(ALGORITHMS).flat())];

function named(algorithm) {
  const given = typeof algorithm === 'string' ? { name: algorithm } : { ...algorithm };
  given.name = KNOWN.find((name) => name.toLowerCase() === `${given.name}`.toLowerCase()) ?? given.name;
  if (typeof given.hash === 'string') given.hash = { name: given.hash.toUpperCase() };
  return given;
}

function unsupported(what) {
  return new DOMException(`${what} is not supported here`, 'NotSupportedError');
}

function check(key, usage, name) {
  if (key.algorithm.name !== name)
    throw new DOMException('The key does not match the algorithm', 'InvalidAccessError');
  if (!key.usages.includes(usage)) throw new DOMException(`The key may not ${usage}`, 'InvalidAccessError');
}

function checkLength(name, bits, kind) {
  if (name === 'AES-GCM' && ![128, 256].includes(bits)) throw new DOMException(native.aesKey, kind);
  if (AES.includes(name) && ![128, 192, 256].includes(bits)) {
    throw new DOMException('An AES key has to be of 128, 192 or 256 bits', kind);
  }
}

/** AES without authentication. */
function cipher(given, key, data, seals) {
  const secret = key._object._bytes;
  const iv = view(given.name === 'AES-CBC' ? given.iv : given.counter);
  if (iv.byteLength !== 16)
    throw new DOMException('The iv or counter has to be of 16 bytes', 'OperationError');
  if (given.name === 'AES-CTR') {
    const { length } = given;
    if (!(length >= 1 && length <= 128))
      throw new DOMException('The length of a counter is 1 to 128 bits', 'OperationError');
    const bits = 1n << BigInt(length);
    const counted = BigInt(`0x${Bytes.from(iv).toString('hex')}`) % bits;
    if (counted + BigInt(Math.ceil(data.byteLength / 16)) > bits)
      throw unsupported('A counter that starts over');
  }
  const work = native.cipher(
    `aes-${secret.length * 8}-${given.name.slice(4).toLowerCase()}`,
    secret,
    iv,
    seals,
  );
  try {
    return plain(new Uint8Array(Bytes.concat([work.update(data), work.final()])));
  } catch {
    throw new DOMException('The operation failed', 'OperationError');
  }
}

const plain = (bytes) => bytes.buffer;
const BLOCKS = { 'SHA-1': 64, 'SHA-256': 64, 'SHA-384': 128, 'SHA-512': 128 };

/** How the native side is told to sign: by which digest, and in which form. */
function manner(algorithm, key) {
  switch (algorithm.name) {
    case 'RSASSA-PKCS1-v1_5':
      return [key.algorithm.hash.name, ''];
    case 'RSA-PSS':
      return [key.algorithm.hash.name, 'pss'];
    case 'ECDSA':
      return [algorithm.hash?.name ?? 'SHA-256', 'p1363'];
    case 'Ed25519':
      return ['', ''];
    default:
      throw unsupported(algorithm.name);
  }
}

async function derive(algorithm, key, bits) {
  const given = named(algorithm);
  const secret = key._object._bytes;
  if (bits === null || bits % 8 !== 0)
    throw new DOMException('The length must be a multiple of 8', 'OperationError');
  if (given.name === 'PBKDF2') {
    return native.pbkdf2Later(given.hash.name, secret, view(given.salt), given.iterations, bits / 8);
  }
  if (given.name === 'HKDF')
    return native.hkdf(given.hash.name, secret, view(given.salt), view(given.info), bits / 8);
  throw unsupported(given.name);
}

export class SubtleCrypto {
  constructor(key) {
    if (key !== inside) throw new TypeError('Illegal constructor');
  }

  async digest(algorithm, data) {
    const { name } = named(algorithm);
    if (!(name in BLOCKS)) throw unsupported(name);
    const hash = native.hash(name);
    hash.update(view(data));
    return plain(hash.digest());
  }

  async importKey(format, data, algorithm, extractable, usages) {
    const given = named(algorithm);
    const make = (type, bytes, more = {}) => {
      const about = { ...given, ...more };
      return new CryptoKey(inside, type, about, extractable, [...usages], bytes);
    };
    if (!ALGORITHMS.importKey.includes(given.name)) throw unsupported(given.name);
    if (!PAIRS.includes(given.name)) {
      let bytes;
      if (format === 'raw') bytes = view(data).slice();
      else if (format === 'jwk' && data.kty === 'oct')
        bytes = new Uint8Array(Bytes.from(data.k, 'base64url'));
      else throw unsupported(`Importing ${given.name} keys from ${format}`);
      checkLength(given.name, bytes.length * 8, 'DataError');
      return make('secret', bytes, { length: bytes.length * 8 });
    }
    if (format === 'spki') return make('public', view(data));
    if (format === 'pkcs8') return make('private', view(data));
    if (format === 'jwk')
      return data.d ? make('private', privateFromJwk(data)) : make('public', publicFromJwk(data));
    if (format === 'raw' && given.name !== 'RSASSA-PKCS1-v1_5' && given.name !== 'RSA-PSS') {
      return make('public', publicFromPoint(Bytes.from(view(data)), given.namedCurve ?? 'Ed25519'));
    }
    throw unsupported(`Importing ${given.name} keys from ${format}`);
  }

  async exportKey(format, key) {
    if (!key.extractable) throw new DOMException('The key is not extractable', 'InvalidAccessError');
    const bytes = new Uint8Array(key._object._bytes);
    if (key.type === 'secret' && format === 'raw') return plain(bytes);
    if (key.type === 'secret' && format === 'jwk') {
      return { kty: 'oct', k: Bytes.from(bytes).toString('base64url'), ext: true, key_ops: [...key.usages] };
    }
    if (key.type !== 'secret' && format === 'jwk') {
      const alg = key.algorithm.name === 'Ed25519' ? { alg: 'Ed25519' } : {};
      return { key_ops: [...key.usages], ext: true, ...alg, ...key._object.export({ format }) };
    }
    if (key.type === 'public' && format === 'raw' && ['ECDSA', 'Ed25519'].includes(key.algorithm.name)) {
      return plain(bytes.slice({ 'P-256': -65, 'P-384': -97 }[key.algorithm.namedCurve] ?? -32));
    }
    if ((key.type === 'public' && format === 'spki') || (key.type === 'private' && format === 'pkcs8'))
      return plain(bytes);
    throw unsupported(`Exporting ${key.type} keys as ${format}`);
  }

  async generateKey(algorithm, extractable, usages) {
    const given = named(algorithm);
    if (!ALGORITHMS.generateKey.includes(given.name)) throw unsupported(`Generating ${given.name} keys`);
    if (PAIRS.includes(given.name)) {
      if (given.name === 'ECDSA' && !['P-256', 'P-384'].includes(given.namedCurve))
        throw unsupported(given.namedCurve);
      const made = newPrivate(given.name === 'ECDSA' ? 'ec' : 'ed25519', given.namedCurve);
      const make = (object, usage, may) =>
        new CryptoKey(
          inside,
          object.type,
          given,
          may,
          usages.filter((name) => name === usage),
          object._bytes,
        );
      return {
        publicKey: make(createPublicKey(made), 'verify', true),
        privateKey: make(made, 'sign', extractable),
      };
    }
    const length = given.name === 'HMAC' ? (given.length ?? BLOCKS[given.hash.name] * 8) : given.length;
    checkLength(given.name, length, 'OperationError');
    return new CryptoKey(
      inside,
      'secret',
      { ...given, length },
      extractable,
      [...usages],
      native.random(length / 8),
    );
  }

  async sign(algorithm, key, data) {
    const given = named(algorithm);
    check(key, 'sign', given.name);
    if (given.name === 'HMAC') {
      const hmac = native.hmac(key.algorithm.hash.name, key._object._bytes);
      hmac.update(view(data));
      return plain(hmac.digest());
    }
    const [digest, form] = manner(given, key);
    return plain(native.sign(digest, key._object._bytes, view(data), form));
  }

  async verify(algorithm, key, signature, data) {
    const given = named(algorithm);
    check(key, 'verify', given.name);
    if (given.name === 'HMAC') {
      const hmac = native.hmac(key.algorithm.hash.name, key._object._bytes);
      hmac.update(view(data));
      return native.equal(hmac.digest(), view(signature));
    }
    const [digest, form] = manner(given, key);
    return native.verify(digest, key._object._bytes, view(data), view(signature), form);
  }

  async encrypt(algorithm, key, data) {
    const given = named(algorithm);
    if (!AES.includes(given.name)) throw unsupported(given.name);
    check(key, 'encrypt', given.name);
    if (given.name !== 'AES-GCM') return cipher(given, key, view(data), true);
    const beside = given.additionalData ? view(given.additionalData) : undefined;
    return plain(native.seal(key._object._bytes, view(given.iv), view(data), beside));
  }

  async decrypt(algorithm, key, data) {
    const given = named(algorithm);
    if (!AES.includes(given.name)) throw unsupported(given.name);
    check(key, 'decrypt', given.name);
    if (given.name !== 'AES-GCM') return cipher(given, key, view(data), false);
    const beside = given.additionalData ? view(given.additionalData) : undefined;
    try {
      return plain(native.open(key._object._bytes, view(given.iv), view(data), beside));
    } catch (error) {
      throw new DOMException(error.message, 'OperationError');
    }
  }

  async deriveBits(algorithm, key, length) {
    return plain(await derive(algorithm, key, length));
  }

  async deriveKey(algorithm, key, wanted, extractable, usages) {
    const given = named(wanted);
    const length = given.length ?? (given.name === 'HMAC' ? BLOCKS[given.hash.name] * 8 : 256);
    return this.importKey('raw', await derive(algorithm, key, length), given, extractable, usages);
  }

  async wrapKey(format, key, wrapping, algorithm) {
    const exported = await this.exportKey(format, key);
    const bytes = format === 'jwk' ? new TextEncoder().encode(JSON.stringify(exported)) : exported;
    return this.encrypt(
      algorithm,
      { ...wrapping, usages: [...wrapping.usages, 'encrypt'], _object: wrapping._object },
      bytes,
    );
  }

  async unwrapKey(format, wrapped, wrapping, algorithm, keyAlgorithm, extractable, usages) {
    const bytes = await this.decrypt(
      algorithm,
      { ...wrapping, usages: [...wrapping.usages, 'decrypt'], _object: wrapping._object },
      wrapped,
    );
    const data = format === 'jwk' ? JSON.parse(new TextDecoder().decode(bytes)) : bytes;
    return this.importKey(format, data, keyAlgorithm, extractable, usages);
  }

  get [Symbol.toStringTag]() {
    return 'SubtleCrypto';
  }
}

export class Crypto {
  #subtle = new SubtleCrypto(inside);

  constructor(key) {
    if (key !== inside) throw new TypeError('Illegal constructor');
  }

  get subtle() {
    return this.#subtle;
  }

  getRandomValues(typed) {
    return getRandomValues(typed);
  }

  randomUUID() {
    return randomUUID();
  }

  get [Symbol.toStringTag]() {
    return 'Crypto';
  }
}

export const crypto = new Crypto(inside);
