import { URL } from 'internal/url';
import { Module, createRequire as requireOf } from 'internal/commonjs';
import native from 'native/modules';

export { Module };

export const builtinModules = native.builtinModules();

export function createRequire(from) {
  let path = from;
  if (from instanceof URL || (typeof from === 'string' && from.startsWith('file:'))) {
    path = decodeURIComponent(new URL(from).pathname);
  }
  if (typeof path !== 'string' || !path.startsWith('/')) {
    throw new TypeError(`createRequire needs a file URL or an absolute path, not ${String(from)}`);
  }
  return requireOf(path);
}

export function isBuiltin(name) {
  return builtinModules.includes(String(name).replace(/^node:/, ''));
}

export function findPackageJSON() {
  return undefined;
}

export function register() {
  throw new Error('module.register is not there: the engine plugins run on takes no loaders');
}

Object.assign(Module, { Module, createRequire, builtinModules, isBuiltin, findPackageJSON, register });

export default Module;
