// The methods of buffers for numbers: `readUInt16LE`, `writeDoubleBE` and their like.

import { outOfBounds, outOfRange, wrongType } from 'internal/errors';

export const methods = {};

const numbers = [
  ['Int8', 1, -(2 ** 7), 2 ** 7 - 1],
  ['Uint8', 1, 0, 2 ** 8 - 1],
  ['Int16', 2, -(2 ** 15), 2 ** 15 - 1],
  ['Uint16', 2, 0, 2 ** 16 - 1],
  ['Int32', 4, -(2 ** 31), 2 ** 31 - 1],
  ['Uint32', 4, 0, 2 ** 32 - 1],
  ['Float32', 4],
  ['Float64', 8],
  ['BigInt64', 8, -(2n ** 63n), 2n ** 63n - 1n],
  ['BigUint64', 8, 0n, 2n ** 64n - 1n],
];
const spelt = {
  Float32: ['Float'],
  Float64: ['Double'],
  Uint8: ['UInt8', 'Uint8'],
  Uint16: ['UInt16', 'Uint16'],
  Uint32: ['UInt32', 'Uint32'],
  BigUint64: ['BigUInt64', 'BigUint64'],
};

function place(buffer, offset, size) {
  if (typeof offset !== 'number') throw wrongType('offset', 'of type number', offset);
  if (Math.floor(offset) !== offset) throw outOfRange('offset', 'an integer', offset);
  if (offset < 0 || offset + size > buffer.length) {
    if (buffer.length < size) throw outOfBounds();
    throw outOfRange('offset', `>= 0 and <= ${buffer.length - size}`, offset);
  }
  return new DataView(buffer.buffer, buffer.byteOffset, buffer.byteLength);
}

for (const [type, size, least, most] of numbers) {
  for (const name of spelt[type] ?? [type]) {
    for (const [ending, little] of size === 1
      ? [['', true]]
      : [
          ['LE', true],
          ['BE', false],
        ]) {
      methods[`read${name}${ending}`] = function read(offset = 0) {
        return place(this, offset, size)[`get${type}`](offset, little);
      };
      methods[`write${name}${ending}`] = function write(value, offset = 0) {
        if (size < 8 || least === undefined) value = +value;
        else if (typeof value !== 'bigint')
          throw new TypeError('Cannot mix BigInt and other types, use explicit conversions');
        if (size === 1 && typeof offset !== 'number') throw wrongType('offset', 'of type number', offset);
        if (least !== undefined) checkValue(value, least, most, size);
        place(this, offset, size)[`set${type}`](offset, value, little);
        return offset + size;
      };
    }
  }
}

/** Whether a number fits into so many bytes. */
function checkValue(value, least, most, size) {
  if (!(value < least || value > most)) return;
  const n = typeof least === 'bigint' ? 'n' : '';
  const power = (bits) => `2${n} ** ${bits}${n}`;
  let range = `>= ${least} and <= ${most}`;
  if (size > 4) {
    range = least
      ? `>= -(${power(size * 8 - 1)}) and < ${power(size * 8 - 1)}`
      : `>= 0${n} and < ${power(size * 8)}`;
  }
  throw outOfRange('value', range, value);
}

/** Whether a number has as many bytes as there may be. */
function checkWidth(size) {
  if (typeof size !== 'number') throw wrongType('byteLength', 'of type number', size);
  if (Math.floor(size) !== size) throw outOfRange('byteLength', 'an integer', size);
  if (size < 1 || size > 6) throw outOfRange('byteLength', '>= 1 and <= 6', size);
}

for (const [ending, order] of [
  ['LE', 1],
  ['BE', -1],
]) {
  for (const [signed, names] of [
    [false, ['UInt', 'Uint']],
    [true, ['Int']],
  ]) {
    for (const name of names) {
      methods[`read${name}${ending}`] = function read(offset, size) {
        checkWidth(size);
        place(this, offset, size);
        let value = 0;
        for (let i = 0; i < size; i += 1) value = value * 256 + this[offset + (order > 0 ? size - 1 - i : i)];
        return signed && value >= 2 ** (size * 8 - 1) ? value - 2 ** (size * 8) : value;
      };
      methods[`write${name}${ending}`] = function write(value, offset, size) {
        checkWidth(size);
        value = +value;
        const half = 2 ** (size * 8 - 1);
        const [least, most] = signed ? [-half, half - 1] : [0, half * 2 - 1];
        checkValue(value, least, most, size);
        place(this, offset, size);
        let rest = value < 0 ? value + 2 ** (size * 8) : value;
        for (let i = 0; i < size; i += 1) {
          this[offset + (order > 0 ? i : size - 1 - i)] = rest % 256;
          rest = Math.floor(rest / 256);
        }
        return offset + size;
      };
    }
  }
}
