// Keys: from PEM, DER, JWK and plain bytes, as the native side signs with them.

import { Bytes } from 'internal/buffer';
import native from 'native/crypto';
import { coded, wrongType } from 'internal/errors';

const RSA = '300d06092a864886f70d0101010500';
export const CURVES = {
  'P-256': { id: '06082a8648ce3d030107', size: 32 },
  'P-384': { id: '06052b81040022', size: 48 },
};
const EC = '06072a8648ce3d0201';
const ED25519 = '300506032b6570';

function der(tag, ...parts) {
  const inside = Bytes.concat(parts);
  const length = inside.length;
  const head =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Bytes.concat([Bytes.from([tag, ...head]), inside]);
}

const sequence = (...parts) => der(0x30, ...parts);
const bits = (bytes) => der(0x03, Bytes.from([0]), bytes);
const octets = (bytes) => der(0x04, bytes);
const hex = (text) => Bytes.from(text, 'hex');

function integer(base64url) {
  let bytes = Bytes.from(base64url, 'base64url');
  while (bytes.length > 1 && bytes[0] === 0) bytes = bytes.subarray(1);
  return der(0x02, bytes[0] & 0x80 ? Bytes.concat([Bytes.from([0]), bytes]) : bytes);
}

const zero = der(0x02, Bytes.from([0]));

/** A public key in SPKI. */
export function publicFromJwk(jwk) {
  if (jwk.kty === 'RSA') return sequence(hex(RSA), bits(sequence(integer(jwk.n), integer(jwk.e))));
  if (jwk.kty === 'OKP' && jwk.crv === 'Ed25519')
    return sequence(hex(ED25519), bits(Bytes.from(jwk.x, 'base64url')));
  const curve = CURVES[jwk.crv];
  if (jwk.kty !== 'EC' || !curve) throw unsupported(jwk);
  const point = Bytes.concat([
    Bytes.from([4]),
    Bytes.from(jwk.x, 'base64url'),
    Bytes.from(jwk.y, 'base64url'),
  ]);
  return publicFromPoint(point, jwk.crv);
}

export function publicFromPoint(point, name) {
  if (name === 'Ed25519') return sequence(hex(ED25519), bits(point));
  return sequence(sequence(hex(EC), hex(CURVES[name].id)), bits(point));
}

/** A private key in PKCS#8. */
export function privateFromJwk(jwk) {
  if (jwk.kty === 'RSA') {
    const numbers = ['n', 'e', 'd', 'p', 'q', 'dp', 'dq', 'qi'].map((name) => integer(jwk[name]));
    return sequence(zero, hex(RSA), octets(sequence(zero, ...numbers)));
  }
  if (jwk.kty === 'OKP' && jwk.crv === 'Ed25519') {
    return sequence(zero, hex(ED25519), octets(octets(Bytes.from(jwk.d, 'base64url'))));
  }
  const curve = CURVES[jwk.crv];
  if (jwk.kty !== 'EC' || !curve) throw unsupported(jwk);
  const point = Bytes.concat([
    Bytes.from([4]),
    Bytes.from(jwk.x, 'base64url'),
    Bytes.from(jwk.y, 'base64url'),
  ]);
  const inner = sequence(
    der(0x02, Bytes.from([1])),
    octets(Bytes.from(jwk.d, 'base64url')),
    der(0xa1, bits(point)),
  );
  return sequence(zero, sequence(hex(EC), hex(curve.id)), octets(inner));
}

function unsupported(jwk) {
  return new DOMException(`Keys of ${jwk.kty} ${jwk.crv ?? ''} are not supported here`, 'NotSupportedError');
}

function fromPem(text) {
  const found = /-----BEGIN ([A-Z0-9 ]+)-----([\s\S]+?)-----END \1-----/.exec(text);
  if (!found) throw coded(Error, 'ERR_OSSL_UNSUPPORTED', 'This is no key in PEM');
  const [, label, body] = found;
  if (label.includes('ENCRYPTED') || body.includes('Proc-Type')) {
    throw coded(Error, 'ERR_OSSL_UNSUPPORTED', 'Encrypted private keys are not supported here');
  }
  return { label, bytes: Bytes.from(body.replace(/[^A-Za-z0-9+/=]/g, ''), 'base64') };
}

/** A key as `createSign` and its like are given it: PEM, `{ key, format, type }`, or a key object. */
export class KeyObject {
  constructor(type, bytes) {
    this.type = type;
    Object.defineProperty(this, '_bytes', { value: bytes });
  }

  get symmetricKeySize() {
    return this.type === 'secret' ? this._bytes.length : undefined;
  }

