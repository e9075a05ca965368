// Bytes as `node:crypto` is given them and answers them.

import { Bytes } from 'internal/buffer';
import { wrongType } from 'internal/errors';

export function bytesOf(data, encoding, name = 'data') {
  if (typeof data === 'string') return Bytes.from(data, encoding === 'buffer' ? undefined : encoding);
  if (ArrayBuffer.isView(data) || data instanceof ArrayBuffer) return data;
  throw wrongType(name, 'of type string or an instance of Buffer, TypedArray, or DataView', data);
}

export function encoded(bytes, encoding) {
  const buffer = Bytes.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return encoding && encoding !== 'buffer' ? buffer.toString(encoding) : buffer;
}
