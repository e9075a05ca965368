// `crypto`, as on the web.

import { Bytes } from 'internal/buffer';
import native from 'native/crypto';
import { getRandomValues, randomUUID } from 'internal/random';
import { newPrivate, newRsa } from 'internal/generate-keys';
import { enumerable } from 'internal/members';
import {
  CURVES,
  KeyObject,
  createPrivateKey,
  createPublicKey,
  privateFromJwk,
  publicFromJwk,
  publicFromPoint,
} from 'internal/keys';

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
const RSA = ['RSASSA-PKCS1-v1_5', 'RSA-PSS', 'RSA-OAEP'];
const SIGNS = ['ECDSA', 'Ed25519', 'RSASSA-PKCS1-v1_5', 'RSA-PSS'];
const AGREES = ['ECDH', 'X25519'];
const PAIRS = [...SIGNS, ...AGREES, 'RSA-OAEP'];
const NIST = ['P-256', 'P-384', 'P-521'];

/** The algorithms there are, by what can be done with them. */
export const ALGORITHMS = {
  digest: ['SHA-1', 'SHA-256', 'SHA-384', 'SHA-512'],
  encrypt: [...AES, 'RSA-OAEP'],
  deriveBits: ['HKDF', 'PBKDF2', ...AGREES],
  sign: ['HMAC', ...SIGNS],
  generateKey: [...AES, 'HMAC', ...PAIRS],
  importKey: [...AES, 'HKDF', 'HMAC', 'PBKDF2', ...PAIRS],
};
const KNOWN = [...new Set(Object.values(ALGORITHMS).flat())];

/** What each algorithm takes beside its name. Other members are ignored, as of every dictionary of the platform. */
const OF_RSA = ['hash', 'modulusLength', 'publicExponent'];
const MEMBERS = {
  'AES-CBC': ['iv', 'length'],
  'AES-CTR': ['counter', 'length'],
  'AES-GCM': ['additionalData', 'iv', 'length', 'tagLength'],
  HKDF: ['hash', 'info', 'salt'],
  HMAC: ['hash', 'length'],
  PBKDF2: ['hash', 'iterations', 'salt'],
  ECDH: ['namedCurve', 'public'],
  ECDSA: ['hash', 'namedCurve'],
  X25519: ['public'],
  'RSA-OAEP': [...OF_RSA, 'label'],
  'RSA-PSS': [...OF_RSA, 'saltLength'],
  'RSASSA-PKCS1-v1_5': OF_RSA,
};

function named(algorithm) {
  const { name, ...members } = typeof algorithm === 'string' ? { name: algorithm } : algorithm;
  const known = KNOWN.find((known) => known.toLowerCase() === `${name}`.toLowerCase()) ?? name;
  const given = { name: known };
  const taken = Object.hasOwn(MEMBERS, known) ? MEMBERS[known] : [];
  for (const member of taken) if (member in members) given[member] = members[member];
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
    throw new DOMException('An AES key must have 128, 192 or 256 bits', kind);
  }
}

/** AES without authentication. */
function cipher(given, key, data, seals) {
  const secret = key._object._bytes;
  const iv = view(given.name === 'AES-CBC' ? given.iv : given.counter);
  if (iv.byteLength !== 16) throw new DOMException('The iv or counter must have 16 bytes', 'OperationError');
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
      return [key.algorithm.hash.name, '', 0];
    case 'RSA-PSS':
      if (!(algorithm.saltLength >= 0)) throw new TypeError('algorithm.saltLength must be a number');
      return [key.algorithm.hash.name, 'pss', algorithm.saltLength];
    case 'ECDSA':
      if (!algorithm.hash) throw new TypeError('algorithm.hash is required');
      return [algorithm.hash.name, 'p1363', 0];
    case 'Ed25519':
      return ['', '', 0];
    default:
      throw unsupported(algorithm.name);
  }
}

