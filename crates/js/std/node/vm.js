// Scripts in the plugin's own realm.

import native from 'native/vm';
import { checkString } from 'internal/errors';
import { createContext, isContext, runInContext as run } from 'internal/vm-contexts';

const named = (options) =>
  typeof options === 'string' ? options : (options?.filename ?? 'evalmachine.<anonymous>');

export const measureMemory = undefined;
export { createContext, isContext };

export function runInContext(code, object, options) {
  return run(code, object, named(options));
}

export function runInNewContext(code, object, options) {
  return run(code, createContext(object ?? {}), named(options));
}

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
  runInContext(object) {
    return run(this.#code, object, this.#name);
  }
  runInNewContext(object) {
    return run(this.#code, createContext(object ?? {}), this.#name);
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
  runInContext,
  runInNewContext,
  runInThisContext,
};
