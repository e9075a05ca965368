// Chance, for `crypto` and `node:crypto`.

import native from 'native/crypto';

const INTEGERS = [
  'Int8Array',
  'Uint8Array',
  'Uint8ClampedArray',
  'Int16Array',
  'Uint16Array',
  'Int32Array',
  'Uint32Array',
  'BigInt64Array',
  'BigUint64Array',
];

export function getRandomValues(view) {
  if (!ArrayBuffer.isView(view) || !INTEGERS.includes(view[Symbol.toStringTag])) {
    throw new DOMException('The data argument must be an integer-type TypedArray', 'TypeMismatchError');
  }
  if (view.byteLength > 65536) {
    throw new DOMException('The requested length exceeds 65,536 bytes', 'QuotaExceededError');
  }
  new Uint8Array(view.buffer, view.byteOffset, view.byteLength).set(native.random(view.byteLength));
  return view;
}

export function randomUUID() {
  const bytes = native.random(16);
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