/** The first bits of the secret of two keys; all where no number is named. */
function agreed(given, key, bits) {
  const other = given.public;
  if (
    !(other instanceof CryptoKey) ||
    other.algorithm.name !== given.name ||
    key.algorithm.name !== given.name
  ) {
    throw new DOMException('The keys do not match the algorithm', 'InvalidAccessError');
  }
  if (other.type !== 'public' || key.type !== 'private' || other._object._kind !== key._object._kind) {
    throw new DOMException(
      'The keys are not a private and a public one of the same curve',
      'InvalidAccessError',
    );
  }
  let secret;
  try {
    secret = new Uint8Array(native.agree(key._object._bytes, other._object._bytes));
  } catch (error) {
    throw new DOMException(error.message, 'OperationError');
  }
  const length = bits ?? secret.length * 8;
  if (length > secret.length * 8) throw new DOMException('derived bit length is too long', 'OperationError');
  const cut = secret.slice(0, Math.ceil(length / 8));
  if (length % 8 !== 0) cut[cut.length - 1] &= 0xff << (8 - (length % 8));
  return cut;
}

/** What a key says of itself beside its name and digest. */
function facts(name, object) {
  if (RSA.includes(name)) {
    const publicExponent = new Uint8Array(native.rsaNumbers(object._bytes)[1]);
    return {
      modulusLength: object.asymmetricKeyDetails.modulusLength,
      publicExponent,
    };
  }
  return name === 'ECDSA' || name === 'ECDH' ? { namedCurve: object._kind } : {};
}

/** Whether a key is one for the algorithm. */
function fits(name, kind) {
  if (RSA.includes(name)) return kind === 'RSA';
  return name === 'ECDSA' || name === 'ECDH' ? NIST.includes(kind) : kind === name;
}

const JWK_ALGS = { 'RSASSA-PKCS1-v1_5': 'RS', 'RSA-PSS': 'PS', 'RSA-OAEP': 'RSA-OAEP-' };

/** The `alg` of a key's JWK. */
function jwkAlg({ name, hash }) {
  if (name === 'Ed25519') return { alg: 'Ed25519' };
  if (!JWK_ALGS[name]) return {};
  const bits = hash.name.slice(4);
  return { alg: name === 'RSA-OAEP' && bits === '1' ? 'RSA-OAEP' : `${JWK_ALGS[name]}${bits}` };
}

