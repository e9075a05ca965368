// Scripts in the plugin's own context. Separate contexts do not exist.

import native from 'native/vm';
import { absent } from 'internal/absent';
import { checkString } from 'internal/errors';

const instead = 'use vm.runInThisContext, or run code that must be separate with node:child_process';
const named = (options) =>
  typeof options === 'string' ? options : (options?.filename ?? 'evalmachine.<anonymous>');

export const createContext = absent('vm.createContext', instead);
export const runInContext = absent('vm.runInContext', instead);
export const runInNewContext = absent('vm.runInNewContext', instead);
export const measureMemory = absent('vm.measureMemory', 'use process.memoryUsage');
export const isContext = () => false;

export function runInThisContext(code, options) {
  checkString(code, 'code');
  return native.run(code, named(options));
}

export class Script {
  #code;
  #name;

  constructor(code, options) {
    this.#code = `${code}`;
    this.#name = named(options);
    native.check(this.#code, this.#name);
  }

  runInThisContext() {
    return native.run(this.#code, this.#name);
  }
  runInContext() {
    return runInContext();
  }
  runInNewContext() {
    return runInNewContext();
  }
  createCachedData() {
    return Buffer.alloc(0);
  }
}

export function compileFunction(code, parameters = [], options = {}) {
  checkString(code, 'code');
  return native.run(`(function (${parameters.join(',')}) {${code}\n})`, named(options));
}

export const constants = {
  USE_MAIN_CONTEXT_DEFAULT_LOADER: Symbol('vm_dynamic_import_main_context_default'),
  DONT_CONTEXTIFY: Symbol('vm_context_no_contextify'),
};

export default {
  Script,
  compileFunction,
  constants,
  createContext,
  isContext,
  measureMemory,
  runInContext,
  runInNewContext,
  runInThisContext,
};
