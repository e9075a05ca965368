import { Buffer } from 'node:buffer';
import { Random, attempt, wellFormed } from './lib.mjs';

const encodings = ['utf8', 'utf-8', 'UTF8', 'hex', 'base64', 'base64url', 'latin1', 'binary', 'ascii', 'ucs2', 'utf16le', 'ucs-2', undefined, 'nope', 'utf-7', null, ''];
const texts = ['', 'a', 'é', '€', '😀', '\ud800', 'ff', 'f', 'zz', 'aGk=', 'aGk', '-_', '+/', '====', 'ab cd', '\0', '0A1b'];
const numbers = [0, 1, -1, 127, 128, 255, 256, -129, 65535, 65536, 2 ** 31, 2 ** 32, 1.5, NaN, Infinity, '3', undefined];
const reads = ['readUInt8', 'readInt8', 'readUInt16LE', 'readUInt16BE', 'readInt32LE', 'readUInt32BE', 'readFloatLE', 'readDoubleBE', 'readBigInt64LE', 'readBigUInt64BE'];
const writes = ['writeUInt8', 'writeInt8', 'writeUInt16LE', 'writeInt16BE', 'writeUInt32LE', 'writeInt32BE', 'writeFloatBE', 'writeDoubleLE'];

export default (seed) => {
  const random = new Random(seed);
  const rows = [];
  for (let at = 0; at < 20; at += 1) {
    const text = random.text(texts, 5);
    const encoding = random.one(encodings);
    const push = (label, ...given) => {
      const run = given.pop();
      rows.push([label, [text, encoding ?? null, ...given.map(String)], attempt(run)]);
    };
    push('Buffer.from', () => Buffer.from(text, encoding));
    push('Buffer.byteLength', () => Buffer.byteLength(text, encoding));
    push('Buffer.isEncoding', () => Buffer.isEncoding(encoding));
    const buffer = Buffer.from(random.text(texts, 8), random.one(['utf8', 'latin1', 'utf16le']));
    // Node itself ends on some other needles.
    const needle = random.one(['a', 'é', 'ff', 'aG', '']);
    const [a, b] = [random.one(numbers), random.one(numbers)];
    push('Buffer.toString', a, b, () => buffer.toString(encoding, a, b));
    push('Buffer.slice', a, b, () => buffer.slice(a, b));
    push('Buffer.subarray', a, b, () => buffer.subarray(a, b));
    push('Buffer.indexOf', a, () => buffer.indexOf(needle, a, random.one([undefined, 'utf8', 'latin1'])));
    push('Buffer.lastIndexOf', a, () => buffer.lastIndexOf(needle, a, random.one([undefined, 'utf8', 'latin1'])));
    push('Buffer.includes', a, () => buffer.includes(needle, a, random.one([undefined, 'utf8', 'latin1'])));
    push('Buffer.fill', a, b, () => Buffer.alloc(9).fill(text, a, b, encoding));
    push('Buffer.write', a, b, () => {
      const into = Buffer.alloc(9);
      return [into.write(text, a, b, encoding), into];
    });
    push('Buffer.alloc', a, () => Buffer.alloc(a > 300 ? 3 : a, text, encoding));
    push('Buffer.compare', () => [buffer.compare(Buffer.from(text)), buffer.equals(Buffer.from(text))]);
    push('Buffer.copy', a, b, () => {
      const into = Buffer.alloc(9);
      return [buffer.copy(into, 1, a, b), into];
    });
    const read = random.one(reads);
    push(`Buffer.${read}`, a, () => buffer[read](a));
    const write = random.one(writes);
    push(`Buffer.${write}`, a, b, () => {
      const into = Buffer.alloc(9);
      return [into[write](a, b), into];
    });
    push('Buffer.concat', a, () => Buffer.concat([buffer, Buffer.from(text)], a > 300 ? 3 : a));
    push('Buffer.swap', () => Buffer.from(buffer).swap16());
    push('Buffer.toJSON', () => JSON.stringify(buffer));
    push('atob', () => atob(text));
    push('btoa', () => btoa(text));
    push('setEncoding', () => new TextDecoder(encoding === null ? undefined : encoding).decode(buffer));
  }
  return wellFormed(rows);
};
