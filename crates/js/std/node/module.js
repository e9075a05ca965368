import { URL } from 'internal/url';
import { Module, createRequire as requireOf } from 'internal/commonjs';
import { absent } from 'internal/absent';
import { wrongType, wrongValue } from 'internal/errors';
import { fileURLToPath } from 'node:url';
import loader from 'native/globals';
import native from 'native/modules';

export { Module };

export const builtinModules = native.builtinModules();

export function createRequire(from) {
  let path = from;
  if (from instanceof URL || (typeof from === 'string' && !from.startsWith('/'))) {
    try {
      path = fileURLToPath(from);
    } catch {
      path = undefined;
    }
  }
  if (typeof path !== 'string')
    throw wrongValue('filename', from, 'must be a file URL object, file URL string, or absolute path string');
  // A folder is where its files are looked up from.
  return requireOf(path.endsWith('/') ? `${path}noop.js` : path);
}

export function isBuiltin(name) {
  return builtinModules.includes(String(name).replace(/^node:/, ''));
}

export function findPackageJSON() {
  return undefined;
}

// The engine takes no loaders, and packages ask.
export const register = undefined;
export const registerHooks = undefined;
export const stripTypeScriptTypes = undefined;
// Maps are applied to stacks where these are shown.
export const findSourceMap = undefined;

// Nothing is stored between two starts.
export const constants = {
  compileCacheStatus: { FAILED: 0, ENABLED: 1, ALREADY_ENABLED: 2, DISABLED: 3 },
};
export const enableCompileCache = () => ({ status: constants.compileCacheStatus.DISABLED });
export const flushCompileCache = () => {};
export const getCompileCacheDir = () => undefined;
export const getSourceMapsSupport = () => {
  const enabled = loader.hasSourceMaps();
  return { enabled, nodeModules: enabled, generatedCode: false };
};
export function setSourceMapsSupport(enabled) {
  if (typeof enabled !== 'boolean') throw wrongType('enabled', 'of type boolean', enabled);
  loader.setSourceMaps(enabled);
}
export const syncBuiltinESMExports = () => {};
export const SourceMap = absent('module.SourceMap', 'use the package source-map');
export const runMain = absent('module.runMain', 'import the file instead');
export const globalPaths = [];

Object.assign(Module, {
  Module,
  SourceMap,
  builtinModules,
  constants,
  createRequire,
  enableCompileCache,
  findPackageJSON,
  findSourceMap,
  flushCompileCache,
  getCompileCacheDir,
  getSourceMapsSupport,
  globalPaths,
  isBuiltin,
  setSourceMapsSupport,
  syncBuiltinESMExports,
});

export default Module;
