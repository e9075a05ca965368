// What a value is by its making, whatever its prototype is today.

import native from 'native/process';

const own = (prototype, name) => Object.getOwnPropertyDescriptor(prototype, name);
const { call } = Function.prototype;
const uncurried = (run) => call.bind(run);
const getter = (prototype, name) => uncurried(own(prototype, name).get);
const { isPrototypeOf } = Object.prototype;

/**
 * Whether `run` takes a value. What inherits from `Object` as usual, but not from the class, is not asked: that would make
 * an error of each of these questions.
 */
const passes = (Class, run) => (value) => {
  if (value === null || typeof value !== 'object') return false;
  if (isPrototypeOf.call(Object.prototype, value) && !isPrototypeOf.call(Class.prototype, value))
    return false;
  try {
    run(value);
    return true;
  } catch {
    return false;
  }
};

export const mapSize = getter(Map.prototype, 'size');
export const setSize = getter(Set.prototype, 'size');
export const mapEntries = uncurried(Map.prototype.entries);
export const setValues = uncurried(Set.prototype.values);
export const dateTime = uncurried(Date.prototype.getTime);
export const dateText = uncurried(Date.prototype.toISOString);
const flags = getter(RegExp.prototype, 'dotAll');
const source = getter(RegExp.prototype, 'source');
const flagsOfRegExp = Object.entries({
  d: 'hasIndices',
  g: 'global',
  i: 'ignoreCase',
  m: 'multiline',
  s: 'dotAll',
  u: 'unicode',
  v: 'unicodeSets',
  y: 'sticky',
}).map(([flag, name]) => [flag, getter(RegExp.prototype, name)]);
export const regExpText = (value) =>
  `/${source(value)}/${flagsOfRegExp.map(([flag, has]) => (has(value) ? flag : '')).join('')}`;
const typedTag = getter(Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag);
export const typedLength = getter(Object.getPrototypeOf(Uint8Array.prototype), 'length');

export const isMap = passes(Map, mapSize);
export const isSet = passes(Set, setSize);
export const isDate = passes(Date, dateTime);
const isMadeRegExp = passes(RegExp, flags);
export const isRegExp = (value) => value !== RegExp.prototype && isMadeRegExp(value);
export const isArrayBuffer = passes(ArrayBuffer, getter(ArrayBuffer.prototype, 'byteLength'));
export const isSharedArrayBuffer = passes(
  SharedArrayBuffer,
  getter(SharedArrayBuffer.prototype, 'byteLength'),
);
export const isDataView = (value) => ArrayBuffer.isView(value) && typedTag(value) === undefined;
/** The class of a list of numbers; undefined of anything else. */
export const typedName = (value) => (ArrayBuffer.isView(value) ? typedTag(value) : undefined);
const [weakMapHas, weakSetHas] = [WeakMap, WeakSet].map((Class) => uncurried(Class.prototype.has));
export const isWeakMap = passes(WeakMap, (value) => weakMapHas(value, {}));
export const isWeakSet = passes(WeakSet, (value) => weakSetHas(value, {}));
export const isPromise = passes(Promise, native.settled);

const boxes = ['Number', 'String', 'Boolean', 'BigInt', 'Symbol'].map((name) => {
  const of = uncurried(globalThis[name].prototype.valueOf);
  return [name, { of, passes: passes(globalThis[name], of) }, globalThis[name].prototype];
});
/** The class and the value of a boxed primitive; undefined of anything else. */
export function boxed(value) {
  for (const [name, read, prototype] of boxes)
    if (value !== prototype && read.passes(value)) return [name, read.of(value)];
  return undefined;
}

const AsyncFunction = (async () => {}).constructor;
const AsyncGeneratorFunction = async function* () {}.constructor;
/** `Function`, `AsyncFunction`, `GeneratorFunction` or `AsyncGeneratorFunction`. */
export function functionKind(value, source) {
  const above = Object.getPrototypeOf(value);
  const mayBeAsync = above !== Function.prototype;
  const isAsync =
    above === AsyncGeneratorFunction.prototype ||
    (mayBeAsync && /^async\b/.test(source)) ||
    (above === AsyncFunction.prototype && !/^function\s*\*/.test(source));
  const isGenerator = /^(?:async\s+)?(?:function\s*)?\*/.test(source);
  return `${isAsync ? 'Async' : ''}${isGenerator ? 'Generator' : ''}Function`;
}

/** The target and the handler of a proxy, `[null, null]` of a revoked one; undefined of anything else. */
export const proxied = (value) => (native.isProxy(value) ? native.proxied(value) : undefined);
