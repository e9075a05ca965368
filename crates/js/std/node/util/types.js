import * as kinds from 'internal/kinds';
import native from 'native/process';
const { toString } = Object.prototype;
const tag = (name) => (value) => toString.call(value) === `[object ${name}]`;
const instance = (Class) => (value) => value instanceof Class;
const typed = (name) => (value) => ArrayBuffer.isView(value) && value[Symbol.toStringTag] === name;

const AsyncFunction = (async () => {}).constructor;
const GeneratorFunction = function* () {}.constructor;
const AsyncGeneratorFunction = async function* () {}.constructor;

export const isAnyArrayBuffer = (value) => value instanceof ArrayBuffer || value instanceof SharedArrayBuffer;
export const isArrayBuffer = kinds.isArrayBuffer;
export const isArrayBufferView = (value) => ArrayBuffer.isView(value);
export const isArgumentsObject = tag('Arguments');
export const isAsyncFunction = (value) =>
  value instanceof AsyncFunction || value instanceof AsyncGeneratorFunction;
export const isBigInt64Array = typed('BigInt64Array');
export const isBigUint64Array = typed('BigUint64Array');
export const isBigIntObject = (value) => typeof value === 'object' && value instanceof BigInt;
export const isBooleanObject = (value) => typeof value === 'object' && value instanceof Boolean;
export const isBoxedPrimitive = (value) =>
  typeof value === 'object' &&
  [Number, String, Boolean, BigInt, Symbol].some((Boxed) => value instanceof Boxed);
export const isCryptoKey = (value) => value?.[Symbol.toStringTag] === 'CryptoKey';
export const isDataView = kinds.isDataView;
export const isDate = kinds.isDate;
/** No value of a library in C comes here. */
export const isExternal = () => false;
export const isFloat32Array = typed('Float32Array');
export const isFloat64Array = typed('Float64Array');
export const isGeneratorFunction = (value) =>
  value instanceof GeneratorFunction || value instanceof AsyncGeneratorFunction;
export const isGeneratorObject = tag('Generator');
export const isInt8Array = typed('Int8Array');
export const isInt16Array = typed('Int16Array');
export const isInt32Array = typed('Int32Array');
export const isKeyObject = (value) => value?.constructor?.name === 'KeyObject';
export const isMap = kinds.isMap;
export const isMapIterator = tag('Map Iterator');
export const isModuleNamespaceObject = tag('Module');
export const isNativeError = (value) => Error.isError(value);
export const isNumberObject = (value) => typeof value === 'object' && value instanceof Number;
export const isPromise = kinds.isPromise;
export const isProxy = (value) => native.isProxy(value);
export const isRegExp = kinds.isRegExp;
export const isSet = kinds.isSet;
export const isSetIterator = tag('Set Iterator');
export const isSharedArrayBuffer = kinds.isSharedArrayBuffer;
export const isStringObject = (value) => typeof value === 'object' && value instanceof String;
export const isSymbolObject = (value) => typeof value === 'object' && value instanceof Symbol;
export const isTypedArray = (value) => ArrayBuffer.isView(value) && !(value instanceof DataView);
export const isUint8Array = instance(Uint8Array);
export const isUint8ClampedArray = typed('Uint8ClampedArray');
export const isUint16Array = typed('Uint16Array');
export const isUint32Array = typed('Uint32Array');
export const isWeakMap = kinds.isWeakMap;
export const isWeakSet = kinds.isWeakSet;

export default {
  isAnyArrayBuffer,
  isArgumentsObject,
  isArrayBuffer,
  isArrayBufferView,
  isAsyncFunction,
  isBigInt64Array,
  isBigIntObject,
  isBigUint64Array,
  isBooleanObject,
  isBoxedPrimitive,
  isCryptoKey,
  isDataView,
  isDate,
  isExternal,
  isFloat32Array,
  isFloat64Array,
  isGeneratorFunction,
  isGeneratorObject,
  isInt16Array,
  isInt32Array,
  isInt8Array,
  isKeyObject,
  isMap,
  isMapIterator,
  isModuleNamespaceObject,
  isNativeError,
  isNumberObject,
  isPromise,
  isProxy,
  isRegExp,
  isSet,
  isSetIterator,
  isSharedArrayBuffer,
  isStringObject,
  isSymbolObject,
  isTypedArray,
  isUint16Array,
  isUint32Array,
  isUint8Array,
  isUint8ClampedArray,
  isWeakMap,
  isWeakSet,
};
