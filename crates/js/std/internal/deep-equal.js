// Whether two values hold the same: `util.isDeepStrictEqual`, `assert.deepEqual`.

const { is } = Object;
const { toString } = Object.prototype;
const { propertyIsEnumerable } = Object.prototype;

function keysOf(value, strict) {
  const keys = Object.keys(value);
  if (strict) {
    for (const key of Object.getOwnPropertySymbols(value))
      if (propertyIsEnumerable.call(value, key)) keys.push(key);
  }
  return keys;
}

function sameParts(a, b, strict, seen) {
  const keys = keysOf(a, strict);
  if (keys.length !== keysOf(b, strict).length) return false;
  return keys.every((key) => propertyIsEnumerable.call(b, key) && deepEqual(a[key], b[key], strict, seen));
}

function sameSet(a, b, strict, seen) {
  if (a.size !== b.size) return false;
  const left = [...b];
  return [...a].every((entry) => {
    if (b.has(entry)) return true;
    const at = left.findIndex(
      (other) => typeof other === 'object' && other !== null && deepEqual(entry, other, strict, seen),
    );
    if (at >= 0) left.splice(at, 1);
    return at >= 0;
  });
}

function sameMap(a, b, strict, seen) {
  if (a.size !== b.size) return false;
  return [...a].every(([key, value]) => {
    if (b.has(key)) return deepEqual(value, b.get(key), strict, seen);
    return [...b].some(
      ([other, its]) => deepEqual(key, other, strict, seen) && deepEqual(value, its, strict, seen),
    );
  });
}

export function deepEqual(a, b, strict, seen = []) {
  if (strict ? is(a, b) : a == b || (a !== a && b !== b)) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false;
  if (strict && Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  if (toString.call(a) !== toString.call(b)) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  if (seen.some(([left, right]) => left === a && right === b)) return true;
  seen = [...seen, [a, b]];
  if (Array.isArray(a)) return a.length === b.length && sameParts(a, b, strict, seen);
  if (a instanceof Date) return is(a.getTime(), b.getTime()) && sameParts(a, b, strict, seen);
  if (a instanceof RegExp) return String(a) === String(b) && a.lastIndex === b.lastIndex;
  if (a instanceof Error) {
    return (
      a.message === b.message &&
      a.name === b.name &&
      deepEqual(a.cause, b.cause, strict, seen) &&
      sameParts(a, b, strict, seen)
    );
  }
  if (ArrayBuffer.isView(a)) {
    if (a.byteLength !== b.byteLength) return false;
    const [left, right] = [a, b].map((view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
    return left.every((byte, at) => byte === right[at]);
  }
  if (a instanceof ArrayBuffer) return deepEqual(new Uint8Array(a), new Uint8Array(b), strict, seen);
  if (a instanceof Set) return sameSet(a, b, strict, seen) && sameParts(a, b, strict, seen);
  if (a instanceof Map) return sameMap(a, b, strict, seen) && sameParts(a, b, strict, seen);
  for (const Boxed of [Number, String, Boolean, BigInt, Symbol]) {
    if (a instanceof Boxed)
      return b instanceof Boxed && is(a.valueOf(), b.valueOf()) && sameParts(a, b, strict, seen);
  }
  return sameParts(a, b, strict, seen);
}
