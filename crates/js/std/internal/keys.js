// Keys: from PEM, DER, JWK and plain bytes. A private key is PKCS#8 here, a public one SPKI.

import { Bytes } from 'internal/buffer';
import native from 'native/crypto';
import { coded, wrongType, wrongValue } from 'internal/errors';

/** Curves by their names in JWKs: Node's names, and how many bytes a number has. */
export const CURVES = {
  'P-256': { node: 'prime256v1', size: 32 },
  'P-384': { node: 'secp384r1', size: 48 },
  'P-521': { node: 'secp521r1', size: 66 },
  secp256k1: { node: 'secp256k1', size: 32 },
};
const OKP = ['Ed25519', 'X25519'];

/** The name of a curve, from any of its names. */
export const curveNamed = (name) =>
  Object.keys(CURVES).find((each) => each === name || CURVES[each].node === name);

const RSA_PARTS = ['n', 'e', 'd', 'p', 'q', 'dp', 'dq', 'qi'];
const base64url = (bytes) => bytes.toString('base64url');
const buffer = (bytes) => Bytes.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

function der(tag, ...parts) {
  const inside = Bytes.concat(parts);
  const length = inside.length;
  const head =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Bytes.concat([Bytes.from([tag, ...head]), inside]);
}

function integer(given) {
  let bytes = Bytes.from(given, 'base64url');
  while (bytes.length > 1 && bytes[0] === 0) bytes = bytes.subarray(1);
  return der(0x02, bytes[0] & 0x80 ? Bytes.concat([Bytes.from([0]), bytes]) : bytes);
}

const zero = der(0x02, Bytes.from([0]));

function part(jwk, name) {
  if (typeof jwk[name] !== 'string') throw wrongType(`key.${name}`, 'of type string', jwk[name]);
  return jwk[name];
}

function invalidJwk() {
  return coded(TypeError, 'ERR_CRYPTO_INVALID_JWK', 'Invalid JWK data');
}

/** Makes a key of a curve, or says what Node says of an invalid one. */
function ofCurve(make, ...given) {
  try {
    return buffer(make(...given));
  } catch {
    throw invalidJwk();
  }
}

/** A public key in SPKI. */
export function publicFromJwk(jwk) {
  if (jwk.kty === 'RSA') {
    return buffer(native.publicKey(der(0x30, integer(part(jwk, 'n')), integer(part(jwk, 'e')))));
  }
  if (jwk.kty === 'OKP' && OKP.includes(jwk.crv)) {
    return ofCurve(native.publicOf, jwk.crv, Bytes.from(part(jwk, 'x'), 'base64url'));
  }
  const curve = CURVES[jwk.crv];
  if (jwk.kty !== 'EC' || !curve) throw unsupported(jwk);
  const point = [Bytes.from([4]), ...['x', 'y'].map((name) => Bytes.from(part(jwk, name), 'base64url'))];
  return ofCurve(native.publicOf, jwk.crv, Bytes.concat(point));
}

export const publicFromPoint = (point, name) => ofCurve(native.publicOf, name, point);

/** A private key in PKCS#8. */
export function privateFromJwk(jwk) {
  if (jwk.kty === 'RSA') {
    return buffer(native.privateKey(der(0x30, zero, ...RSA_PARTS.map((name) => integer(part(jwk, name))))));
  }
  if (!(jwk.kty === 'OKP' && OKP.includes(jwk.crv)) && !(jwk.kty === 'EC' && CURVES[jwk.crv])) {
    throw unsupported(jwk);
  }
  return ofCurve(native.privateOf, jwk.crv, Bytes.from(part(jwk, 'd'), 'base64url'));
}

function unsupported(jwk) {
  return new DOMException(`Keys of ${jwk.kty} ${jwk.crv ?? ''} are not supported here`, 'NotSupportedError');
}