  get asymmetricKeyType() {
    if (this.type === 'secret') return undefined;
    const head = this._bytes.subarray(0, 64).toString('hex');
    return head.includes('06032b6570') ? 'ed25519' : head.includes(EC) ? 'ec' : 'rsa';
  }

  get asymmetricKeyDetails() {
    if (this.asymmetricKeyType !== 'ec') return this.type === 'secret' ? undefined : {};
    return { namedCurve: curveOf(this._bytes) === 'P-256' ? 'prime256v1' : 'secp384r1' };
  }

  export(options = {}) {
    if (this.type !== 'secret' && options.format === 'jwk') return toJwk(this);
    if (this.type === 'secret')
      return options.format === 'jwk'
        ? { kty: 'oct', k: this._bytes.toString('base64url') }
        : Bytes.from(this._bytes);
    if (options.format === 'der') return Bytes.from(this._bytes);
    const label = this.type === 'private' ? 'PRIVATE KEY' : 'PUBLIC KEY';
    return `-----BEGIN ${label}-----\n${this._bytes.toString('base64').replace(/(.{64})(?=.)/g, '$1\n')}\n-----END ${label}-----\n`;
  }

  equals(other) {
    return other instanceof KeyObject && other.type === this.type && this._bytes.equals(other._bytes);
  }

  static from(key) {
    return key._object;
  }
}

const curveOf = (bytes) =>
  Object.keys(CURVES).find((name) => bytes.subarray(0, 64).includes(hex(CURVES[name].id)));

/** What stands behind the first such head, which says that it is as long as this. */
function inside(bytes, tag, length) {
  const at = bytes.indexOf(Bytes.from([...hex(tag), length]));
  return bytes.subarray(at + tag.length / 2 + 1, at + tag.length / 2 + 1 + length);
}

function toJwk(key) {
  const url = (bytes) => bytes.toString('base64url');
  const publicBytes = key.type === 'public' ? key._bytes : createPublicKey(key)._bytes;
  const secret = key.type === 'private';
  if (key.asymmetricKeyType === 'ed25519') {
    const x = url(publicBytes.subarray(-32));
    // The seed comes first after `OCTET STRING { OCTET STRING`.
    return secret
      ? { crv: 'Ed25519', d: url(inside(key._bytes, '042204', 32)), x, kty: 'OKP' }
      : { crv: 'Ed25519', x, kty: 'OKP' };
  }
  if (key.asymmetricKeyType !== 'ec') throw unsupported({ kty: 'RSA', crv: 'as JWK' });
  const crv = curveOf(key._bytes);
  const { size } = CURVES[crv];
  const point = publicBytes.subarray(-2 * size);
  const known = { kty: 'EC', x: url(point.subarray(0, size)), y: url(point.subarray(size)), crv };
  // `INTEGER 1, OCTET STRING`.
  return secret ? { ...known, d: url(inside(key._bytes, '02010104', size)) } : known;
}

export function createSecretKey(key, encoding) {
  return new KeyObject('secret', typeof key === 'string' ? Bytes.from(key, encoding) : Bytes.from(key));
}

function bytesOf(given) {
  if (given instanceof KeyObject) return { object: given };
  const {
    key = given,
    format,
    type,
  } = given !== null && typeof given === 'object' && !ArrayBuffer.isView(given) ? given : {};
  if (key instanceof KeyObject) return { object: key };
  if (format === 'jwk') return { jwk: key };
  if (format === 'der') return { bytes: Bytes.from(key), label: type };
  if (typeof key === 'string' || ArrayBuffer.isView(key))
    return fromPem(typeof key === 'string' ? key : Bytes.from(key).toString());
  throw wrongType('key', 'of type string or an instance of Buffer or KeyObject', key);
}

export function createPrivateKey(given) {
  const { object, jwk, bytes } = bytesOf(given);
  if (object) return object;
  return new KeyObject('private', jwk ? privateFromJwk(jwk) : bytes);
}

export function createPublicKey(given) {
  const { object, jwk, bytes, label } = bytesOf(given);
  if (object?.type === 'public') return object;
  if (object || /PRIVATE/.test(label ?? ''))
    return new KeyObject('public', Bytes.from(native.publicKey(object?._bytes ?? bytes).buffer));
  return new KeyObject('public', jwk ? publicFromJwk(jwk) : bytes);
}

/** The bytes of a secret, however it was given. */
export function secretOf(key, encoding) {
  if (key instanceof KeyObject) return key._bytes;
  if (typeof key === 'string') return Bytes.from(key, encoding ?? 'utf8');
  if (ArrayBuffer.isView(key) || key instanceof ArrayBuffer) return key;
  throw wrongType(
    'key',
    'of type string or an instance of ArrayBuffer, Buffer, TypedArray, DataView, or KeyObject',
    key,
  );
}