async function derive(algorithm, key, bits) {
  const given = named(algorithm);
  if (AGREES.includes(given.name)) return agreed(given, key, bits);
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

const USES = {
  public: ['verify', 'encrypt', 'wrapKey'],
  private: ['sign', 'decrypt', 'unwrapKey', 'deriveKey', 'deriveBits'],
};

async function generatePair(given, extractable, usages) {
  const { name, namedCurve } = given;
  if ((name === 'ECDSA' || name === 'ECDH') && !NIST.includes(namedCurve)) throw unsupported(namedCurve);
  let made;
  if (RSA.includes(name)) {
    const publicExponent = Number(`0x${Bytes.from(view(given.publicExponent)).toString('hex')}`);
    made = await newRsa({ modulusLength: given.modulusLength, publicExponent });
  } else {
    made = newPrivate(namedCurve ? 'ec' : name.toLowerCase(), namedCurve);
  }
  const make = (object, may) =>
    new CryptoKey(
      inside,
      object.type,
      given,
      may,
      USES[object.type].filter((usage) => usages.includes(usage)),
      object._bytes,
    );
  return { publicKey: make(createPublicKey(made), true), privateKey: make(made, extractable) };
}

function signed(given, key, data) {
  const [digest, form, salt] = manner(given, key);
  return native.sign(digest, key._object._bytes, data, form, salt);
}

/** Encrypts or decrypts with RSA. */
function oaep(run, given, key, data) {
  const label = given.label === undefined ? undefined : view(given.label);
  try {
    return plain(new Uint8Array(run(key._object._bytes, data, 'oaep', key.algorithm.hash.name, label)));
  } catch (error) {
    throw new DOMException(`The operation failed: ${error.message}`, 'OperationError');
  }
}

/** A key of a pair, from the form it is given in. */
function imported(format, data, given) {
  try {
    if (format === 'spki') return createPublicKey({ key: view(data), format: 'der', type: 'spki' });
    if (format === 'pkcs8') return createPrivateKey({ key: view(data), format: 'der', type: 'pkcs8' });
    if (format === 'jwk') {
      return data.d
        ? new KeyObject('private', privateFromJwk(data))
        : new KeyObject('public', publicFromJwk(data));
    }
    if (format === 'raw' && !RSA.includes(given.name)) {
      return new KeyObject('public', publicFromPoint(Bytes.from(view(data)), given.namedCurve ?? given.name));
    }
  } catch (error) {
    throw error instanceof DOMException
      ? error
      : new DOMException(`Invalid keyData: ${error.message}`, 'DataError');
  }
  throw unsupported(`Importing ${given.name} keys from ${format}`);
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
    const object = imported(format, data, given);
    if (!fits(given.name, object._kind) || (given.namedCurve && given.namedCurve !== object._kind)) {
      throw new DOMException('Invalid key type', 'DataError');
    }
    return make(object.type, object._bytes, facts(given.name, object));
  }

  async exportKey(format, key) {
    if (!key.extractable) throw new DOMException('The key is not extractable', 'InvalidAccessError');
    const bytes = new Uint8Array(key._object._bytes);
    if (key.type === 'secret' && format === 'raw') return plain(bytes);
    if (key.type === 'secret' && format === 'jwk') {
      return { kty: 'oct', k: Bytes.from(bytes).toString('base64url'), ext: true, key_ops: [...key.usages] };
    }
    if (key.type !== 'secret' && format === 'jwk') {
      const exported = key._object.export({ format });
      return { key_ops: [...key.usages], ext: true, ...jwkAlg(key.algorithm), ...exported };
    }
    if (key.type === 'public' && format === 'raw' && !RSA.includes(key.algorithm.name)) {
      const point = native.keyMaterial(bytes);
      const whole =
        key._object._kind in CURVES ? native.convertPoint(key._object._kind, point, false) : point;
      return plain(new Uint8Array(whole));
    }
    if ((key.type === 'public' && format === 'spki') || (key.type === 'private' && format === 'pkcs8'))
      return plain(bytes);
    throw unsupported(`Exporting ${key.type} keys as ${format}`);
  }

  async generateKey(algorithm, extractable, usages) {
    const given = named(algorithm);
    if (!ALGORITHMS.generateKey.includes(given.name)) throw unsupported(`Generating ${given.name} keys`);
    if (PAIRS.includes(given.name)) return generatePair(given, extractable, usages);
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
    return plain(signed(given, key, view(data)));
  }

  async verify(algorithm, key, signature, data) {
    const given = named(algorithm);
    check(key, 'verify', given.name);
    if (given.name === 'HMAC') {
      const hmac = native.hmac(key.algorithm.hash.name, key._object._bytes);
      hmac.update(view(data));
      return native.equal(hmac.digest(), view(signature));
    }
    const [digest, form, salt] = manner(given, key);
    return native.verify(digest, key._object._bytes, view(data), view(signature), form, salt);
  }

  async encrypt(algorithm, key, data) {
    const given = named(algorithm);
    if (!ALGORITHMS.encrypt.includes(given.name)) throw unsupported(given.name);
    check(key, 'encrypt', given.name);
    if (given.name === 'RSA-OAEP') return oaep(native.rsaEncrypt, given, key, view(data));
    if (given.name !== 'AES-GCM') return cipher(given, key, view(data), true);
    const beside = given.additionalData ? view(given.additionalData) : undefined;
    return plain(native.seal(key._object._bytes, view(given.iv), view(data), beside));
  }

  async decrypt(algorithm, key, data) {
    const given = named(algorithm);
    if (!ALGORITHMS.encrypt.includes(given.name)) throw unsupported(given.name);
    check(key, 'decrypt', given.name);
    if (given.name === 'RSA-OAEP') return oaep(native.rsaDecrypt, given, key, view(data));
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
    const length = given.length ?? (given.name === 'HMAC' ? BLOCKS[given.hash.name] * 8 : null);
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

enumerable([Crypto, CryptoKey, SubtleCrypto]);