function fromPem(text) {
  const found = /-----BEGIN ([A-Z0-9 ]+)-----([\s\S]+?)-----END \1-----/.exec(text);
  if (!found) {
    throw coded(Error, 'ERR_OSSL_UNSUPPORTED', 'error:1E08010C:DECODER routines::unsupported');
  }
  const [, label, body] = found;
  if (label.includes('ENCRYPTED') || body.includes('Proc-Type')) {
    throw coded(Error, 'ERR_OSSL_UNSUPPORTED', 'Encrypted private keys are not supported here');
  }
  return { bytes: Bytes.from(body.replace(/[^A-Za-z0-9+/=]/g, ''), 'base64') };
}

/** Reads bytes as a key, in any structure. */
function read(make, bytes) {
  try {
    return buffer(make(bytes));
  } catch (error) {
    throw coded(Error, 'ERR_OSSL_UNSUPPORTED', error.message);
  }
}

/** A key as `createSign` and its like are given it: PEM, `{ key, format, type }`, or a key object. */
export class KeyObject {
  #kind;

  constructor(type, bytes) {
    this.type = type;
    Object.defineProperty(this, '_bytes', { value: bytes });
  }

  /** `RSA`, a curve, `Ed25519` or `X25519`. */
  get _kind() {
    this.#kind ??= native.keyKind(this._bytes);
    return this.#kind;
  }

  get symmetricKeySize() {
    return this.type === 'secret' ? this._bytes.length : undefined;
  }

  get asymmetricKeyType() {
    if (this.type === 'secret') return undefined;
    return this._kind in CURVES ? 'ec' : this._kind.toLowerCase();
  }

  get asymmetricKeyDetails() {
    if (this.type === 'secret') return undefined;
    if (this._kind in CURVES) return { namedCurve: CURVES[this._kind].node };
    if (this._kind !== 'RSA') return {};
    const [modulus, exponent] = native.rsaNumbers(this._bytes).map(buffer);
    return {
      modulusLength: modulus.length * 8 - Math.clz32(modulus[0]) + 24,
      publicExponent: BigInt(`0x${exponent.toString('hex')}`),
    };
  }

  export(options) {
    if (this.type === 'secret') {
      return options?.format === 'jwk' ? { kty: 'oct', k: base64url(this._bytes) } : Bytes.from(this._bytes);
    }
    if (options === null || typeof options !== 'object')
      throw wrongType('options', 'of type object', options);
    if (options.format === 'jwk') return toJwk(this);
    const { bytes, label } = structure(this, options);
    if (options.format === 'der') return Bytes.from(bytes);
    if (options.format !== 'pem') throw wrongValue('options.format', options.format);
    return `-----BEGIN ${label}-----\n${bytes.toString('base64').replace(/(.{64})(?=.)/g, '$1\n')}\n-----END ${label}-----\n`;
  }

  equals(other) {
    if (!(other instanceof KeyObject)) throw wrongType('otherKeyObject', 'an instance of KeyObject', other);
    return other.type === this.type && this._bytes.equals(other._bytes);
  }

  static from(key) {
    if (!key?._object) throw wrongType('key', 'an instance of CryptoKey', key);
    return key._object;
  }
}

/** The bytes that a key is exported as, and what PEM calls them. */
function structure(key, { type, cipher }) {
  if (cipher !== undefined) {
    throw coded(Error, 'ERR_OSSL_UNSUPPORTED', 'Encrypted private keys are not supported here');
  }
  if (key.type === 'public') {
    if (type === 'pkcs1' && key._kind === 'RSA') {
      return { bytes: buffer(native.keyMaterial(key._bytes)), label: 'RSA PUBLIC KEY' };
    }
    if (type !== 'spki') throw wrongValue('options.type', type);
    return { bytes: key._bytes, label: 'PUBLIC KEY' };
  }
  if (type === 'pkcs1' && key._kind === 'RSA') {
    return { bytes: buffer(native.keyMaterial(key._bytes)), label: 'RSA PRIVATE KEY' };
  }
  if (type === 'sec1' && key._kind in CURVES) return { bytes: sec1(key), label: 'EC PRIVATE KEY' };
  if (type !== 'pkcs8') throw wrongValue('options.type', type);
  return { bytes: key._bytes, label: 'PRIVATE KEY' };
}

