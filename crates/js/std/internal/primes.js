// Primes of `node:crypto`.

import native from 'native/crypto';
import { Bytes } from 'internal/buffer';
import { checkFunction, coded, missing, outOfRange, wrongType } from 'internal/errors';

/** Bytes of a number that is given as a bigint or as bytes. */
function numberOf(value, name) {
  if (typeof value === 'bigint') {
    if (value < 0n) throw outOfRange(name, '>= 0', value);
    const digits = value.toString(16);
    return Bytes.from(digits.padStart(digits.length + (digits.length % 2), '0'), 'hex');
  }
  if (ArrayBuffer.isView(value)) return Bytes.from(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer) return Bytes.from(value);
  throw wrongType(
    name,
    'of type bigint or an instance of ArrayBuffer, TypedArray, Buffer, or DataView',
    value,
  );
}

/** Answers, or calls back with the answer of a promise. */
function hand(promise, convert, callback) {
  promise.then(
    (answer) => callback(null, convert(answer)),
    (error) => callback(error),
  );
}

export function checkPrimeSync(candidate) {
  return native.isPrime(numberOf(candidate, 'candidate'), false);
}

export function checkPrime(candidate, options, callback) {
  if (typeof options === 'function') callback = options;
  checkFunction(callback, 'callback');
  hand(native.isPrimeLater(numberOf(candidate, 'candidate'), false), Boolean, callback);
}

function checked(bits, options) {
  if (typeof bits !== 'number') throw wrongType('size', 'of type number', bits);
  if (!Number.isInteger(bits) || bits < 1 || bits > 2 ** 31 - 1)
    throw outOfRange('size', '>= 1 && <= 2147483647', bits);
  if (options?.add !== undefined || options?.rem !== undefined)
    throw missing('the options add and rem of crypto.generatePrime', 'check primes with crypto.checkPrime');
  const { safe = false, bigint = false } = options ?? {};
  const convert = (bytes) => {
    const own = Bytes.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return bigint
      ? BigInt(`0x${own.toString('hex')}`)
      : own.buffer.slice(own.byteOffset, own.byteOffset + own.length);
  };
  return [bits, safe, convert];
}

export function generatePrimeSync(size, options) {
  const [bits, safe, convert] = checked(size, options);
  return convert(native.newPrime(bits, safe));
}

export function generatePrime(size, options, callback) {
  if (typeof options === 'function') [options, callback] = [undefined, options];
  checkFunction(callback, 'callback');
  const [bits, safe, convert] = checked(size, options);
  hand(native.newPrimeLater(bits, safe), convert, callback);
}

export const invalidState = (message) => coded(Error, 'ERR_CRYPTO_INVALID_STATE', message);
