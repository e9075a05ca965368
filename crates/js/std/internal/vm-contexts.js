// Contexts of `node:vm`: scripts whose names are the properties of an object. They run in the plugin's own realm, so that
// nothing is separate but names: a context is no protection from its script, as Node says of its own.

import native from 'native/vm';
import { checkObject, wrongType } from 'internal/errors';

/** What every script has, unless its object has something else by that name. */
const BUILT_IN = new Set(
  (
    'AggregateError Array ArrayBuffer Atomics BigInt BigInt64Array BigUint64Array Boolean DataView Date Error EvalError ' +
    'FinalizationRegistry Float16Array Float32Array Float64Array Function Infinity Int16Array Int32Array Int8Array Intl ' +
    'Iterator JSON Map Math NaN Number Object Promise Proxy RangeError ReferenceError Reflect RegExp Set SharedArrayBuffer ' +
    'String Symbol SyntaxError TypeError URIError Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef ' +
    'WeakSet WebAssembly decodeURI decodeURIComponent encodeURI encodeURIComponent escape eval isFinite isNaN parseFloat ' +
    'parseInt undefined unescape'
  ).split(' '),
);
/** Names that scripts ask for with `typeof`, to find out where they run. */
const ASKED = new Set(
  'define document exports global importScripts module navigator process require self window'.split(' '),
);

const contexts = new WeakSet();

export function createContext(object = {}) {
  checkObject(object, 'contextObject');
  contexts.add(object);
  return object;
}

export function isContext(object) {
  checkObject(object, 'object');
  return contexts.has(object);
}

const lookUp = (object, name) =>
  name in object ? object[name] : BUILT_IN.has(name) ? globalThis[name] : undefined;

/** `globalThis` of a script. */
const globalOf = (object) =>
  new Proxy(object, {
    get: (target, name) => lookUp(target, name),
    has: (target, name) => name in target || BUILT_IN.has(name),
  });

/** The names of a script: those of its object, and what is built in. `declared` are functions of the script. */
function scopeOf(object, declared) {
  const whole = globalOf(object);
  return new Proxy(object, {
    has: (target, name) => typeof name === 'string' && !declared.includes(name) && !name.startsWith('vm$'),
    get(target, name) {
      if (name === Symbol.unscopables) return undefined;
      if (name === 'globalThis' && !(name in target)) return whole;
      if (name in target || BUILT_IN.has(name)) return lookUp(target, name);
      // A name that the plugin has and the script has not, as `process`, is undefined.
      if (ASKED.has(name) || name in globalThis) return undefined;
      throw new ReferenceError(`${name} is not defined`);
    },
    set: (target, name, value) => Reflect.set(target, name, value),
  });
}

const EVALUATE =
  '(function (vm$scope, vm$code, vm$names, vm$done) { with (vm$scope) { const vm$value = eval(vm$code); ' +
  'vm$done(vm$names.map((vm$name) => eval(vm$name))); return vm$value; } })';
let evaluate;

/** Runs a script whose names are the properties of a context. */
export function runInContext(code, object, name) {
  if (object === null || typeof object !== 'object' || !contexts.has(object))
    throw wrongType('contextifiedObject', 'an vm.Context', object);
  const declared = [...`${code}`.matchAll(/^[ \t]*(?:async[ \t]+)?function[ \t*]+([\w$]+)/gm)].map(
    ([, each]) => each,
  );
  evaluate ??= native.run(EVALUATE, 'node:vm');
  const text = name === undefined ? `${code}` : `${code}\n//# sourceURL=${name}`;
  return evaluate.call(object, scopeOf(object, declared), text, declared, (values) => {
    declared.forEach((each, at) => {
      object[each] = values[at];
    });
  });
}