function sec1(key) {
  const scalar = buffer(native.keyMaterial(key._bytes));
  const point = buffer(native.point(key._kind, scalar, false));
  // The identifier of the curve is the last part of the algorithm of the public key.
  const spki = buffer(native.publicKey(key._bytes));
  const algorithm = spki.subarray(spki[1] & 0x80 ? 3 : 2);
  const curve = algorithm.subarray(2 + 9, 2 + algorithm[1]);
  return der(
    0x30,
    der(0x02, Bytes.from([1])),
    der(0x04, scalar),
    der(0xa0, curve),
    der(0xa1, der(0x03, Bytes.from([0]), point)),
  );
}

function toJwk(key) {
  const secret = key.type === 'private';
  if (key._kind === 'RSA') {
    const numbers = native.rsaNumbers(key._bytes).map((number) => base64url(buffer(number)));
    const names = secret ? RSA_PARTS : RSA_PARTS.slice(0, 2);
    return { kty: 'RSA', ...Object.fromEntries(names.map((name, at) => [name, numbers[at]])) };
  }
  const point = buffer(native.keyMaterial(secret ? native.publicKey(key._bytes) : key._bytes));
  const own = secret ? { d: base64url(buffer(native.keyMaterial(key._bytes))) } : {};
  if (OKP.includes(key._kind)) return { crv: key._kind, ...own, x: base64url(point), kty: 'OKP' };
  const { size } = CURVES[key._kind];
  const whole = buffer(native.convertPoint(key._kind, point, false));
  return {
    kty: 'EC',
    x: base64url(whole.subarray(1, 1 + size)),
    y: base64url(whole.subarray(1 + size)),
    crv: key._kind,
    ...own,
  };
}

export function createSecretKey(key, encoding) {
  return new KeyObject('secret', typeof key === 'string' ? Bytes.from(key, encoding) : Bytes.from(key));
}

function bytesOf(given) {
  if (given instanceof KeyObject) return { object: given };
  // A CryptoKey.
  if (given?._object instanceof KeyObject) return { object: given._object };
  const {
    key = given,
    format,
    encoding,
  } = given !== null && typeof given === 'object' && !ArrayBuffer.isView(given) ? given : {};
  if (key instanceof KeyObject) return { object: key };
  if (key?._object instanceof KeyObject) return { object: key._object };
  if (format === 'jwk') return { jwk: key };
  if (format === 'der')
    return { bytes: typeof key === 'string' ? Bytes.from(key, encoding) : Bytes.from(key) };
  if (key instanceof ArrayBuffer) return fromPem(Bytes.from(key).toString());
  if (typeof key === 'string' || ArrayBuffer.isView(key)) {
    return fromPem(typeof key === 'string' ? key : Bytes.from(key).toString());
  }
  throw wrongType('key', 'of type string or an instance of Buffer or KeyObject', key);
}

const wrongObject = (object, expected) =>
  coded(
    TypeError,
    'ERR_CRYPTO_INVALID_KEY_OBJECT_TYPE',
    `Invalid key object type ${object.type}, expected ${expected}.`,
  );

export function createPrivateKey(given) {
  const { object, jwk, bytes } = bytesOf(given);
  if (object && object.type !== 'private') throw wrongObject(object, 'private');
  if (object) return object;
  return new KeyObject('private', jwk ? privateFromJwk(jwk) : read(native.privateKey, bytes));
}

export function createPublicKey(given) {
  const { object, jwk, bytes } = bytesOf(given);
  if (object?.type === 'secret') throw wrongObject(object, 'private');
  if (object?.type === 'public') return object;
  return new KeyObject('public', jwk ? publicFromJwk(jwk) : read(native.publicKey, object?._bytes ?? bytes));
}

/** The bytes of a secret, however it was given. */
export function secretOf(key, encoding) {
  if (key instanceof KeyObject) return key._bytes;
  if (key?._object instanceof KeyObject) return key._object._bytes;
  if (typeof key === 'string') return Bytes.from(key, encoding ?? 'utf8');
  if (ArrayBuffer.isView(key) || key instanceof ArrayBuffer) return key;
  throw wrongType(
    'key',
    'of type string or an instance of ArrayBuffer, Buffer, TypedArray, DataView, or KeyObject',
    key,
  );
}
