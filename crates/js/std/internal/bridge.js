// What the engine itself calls. Read when an engine starts, so it stays small.

import { RpcError } from 'sdk/rpc-error';

const named = { TypeError, RangeError, SyntaxError, ReferenceError, URIError };
const { then } = Promise.prototype;

export function error(name, message) {
  const Class = named[name];
  if (Class) return new Class(message);
  const error = new Error(message);
  if (name !== 'Error') {
    Object.defineProperty(error, 'name', { value: name, configurable: true, writable: true });
  }
  return error;
}

export function rpcError(code, message, data) {
  return new RpcError(code, message, data);
}

/** Freezes a value that came from the host, at every depth. Bytes are a copy and stay writable. */
export function deepFreeze(value) {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return value;
  if (ArrayBuffer.isView(value) || Object.isFrozen(value)) return value;
  Object.freeze(value);
  for (const key of Reflect.ownKeys(value)) deepFreeze(value[key]);
  return value;
}

/** Calls back once `value` is settled; false where it is no promise. */
export function wait(value, resolved, rejected) {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return false;
  if (typeof value.then !== 'function') return false;
  then.call(value instanceof Promise ? value : Promise.resolve(value), resolved, rejected);
  return true;
}
