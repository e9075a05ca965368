// CommonJS: `require`, `module.exports`, and the cache between them.

import native from 'native/commonjs';

const cache = Object.create(null);

export class Module {
  constructor(id, parent) {
    this.id = id;
    this.filename = id;
    this.path = folder(id);
    this.exports = {};
    this.parent = parent;
    this.children = [];
    this.loaded = false;
    this.paths = [];
  }

  require(specifier) {
    return requireFrom(specifier, this.filename, this);
  }

  /** Runs text as this module. */
  _compile(source, path) {
    const run = native.compile(source, path);
    return run.call(this.exports, this.exports, createRequire(path, this), this, path, folder(path));
  }
}

Module._cache = cache;
Module._load = (specifier, parent) => requireFrom(specifier, nameOf(parent), parent);
Module._resolveFilename = (specifier, parent, isMain, options) =>
  createRequire(nameOf(parent), parent).resolve(specifier, options);
Module._nodeModulePaths = (from) => {
  const parts = from.split('/').filter((part, at) => at === 0 || part !== '');
  return parts
    .map((part, at) => (part === 'node_modules' ? '' : `${parts.slice(0, at + 1).join('/')}/node_modules`))
    .filter((path) => path !== '')
    .toReversed();
};
Module.wrapper = ['(function (exports, require, module, __filename, __dirname) { ', '\n});'];
Module.wrap = (source) => Module.wrapper.join(source);
Module._extensions = { '.js': () => {}, '.json': () => {} };
Module.Module = Module;

/** The file of a module; without one, a file in the working folder. */
const nameOf = (parent) => parent?.filename ?? `${globalThis.process.cwd()}/[eval]`;

function folder(path) {
  const end = path.lastIndexOf('/');
  return end > 0 ? path.slice(0, end) : '/';
}

/** What a file exports, by its full path. */
export function load(path, parent) {
  const cached = cache[path];
  if (cached) {
    if (parent && !parent.children.includes(cached)) parent.children.push(cached);
    return cached.exports;
  }
  const [kind, source] = native.read(path);
  if (kind === 'module') return unwrap(native.module(path));
  const module = new Module(path, parent);
  cache[path] = module;
  parent?.children.push(module);
  try {
    if (kind === 'json') {
      module.exports = parse(source, path);
    } else {
      const run = native.compile(source, path);
      run.call(module.exports, module.exports, createRequire(path, module), module, path, module.path);
    }
  } catch (error) {
    delete cache[path];
    throw error;
  }
  module.loaded = true;
  return module.exports;
}

function parse(source, path) {
  try {
    return JSON.parse(source);
  } catch (error) {
    throw new SyntaxError(`${path} is not JSON: ${error.message}`);
  }
}

const marked = new WeakMap();

/** What `require` answers for an ES module. As in Node, one with a default export has `__esModule` for compiled imports. */
function unwrap(namespace) {
  if ('module.exports' in namespace) return namespace['module.exports'];
  if (!('default' in namespace) || '__esModule' in namespace) return namespace;
  let exports = marked.get(namespace);
  if (!exports) {
    exports = Object.create(null, {
      __esModule: { value: true, enumerable: true },
      [Symbol.toStringTag]: { value: 'Module' },
    });
    for (const name of Object.keys(namespace)) {
      Object.defineProperty(exports, name, { get: () => namespace[name], enumerable: true });
    }
    marked.set(namespace, Object.preventExtensions(exports));
  }
  return exports;
}

/** The full name of what `from` requires, looked up in the folders `paths` or in its own. */
function resolve(specifier, from, parent, paths) {
  const froms = paths?.map(
    (path) => `${path.startsWith('/') ? '' : `${globalThis.process.cwd()}/`}${path}/noop.js`,
  );
  let missing;
  for (const place of froms ?? [from]) {
    try {
      return native.resolve(specifier, place);
    } catch (error) {
      if (error?.code !== 'MODULE_NOT_FOUND') throw error;
      missing = error;
    }
  }
  missing ??= Object.assign(new Error(`Cannot find module '${specifier}'`), { code: 'MODULE_NOT_FOUND' });
  missing.requireStack = [from];
  for (let module = parent?.parent; module; module = module.parent)
    missing.requireStack.push(module.filename);
  missing.message += ['\nRequire stack:', ...missing.requireStack].join('\n- ');
  throw missing;
}

function requireFrom(specifier, from, parent) {
  if (typeof specifier !== 'string' || specifier === '') {
    throw new TypeError(`require needs the name of a module, not ${String(specifier)}`);
  }
  const found = resolve(specifier, from, parent);
  if (found.startsWith('/') || /^[A-Za-z]:[\\/]/.test(found)) return load(found, parent);
  const namespace = native.module(found);
  return 'default' in namespace ? namespace.default : namespace;
}

/** A `require` that resolves as the file `from` would. */
export function createRequire(from, parent) {
  const require = (specifier) => requireFrom(specifier, from, parent);
  require.resolve = (specifier, options) => {
    const found = resolve(specifier, from, parent, options?.paths);
    return found.startsWith('node:') && !specifier.startsWith('node:') ? specifier : found;
  };
  require.resolve.paths = () => null;
  require.cache = cache;
  require.extensions = Module._extensions;
  require.main = undefined;
  return require;
}
