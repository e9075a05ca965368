// Values as JSON, also those that JSON does not know.
import { Buffer } from 'node:buffer';

const special = { undefined, NaN, Infinity, '-Infinity': -Infinity, '-0': -0 };
const typed = {
  ArrayBuffer,
  Float32Array,
  Float64Array,
  Int8Array,
  Int16Array,
  Int32Array,
  Uint8Array,
  Uint8ClampedArray,
  Uint16Array,
  Uint32Array,
};

const named = (value) => (Buffer.isBuffer(value) ? 'Buffer' : value?.constructor?.name);
const bytes = (value) =>
  ArrayBuffer.isView(value)
    ? Buffer.from(value.buffer, value.byteOffset, value.byteLength)
    : Buffer.from(value);

/** A value as JSON; undefined for what cannot be written. */
export function encode(value) {
  if (typeof value === 'bigint') return { $bigint: String(value) };
  if (typeof value === 'function' || typeof value === 'symbol') return undefined;
  for (const name in special) if (Object.is(special[name], value)) return { $: name };
  if (value === null || typeof value !== 'object') return value;
  const name = named(value);
  if (name === 'Buffer' || Object.hasOwn(typed, name)) return { [`$${name}`]: bytes(value).toString('hex') };
  if (Array.isArray(value)) return value.map(encode);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, encode(each)]));
}

export function decode(value) {
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map(decode);
  const [key] = Object.keys(value);
  if (key?.startsWith('$')) {
    const written = value[key];
    if (key === '$') return special[written];
    if (key === '$bigint') return BigInt(written);
    if (key === '$Buffer') return Buffer.from(written, 'hex');
    const { buffer } = Uint8Array.from(Buffer.from(written, 'hex'));
    return key === '$ArrayBuffer' ? buffer : new typed[key.slice(1)](buffer);
  }
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, decode(each)]));
}

/** Whether all of a value was written. */
export function complete(value) {
  if (value === undefined) return false;
  if (value === null || typeof value !== 'object') return true;
  return Object.values(value).every(complete);
}

export const described = (error) =>
  error instanceof Error ? [error.name, error.code ?? null, error.message] : [String(error)];
