// `structuredClone`.

import { coded } from 'internal/errors';

function refuse(value) {
  const shown = typeof value === 'object' ? `#<${value.constructor?.name ?? 'Object'}>` : String(value);
  return new DOMException(`${shown} could not be cloned.`, 'DataCloneError');
}

const errors = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

function copy(value, seen) {
  if (typeof value === 'function' || typeof value === 'symbol') throw refuse(value);
  if (typeof value !== 'object' || value === null) return value;
  if (seen.has(value)) return seen.get(value);
  const keep = (made) => {
    seen.set(value, made);
    return made;
  };
  for (const Boxed of [Boolean, Number, String, BigInt])
    if (value instanceof Boxed) return keep(Object(value.valueOf()));
  if (value instanceof Date) return keep(new Date(value.getTime()));
  if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
  if (value instanceof ArrayBuffer) return keep(value.slice(0));
  if (ArrayBuffer.isView(value)) {
    const { byteOffset, byteLength, length } = value;
    const buffer = copy(value.buffer, seen);
    if (value instanceof DataView) return keep(new DataView(buffer, byteOffset, byteLength));
    const Typed = globalThis[value[Symbol.toStringTag]];
    return keep(new Typed(buffer, byteOffset, length));
  }
  if (value instanceof Map) {
    const map = keep(new Map());
    for (const [key, entry] of [...value]) map.set(copy(key, seen), copy(entry, seen));
    return map;
  }
  if (value instanceof Set) {
    const set = keep(new Set());
    for (const entry of [...value]) set.add(copy(entry, seen));
    return set;
  }
  if (Error.isError(value)) {
    const Class = errors[value.name] ?? Error;
    const made = keep(new Class(value.message));
    for (const name of ['stack', 'cause']) {
      if (Object.hasOwn(value, name)) {
        Object.defineProperty(made, name, {
          value: copy(value[name], seen),
          configurable: true,
          writable: true,
          enumerable: false,
        });
      }
    }
    return made;
  }
  if (value instanceof Blob) return keep(value);
  const tag = Object.prototype.toString.call(value);
  if (
    [
      '[object Promise]',
      '[object WeakMap]',
      '[object WeakSet]',
      '[object WeakRef]',
      '[object Generator]',
    ].includes(tag)
  )
    throw refuse(value);
  // An array without entries, so that its holes stay holes.
  // oxlint-disable-next-line unicorn/no-new-array
  const made = keep(Array.isArray(value) ? new Array(value.length) : {});
  for (const key of Object.keys(value))
    Object.defineProperty(made, key, {
      value: copy(value[key], seen),
      configurable: true,
      enumerable: true,
      writable: true,
    });
  return made;
}

export function structuredClone(value, options) {
  if (arguments.length === 0)
    throw coded(TypeError, 'ERR_MISSING_ARGS', 'The "value" argument must be specified');
  const moved = new Set(options?.transfer ?? []);
  for (const each of moved) if (!(each instanceof ArrayBuffer)) throw refuse(each);
  const clone = copy(value, new Map());
  for (const buffer of moved) if (!buffer.detached) buffer.transfer();
  return clone;
}
