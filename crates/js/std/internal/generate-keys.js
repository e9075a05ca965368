// New keys.

import native from 'native/crypto';
import { Bytes } from 'internal/buffer';
import { checkFunction, checkString, missing, outOfRange, wrongValue } from 'internal/errors';
import { CURVES, KeyObject, createPublicKey, createSecretKey, privateFromJwk } from 'internal/keys';

const NODE_NAMES = { 'P-256': 'prime256v1', 'P-384': 'secp384r1' };

export const getCurves = () => Object.values(NODE_NAMES);

/** A new private key. */
export function newPrivate(type, curve) {
  if (type === 'ed25519') {
    const d = Bytes.from(native.random(32)).toString('base64url');
    return new KeyObject('private', privateFromJwk({ kty: 'OKP', crv: 'Ed25519', d }));
  }
  const name = Object.keys(CURVES).find((name) => name === curve || NODE_NAMES[name] === curve);
  if (!name) throw missing(`The curve ${curve}`);
  return new KeyObject('private', Bytes.from(native.generateEc(name)));
}

function shown(key, encoding) {
  return encoding?.format ? key.export(encoding) : key;
}

export function generateKeyPairSync(type, options = {}) {
  checkString(type, 'type');
  if (type !== 'ed25519' && type !== 'ec') throw missing(`Generating key pairs of type '${type}'`);
  const privateKey = newPrivate(type, options.namedCurve);
  return {
    publicKey: shown(createPublicKey(privateKey), options.publicKeyEncoding),
    privateKey: shown(privateKey, options.privateKeyEncoding),
  };
}

export function generateKeyPair(type, options, callback) {
  if (typeof options === 'function') [options, callback] = [undefined, options];
  checkFunction(callback, 'callback');
  const { publicKey, privateKey } = generateKeyPairSync(type, options);
  queueMicrotask(() => callback(null, publicKey, privateKey));
}
Object.defineProperty(generateKeyPair, Symbol.for('nodejs.util.promisify.custom'), {
  value: async (type, options) => generateKeyPairSync(type, options),
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
