// Diffie-Hellman with numbers: groups that are named, given or made.

import native from 'native/crypto';
import { Bytes } from 'internal/buffer';
import { bytesOf, encoded } from 'internal/crypto-bytes';
import { coded, outOfRange, wrongType } from 'internal/errors';
import { invalidState } from 'internal/primes';

/** The bits of a group, and the number that is added to digits of pi (RFC 2409, RFC 3526). */
const GROUPS = {
  modp1: [768, 149686],
  modp2: [1024, 129093],
  modp5: [1536, 741804],
  modp14: [2048, 124476],
  modp15: [3072, 1690314],
  modp16: [4096, 240904],
  modp17: [6144, 929484],
  modp18: [8192, 4743158],
};

/** The first bits of pi as a whole number, by the formula of Machin. */
function pi(bits) {
  const one = 1n << BigInt(bits + 64);
  const arctangent = (inverse) => {
    const square = BigInt(inverse * inverse);
    let power = one / BigInt(inverse);
    let sum = power;
    for (let at = 3n, sign = -1n; power > 0n; at += 2n, sign = -sign) {
      power /= square;
      sum += (sign * power) / at;
    }
    return sum;
  };
  return (4n * (4n * arctangent(5) - arctangent(239))) >> 64n;
}

const known = new Map();

function primeOf(name) {
  const group = GROUPS[name];
  if (!group) throw coded(Error, 'ERR_CRYPTO_UNKNOWN_DH_GROUP', 'Unknown DH group');
  if (!known.has(name)) {
    const [bits, more] = group;
    const size = BigInt(bits);
    const prime = (1n << size) - (1n << (size - 64n)) - 1n + ((pi(bits - 130) + BigInt(more)) << 64n);
    known.set(name, Bytes.from(prime.toString(16), 'hex'));
  }
  return known.get(name);
}

const toNumber = (bytes) => (bytes.length === 0 ? 0n : BigInt(`0x${Bytes.from(bytes).toString('hex')}`));
const toBytes = (number) => {
  const digits = number.toString(16);
  return Bytes.from(digits.padStart(digits.length + (digits.length % 2), '0'), 'hex');
};
const trimmed = (bytes) => toBytes(toNumber(bytes));
const own = (bytes) => Bytes.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** What is wrong with a group, as the flags DH_CHECK_… say. */
function verify(prime, generator) {
  let error = 0;
  if (!native.isPrime(prime, false)) error |= 1;
  else if (!native.isPrime(prime, true)) error |= 2;
  const number = toNumber(generator);
  if (number <= 1n || number >= toNumber(prime) - 1n) error |= 8;
  if (prime.length * 8 < 512) error |= 128;
  return error;
}

class Group {
  #prime;
  #generator;
  #secret;
  #public;
  #error;

  constructor(prime, generator, error) {
    this.#prime = prime;
    this.#generator = generator;
    this.#error = error;
  }

  get verifyError() {
    this.#error ??= verify(this.#prime, this.#generator);
    return this.#error;
  }

  generateKeys(encoding) {
    if (!this.#secret) {
      const limit = toNumber(this.#prime) - 2n;
      // More bytes than the number has, so that each remainder is as likely.
      const random = toNumber(native.random(this.#prime.length + 16));
      this.#secret = toBytes(limit > 1n ? (random % (limit - 1n)) + 2n : 1n);
    }
    this.#public = trimmed(native.power(this.#generator, this.#secret, this.#prime));
    return encoded(this.#public, encoding);
  }

  computeSecret(other, inputEncoding, outputEncoding) {
    const key = bytesOf(other, inputEncoding, 'otherPublicKey');
    const number = toNumber(key);
    if (number <= 1n) throw coded(RangeError, 'ERR_CRYPTO_INVALID_KEYLEN', 'Supplied key is too small');
    if (number >= toNumber(this.#prime) - 1n)
      throw coded(RangeError, 'ERR_CRYPTO_INVALID_KEYLEN', 'Supplied key is too large');
    if (!this.#secret) throw invalidState('No private key - did you forget to generate one?');
    return encoded(own(native.power(toBytes(number), this.#secret, this.#prime)), outputEncoding);
  }

  getPrime(encoding) {
    return encoded(this.#prime, encoding);
  }

  getGenerator(encoding) {
    return encoded(this.#generator, encoding);
  }

  getPublicKey(encoding) {
    if (!this.#public) throw invalidState('No public key - did you forget to generate one?');
    return encoded(this.#public, encoding);
  }

  getPrivateKey(encoding) {
    if (!this.#secret) throw invalidState('No private key - did you forget to generate one?');
    return encoded(this.#secret, encoding);
  }

  _setPublic(bytes) {
    this.#public = bytes;
  }

  _setPrivate(bytes) {
    this.#secret = bytes;
  }
}

class Adjustable extends Group {
  setPublicKey(key, encoding) {
    this._setPublic(trimmed(bytesOf(key, encoding, 'key')));
    return this;
  }

  setPrivateKey(key, encoding) {
    this._setPrivate(trimmed(bytesOf(key, encoding, 'key')));
    return this;
  }
}

function generatorOf(given, encoding) {
  if (given === undefined || given === null) return Bytes.from([2]);
  if (typeof given === 'number') {
    if (!Number.isInteger(given) || given < 2) throw outOfRange('generator', '>= 2', given);
    return toBytes(BigInt(given));
  }
  return trimmed(bytesOf(given, encoding, 'generator'));
}

export function createDiffieHellman(first, ...rest) {
  if (typeof first === 'number') {
    if (!Number.isInteger(first) || first < 2) throw outOfRange('sizeOrKey', '>= 2', first);
    return new Adjustable(own(native.newPrime(first, true)), generatorOf(...rest), 0);
  }
  if (typeof first !== 'string' && !ArrayBuffer.isView(first) && !(first instanceof ArrayBuffer)) {
    throw wrongType(
      'sizeOrKey',
      'one of type number, string, ArrayBuffer, Buffer, TypedArray, or DataView',
      first,
    );
  }
  const encoding = typeof rest[0] === 'string' && rest[0] !== 'buffer' ? rest.shift() : undefined;
  if (rest[0] === 'buffer') rest.shift();
  return new Adjustable(trimmed(own(Bytes.from(bytesOf(first, encoding)))), generatorOf(...rest));
}

export const getDiffieHellman = (name) => new Group(primeOf(name), Bytes.from([2]), 0);

export function DiffieHellman(...given) {
  return createDiffieHellman(...given);
}
DiffieHellman.prototype = Adjustable.prototype;

export function DiffieHellmanGroup(name) {
  return getDiffieHellman(name);
}
DiffieHellmanGroup.prototype = Group.prototype;
