// New keys.

import native from 'native/crypto';
import { Bytes } from 'internal/buffer';
import {
  checkFunction,
  checkString,
  coded,
  missing,
  outOfRange,
  wrongType,
  wrongValue,
} from 'internal/errors';
import { CURVES, KeyObject, createPublicKey, createSecretKey, curveNamed } from 'internal/keys';

export const getCurves = () =>
  Object.values(CURVES)
    .map(({ node }) => node)
    .toSorted();

const OKP = { ed25519: 'Ed25519', x25519: 'X25519' };

/** A new private key of a curve. */
export function newPrivate(type, curve) {
  const name = OKP[type] ?? curveNamed(curve);
  if (!name) throw coded(TypeError, 'ERR_CRYPTO_INVALID_CURVE', 'Invalid EC curve name');
  return new KeyObject('private', Bytes.from(native.generate(name).buffer));
}

function rsaOptions({ modulusLength, publicExponent = 65537 }) {
  if (typeof modulusLength !== 'number')
    throw wrongType('options.modulusLength', 'of type number', modulusLength);
  if (!(Number.isInteger(modulusLength) && modulusLength >= 512 && modulusLength <= 8192)) {
    throw outOfRange('options.modulusLength', '>= 512 && <= 8192', modulusLength);
  }
  if (!(Number.isInteger(publicExponent) && publicExponent >= 3 && publicExponent < 2 ** 32)) {
    throw outOfRange('options.publicExponent', '>= 3 && < 2 ** 32', publicExponent);
  }
  return [modulusLength, publicExponent];
}

export async function newRsa(options) {
  return new KeyObject('private', Bytes.from((await native.generateRsaLater(...rsaOptions(options))).buffer));
}

function check(type) {
  checkString(type, 'type');
  if (['rsa', 'ec', 'ed25519', 'x25519'].includes(type)) return;
  if (['rsa-pss', 'dsa', 'dh', 'ed448', 'x448'].includes(type)) {
    throw missing(`Generating key pairs of type '${type}'`, 'use rsa, ec, ed25519 or x25519');
  }
  throw wrongValue('type', type, 'must be a supported key type');
}

function shown(key, encoding) {
  if (encoding === undefined) return key;
  return key.export(encoding);
}

const pair = (privateKey, { publicKeyEncoding, privateKeyEncoding }) => ({
  publicKey: shown(createPublicKey(privateKey), publicKeyEncoding),
  privateKey: shown(privateKey, privateKeyEncoding),
});

export function generateKeyPairSync(type, options = {}) {
  check(type);
  const made =
    type === 'rsa'
      ? new KeyObject('private', Bytes.from(native.generateRsa(...rsaOptions(options)).buffer))
      : newPrivate(type, options.namedCurve);
  return pair(made, options);
}

function later(type, options = {}) {
  check(type);
  if (type === 'rsa') {
    rsaOptions(options);
    return newRsa(options).then((made) => pair(made, options));
  }
  return Promise.resolve(pair(newPrivate(type, options.namedCurve), options));
}

export function generateKeyPair(type, options, callback) {
  if (typeof options === 'function') [options, callback] = [undefined, options];
  checkFunction(callback, 'callback');
  later(type, options).then(
    ({ publicKey, privateKey }) => process.nextTick(callback, null, publicKey, privateKey),
    (error) => process.nextTick(callback, error),
  );
}
Object.defineProperty(generateKeyPair, Symbol.for('nodejs.util.promisify.custom'), {
  value: async (type, options) => later(type, options),
});

export function generateKeySync(type, { length } = {}) {
  if (type === 'aes') {
    if (![128, 192, 256].includes(length))
      throw wrongValue('options.length', length, 'must be one of: 128, 192, 256');
  } else if (type !== 'hmac') {
    throw wrongValue('type', type, 'must be a supported key type');
  } else if (!(length >= 8 && length <= 2 ** 31 - 1)) {
    throw outOfRange('options.length', '>= 8 && <= 2147483647', length);
  }
  return createSecretKey(native.random(Math.floor(length / 8)));
}

export function generateKey(type, options, callback) {
  checkFunction(callback, 'callback');
  const key = generateKeySync(type, options);
  queueMicrotask(() => callback(null, key));
}
