// Key agreement and encryption with key pairs.

import native from 'native/crypto';
import { Bytes } from 'internal/buffer';
import { bytesOf, encoded } from 'internal/crypto-bytes';
import { checkString, coded, wrongType, wrongValue } from 'internal/errors';
import { createPrivateKey, createPublicKey, curveNamed, KeyObject } from 'internal/keys';

const badCurve = () => coded(TypeError, 'ERR_CRYPTO_INVALID_CURVE', 'Invalid EC curve name');

function named(curve) {
  checkString(curve, 'curve');
  const name = curveNamed(curve);
  if (!name) throw badCurve();
  return name;
}

function isCompressed(format) {
  if (format === undefined || format === 'uncompressed') return false;
  if (format === 'compressed') return true;
  throw coded(TypeError, 'ERR_CRYPTO_ECDH_INVALID_FORMAT', `Invalid ECDH format: ${format}`);
}

function point(make) {
  try {
    return make();
  } catch {
    throw coded(Error, 'ERR_CRYPTO_ECDH_INVALID_PUBLIC_KEY', 'Public key is not valid for specified curve');
  }
}

export class ECDH {
  #curve;
  #secret;

  constructor(curve) {
    this.#curve = named(curve);
  }

  static convertKey(key, curve, inputEncoding, outputEncoding, format) {
    const name = named(curve);
    const bytes = bytesOf(key, inputEncoding, 'key');
    const compressed = isCompressed(format);
    return encoded(
      point(() => native.convertPoint(name, bytes, compressed)),
      outputEncoding,
    );
  }

  generateKeys(encoding, format) {
    this.#secret = native.keyMaterial(native.generate(this.#curve));
    return this.getPublicKey(encoding, format);
  }

  #own() {
    if (!this.#secret) throw coded(Error, 'ERR_CRYPTO_OPERATION_FAILED', 'Failed to get ECDH private key');
    return this.#secret;
  }

  computeSecret(other, inputEncoding, outputEncoding) {
    const bytes = bytesOf(other, inputEncoding, 'otherPublicKey');
    const secret = this.#own();
    return encoded(
      point(() => native.agreePlain(this.#curve, secret, bytes)),
      outputEncoding,
    );
  }

  getPublicKey(encoding, format) {
    return encoded(native.point(this.#curve, this.#own(), isCompressed(format)), encoding);
  }

  getPrivateKey(encoding) {
    return encoded(Bytes.from(this.#own()), encoding);
  }

  setPrivateKey(key, encoding) {
    const bytes = Bytes.from(bytesOf(key, encoding, 'privateKey'));
    try {
      native.point(this.#curve, bytes, false);
    } catch {
      throw coded(RangeError, 'ERR_CRYPTO_INVALID_KEYTYPE', 'Private key is not valid for specified curve.');
    }
    this.#secret = bytes;
  }
}

export const createECDH = (curve) => new ECDH(curve);

export function diffieHellman(options, callback) {
  const { privateKey, publicKey } = options ?? {};
  for (const [name, key] of Object.entries({ privateKey, publicKey })) {
    if (!(key instanceof KeyObject)) throw wrongValue(`options.${name}`, key);
  }
  const run = () => {
    if (privateKey._kind !== publicKey._kind || ['RSA', 'Ed25519'].includes(privateKey._kind)) {
      throw coded(
        Error,
        'ERR_CRYPTO_INCOMPATIBLE_KEY',
        `Incompatible key types for Diffie-Hellman: ${privateKey.asymmetricKeyType} and ${publicKey.asymmetricKeyType}`,
      );
    }
    return encoded(native.agree(privateKey._bytes, publicKey._bytes));
  };
  if (callback === undefined) return run();
  if (typeof callback !== 'function') throw wrongType('callback', 'of type function', callback);
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

const PKCS1 = 1;
const OAEP = 4;

/** The padding that a call asks for: its name, the digest and the label. */
function padded(key, fallback) {
  const {
    padding = fallback,
    oaepHash = 'sha1',
    oaepLabel,
  } = typeof key === 'object' && key !== null ? key : {};
  if (padding === PKCS1) return ['pkcs1', '', undefined];
  if (padding === OAEP) return ['oaep', oaepHash, oaepLabel === undefined ? undefined : bytesOf(oaepLabel)];
  throw coded(Error, 'ERR_OSSL_RSA_UNKNOWN_PADDING_TYPE', 'RSA without padding is not supported here');
}

function rsa(key) {
  if (key._kind === 'RSA') return key._bytes;
  throw coded(
    Error,
    'ERR_OSSL_EVP_OPERATION_NOT_SUPPORTED_FOR_THIS_KEYTYPE',
    'error:03000096:digital envelope routines::operation not supported for this keytype',
  );
}

/** Errors of RSA have the codes of OpenSSL's reasons. */
function ossl(run) {
  try {
    return encoded(run());
  } catch (error) {
    const reason = /^error:[^:]+:rsa routines::(.*)$/.exec(error.message)?.[1];
    if (reason) error.code = `ERR_OSSL_RSA_${reason.toUpperCase().replaceAll(' ', '_')}`;
    else if (error.message.startsWith('Invalid digest')) error.code = 'ERR_OSSL_EVP_INVALID_DIGEST';
    throw error;
  }
}

export function publicEncrypt(key, data) {
  const [padding, digest, label] = padded(key, OAEP);
  const bytes = rsa(createPublicKey(key));
  return ossl(() => native.rsaEncrypt(bytes, bytesOf(data, key?.encoding, 'buffer'), padding, digest, label));
}

export function privateDecrypt(key, data) {
  const [padding, digest, label] = padded(key, OAEP);
  const bytes = rsa(createPrivateKey(key));
  return ossl(() => native.rsaDecrypt(bytes, bytesOf(data, key?.encoding, 'buffer'), padding, digest, label));
}

export function privateEncrypt(key, data) {
  if (padded(key, PKCS1)[0] !== 'pkcs1') throw wrongValue('padding', key.padding);
  const bytes = rsa(createPrivateKey(key));
  return ossl(() => native.rsaEncryptPrivate(bytes, bytesOf(data, key?.encoding, 'buffer')));
}

export function publicDecrypt(key, data) {
  if (padded(key, PKCS1)[0] !== 'pkcs1') throw wrongValue('padding', key.padding);
  const bytes = rsa(createPublicKey(key));
  return ossl(() => native.rsaDecryptPublic(bytes, bytesOf(data, key?.encoding, 'buffer')));
}
