// `WebAssembly`. The interpreter holds no JavaScript: a call that reaches an import is suspended, the import is called
// here, and the call goes on (see `native/wasm`).

import native from 'native/wasm';
import { pin } from 'internal/globals';

const MOST_PAGES = 65536;
const MOST_ENTRIES = 10_000_000;

function errorClass(name) {
  const Class = {
    [name]: class extends Error {},
  }[name];
  Object.defineProperty(Class.prototype, 'name', { value: name, configurable: true, writable: true });
  return Class;
}

const CompileError = errorClass('CompileError');
const LinkError = errorClass('LinkError');
const RuntimeError = errorClass('RuntimeError');
const classes = { CompileError, LinkError, RangeError, RuntimeError };

const known = new WeakMap();
const functions = new WeakMap();

/** What a store and its instances share. */
class Realm {
  realm = native.realm();
  buffers = [];
  imports = [];
  functions = new Map();
  foreign = new Map();
  numbers = new Map();
  externs = [];
  objects = { memory: new Map(), table: new Map(), global: new Map() };

  /** The function with this number, which is the same each time. */
  functionOf(number, name = String(number)) {
    const before = this.functions.get(number);
    if (before) return before;
    const [parameters, results] = native.signature(this.realm, number);
    const call = caller(this, number, parameters, results);
    Object.defineProperties(call, {
      name: { value: name, configurable: true },
      length: { value: parameters.length, configurable: true },
    });
    this.functions.set(number, call);
    functions.set(call, { realm: this, number });
    return call;
  }

  object(kind, number) {
    const before = this.objects[kind].get(number);
    if (before) return before;
    const Class = { memory: Memory, table: Table, global: Global }[kind];
    const made = Object.create(Class.prototype);
    known.set(made, { kind, realm: this, number });
    this.objects[kind].set(number, made);
    return made;
  }

  externNumber(value) {
    let number = this.numbers.get(value);
    if (number === undefined) {
      number = this.externs.push(value) - 1;
      this.numbers.set(value, number);
    }
    return number;
  }

  /** A function of another realm is an import of this one, and what is read back is the function itself. */
  foreignNumber(value, own) {
    let number = this.foreign.get(value);
    if (number === undefined) {
      const [parameters, results] = native.signature(own.realm.realm, own.number);
      const slot = this.imports.push(imported(this, value, { parameters, results })) - 1;
      number = native.hostFunction(this.realm, parameters, results, slot);
      this.foreign.set(value, number);
      this.functions.set(number, value);
    }
    return number;
  }

  /** What the interpreter takes for a value of this type. */
  give(type, value) {
    switch (type) {
      case 'i32':
        return value | 0;
      case 'i64':
        return BigInt.asIntN(64, value);
      case 'f32':
        return Math.fround(value);
      case 'externref':
        return value === null ? null : this.externNumber(value);
      case 'anyfunc': {
        if (value === null || value === undefined) return null;
        const own = functions.get(value);
        if (!own) throw new TypeError('WebAssembly objects are opaque: function-typed object expected');
        return own.realm === this ? own.number : this.foreignNumber(value, own);
      }
      case 'v128':
        throw new TypeError('type incompatibility when transforming from/to JS');
      default:
        return Number(value);
    }
  }

  take(type, value) {
    if (type === 'anyfunc') return value === null ? null : this.functionOf(value);
    if (type === 'externref') return value === null ? null : this.externs[value];
    return value;
  }
}

let shared;
/** The realm of what no instance made. */
const common = () => (shared ??= new Realm());

function caller(realm, number, parameters, results) {
  return (...given) => {
    const values = parameters.map((type, at) => realm.give(type, given[at]));
    let answer = native.call(realm.realm, realm.buffers, number, values);
    if (answer[0] === 2) {
      // The function is an import.
      const [, which, ...own] = answer;
      answer = [0, ...realm.imports[which](own)];
    }
    while (answer[0] === 1) {
      let returned;
      try {
        const [, which, ...values] = answer;
        returned = realm.imports[which](values);
      } catch (error) {
        native.abandon(realm.realm);
        throw error;
      }
      answer = native.resume(realm.realm, realm.buffers, returned);
    }
    if (answer[0] === 3) throw new classes[answer[1]](answer[2]);
    if (results.length === 0) return undefined;
    if (results.length === 1) return realm.take(results[0], answer[1]);
    return results.map((type, at) => realm.take(type, answer[at + 1]));
  };
}

function bytesOf(source, who) {
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  throw new TypeError(`${who}: Argument 0 must be a buffer source`);
}

function compiled(source, who) {
  const bytes = bytesOf(source, who);
  if (bytes.length === 0) throw new CompileError(`${who}: BufferSource argument is empty`);
  const made = native.compile(bytes);
  if (typeof made === 'string') throw new CompileError(`${who}: ${made}`);
  return made;
}

class Module {
  constructor(source) {
    known.set(this, { kind: 'module', ...compiled(source, 'WebAssembly.Module()') });
  }

  static imports(module) {
    return of(module, 'module', 'WebAssembly.Module.imports()').imports.map((row) => ({
      module: row.module,
      name: row.name,
      kind: row.kind,
    }));
  }

  static exports(module) {
    const { exports } = of(module, 'module', 'WebAssembly.Module.exports()');
    return exports.map(({ name, kind }) => ({ name, kind }));
  }

  static customSections(module, name) {
    const { custom } = of(module, 'module', 'WebAssembly.Module.customSections()');
    if (name === undefined)
      throw new TypeError('WebAssembly.Module.customSections(): Argument 1 is required');
    return custom.filter((row) => row[0] === `${name}`).map((row) => row[1].slice().buffer);
  }
}

function of(value, kind, who) {
  const state = typeof value === 'object' && value !== null ? known.get(value) : undefined;
  if (state?.kind !== kind) {
    const name = kind[0].toUpperCase() + kind.slice(1);
    throw new TypeError(`${who}: Argument 0 must be a WebAssembly.${name}`);
  }
  return state;
}

/** The realm an instance belongs to: that of the memories, tables and globals it imports, else one of its own. */
function realmOf(values, who) {
  const realms = new Set(values.map((value) => known.get(value)?.realm).filter(Boolean));
  if (realms.size > 1) {
    throw new LinkError(
      `${who}: memories, tables and globals of several instances cannot be imported together`,
    );
  }
  return realms.size === 1 ? [...realms][0] : new Realm();
}

function instantiate(instance, module, given, who) {
  const { code, imports, exports } = of(module, 'module', who);
  if (given !== undefined && (typeof given !== 'object' || given === null) && typeof given !== 'function')
    throw new TypeError(`${who}: Argument 1 must be an object`);
  if (imports.length > 0 && given === undefined)
    throw new TypeError(`${who}: Imports argument must be present and must be an object`);
  const values = imports.map((row, at) => {
    const object = given[row.module];
    const place = `${who}: Import #${at} "${row.module}"`;
    if ((typeof object !== 'object' || object === null) && typeof object !== 'function')
      throw new TypeError(`${place}: module is not an object or function`);
    const value = object[row.name];
    const fail = (what) => {
      throw new LinkError(`${place} "${row.name}": ${what}`);
    };
    if (row.kind === 'function') {
      if (typeof value !== 'function') fail('function import requires a callable');
    } else if (row.kind === 'global') {
      if (known.get(value)?.kind !== 'global') {
        const kind = typeof value;
        const fits =
          row.value === 'externref' ||
          (row.value === 'anyfunc' && (value === null || functions.has(value))) ||
          (row.value === 'i64' ? kind === 'bigint' : kind === 'number');
        if (row.mutable) fail('imported mutable global must be a WebAssembly.Global object');
        if (!fits) fail('global import must be a number, valid Wasm reference, or WebAssembly.Global object');
      }
    } else if (typeof value !== 'object' || known.get(value)?.kind !== row.kind) {
      const name = row.kind[0].toUpperCase() + row.kind.slice(1);
      fail(`${row.kind} import must be a WebAssembly.${name} object`);
    }
    return value;
  });
  const realm = realmOf(
    values.filter((value, at) => imports[at].kind !== 'function'),
    who,
  );
  const pairs = values.map((value, at) => {
    const row = imports[at];
    if (row.kind === 'function') {
      if (functions.has(value)) return [1, realm.give('anyfunc', value)];
      return [0, realm.imports.push(imported(realm, value, row)) - 1];
    }
    if (row.kind === 'global' && known.get(value)?.kind !== 'global')
      return [4, native.newGlobal(realm.realm, row.value, false, realm.give(row.value, value))];
    const { number } = known.get(value);
    return [{ memory: 2, table: 3, global: 4 }[row.kind], number];
  });
  const made = native.instantiate(realm.realm, realm.buffers, code, pairs);
  if (made[0] === 3) throw new classes[made[1]](`${who}: ${made[2]}`);
  const kinds = new Map(exports.map((row) => [row.name, row.kind]));
  const out = Object.create(null);
  for (const [name, number] of made.exports) {
    const kind = kinds.get(name);
    const value = kind === 'function' ? realm.functionOf(number) : realm.object(kind, number);
    Object.defineProperty(out, name, { value, enumerable: true });
  }
  Object.freeze(out);
  Object.defineProperty(instance, 'exports', { value: out, enumerable: true, configurable: true });
  if (made.start !== undefined) realm.functionOf(made.start)();
  return instance;
}

/** Calls an import with what the interpreter gave, and answers what it takes. */
function imported(realm, value, { parameters, results }) {
  return (given) => {
    const returned = value(...parameters.map((type, at) => realm.take(type, given[at])));
    if (results.length === 0) return [];
    if (results.length === 1) return [realm.give(results[0], returned)];
    const all = [...returned];
    if (all.length !== results.length) throw new TypeError('multi-return length mismatch');
    return results.map((type, at) => realm.give(type, all[at]));
  };
}

function Instance(module, imports) {
  if (!new.target) throw new TypeError("WebAssembly.Instance must be invoked with 'new'");
  instantiate(this, module, imports, 'WebAssembly.Instance()');
}

function limit(value, name, who, most, fallback) {
  if (value === undefined) {
    if (fallback !== undefined) return fallback;
    throw new TypeError(`${who}: Property '${name}' is required`);
  }
  const number = Math.trunc(Number(value));
  if (!(number >= 0))
    throw new TypeError(`${who}: Property '${name}': value ${value} is below the lower bound`);
  if (number > most)
    throw new TypeError(`${who}: Property '${name}': value ${value} is above the upper bound`);
  return number;
}

function limits(descriptor, who, most) {
  if (typeof descriptor !== 'object' || descriptor === null)
    throw new TypeError(`${who}: Argument 0 must be a descriptor`);
  const least = limit(descriptor.initial ?? descriptor.minimum, 'initial', who, most);
  const maximum = limit(descriptor.maximum, 'maximum', who, 2 ** 32 - 1, null);
  if (maximum !== null && maximum < least)
    throw new RangeError(`${who}: Property 'maximum': value ${maximum} is below the lower bound`);
  return [least, maximum === null ? undefined : Math.min(maximum, most)];
}

class Memory {
  constructor(descriptor) {
    const who = 'WebAssembly.Memory()';
    const [least, most] = limits(descriptor, who, MOST_PAGES);
    if (descriptor.shared) throw new TypeError(`${who}: shared memory is not supported`);
    const realm = common();
    const number = native.newMemory(realm.realm, least, most);
    known.set(this, { kind: 'memory', realm, number });
    realm.objects.memory.set(number, this);
  }

  get buffer() {
    const { realm, number } = of(this, 'memory', 'WebAssembly.Memory.buffer');
    const buffer = native.buffer(realm.realm, realm.buffers, number);
    pin(buffer);
    return buffer;
  }

  grow(delta) {
    const { realm, number } = of(this, 'memory', 'WebAssembly.Memory.grow()');
    const more = limit(delta, 'delta', 'WebAssembly.Memory.grow()', 2 ** 32 - 1);
    return native.growMemory(realm.realm, realm.buffers, number, more);
  }
}

class Table {
  constructor(descriptor, value) {
    const who = 'WebAssembly.Table()';
    const [least, most] = limits(descriptor, who, MOST_ENTRIES);
    const element = descriptor.element === 'funcref' ? 'anyfunc' : descriptor.element;
    if (element !== 'anyfunc' && element !== 'externref')
      throw new TypeError(`${who}: Descriptor property 'element' must be a WebAssembly reference type`);
    const realm = element === 'anyfunc' && functions.has(value) ? functions.get(value).realm : common();
    const first = arguments.length < 2 && element === 'anyfunc' ? null : realm.give(element, value);
    const number = native.newTable(realm.realm, element, least, most, first);
    known.set(this, { kind: 'table', realm, number, element });
    realm.objects.table.set(number, this);
  }

  get length() {
    const { realm, number } = of(this, 'table', 'WebAssembly.Table.length');
    return native.tableSize(realm.realm, number);
  }

  get(at) {
    const { realm, number } = of(this, 'table', 'WebAssembly.Table.get()');
    const index = limit(at, 'index', 'WebAssembly.Table.get()', 2 ** 32 - 1);
    return realm.take(elementOf(this), native.tableGet(realm.realm, number, index));
  }

  set(at, value = null) {
    const { realm, number } = of(this, 'table', 'WebAssembly.Table.set()');
    const index = limit(at, 'index', 'WebAssembly.Table.set()', 2 ** 32 - 1);
    const entry = realm.give(elementOf(this), arguments.length < 2 ? null : value);
    native.tableSet(realm.realm, number, index, entry);
  }

  grow(delta, value = null) {
    const { realm, number } = of(this, 'table', 'WebAssembly.Table.grow()');
    const more = limit(delta, 'delta', 'WebAssembly.Table.grow()', MOST_ENTRIES);
    return native.tableGrow(realm.realm, number, more, realm.give(elementOf(this), value));
  }
}

const elementOf = (table) => {
  const state = known.get(table);
  return (state.element ??= native.tableType(state.realm.realm, state.number));
};

class Global {
  constructor(descriptor, value) {
    const who = 'WebAssembly.Global()';
    if (typeof descriptor !== 'object' || descriptor === null)
      throw new TypeError(`${who}: Argument 0 must be a global descriptor`);
    const type = descriptor.value === 'funcref' ? 'anyfunc' : descriptor.value;
    if (!['i32', 'i64', 'f32', 'f64', 'anyfunc', 'externref'].includes(type))
      throw new TypeError(`${who}: Descriptor property 'value' must be a WebAssembly type`);
    const mutable = !!descriptor.mutable;
    const realm = functions.has(value) ? functions.get(value).realm : common();
    const zero = { i64: 0n, anyfunc: null, externref: undefined };
    const first = value === undefined ? (type in zero ? zero[type] : 0) : value;
    const number = native.newGlobal(realm.realm, type, mutable, realm.give(type, first));
    known.set(this, { kind: 'global', realm, number, type });
    realm.objects.global.set(number, this);
  }

  get value() {
    const { realm, number } = of(this, 'global', 'get WebAssembly.Global.value');
    return realm.take(typeOf(this), native.globalGet(realm.realm, number));
  }

  set value(value) {
    const { realm, number } = of(this, 'global', 'set WebAssembly.Global.value');
    native.globalSet(realm.realm, number, realm.give(typeOf(this), value));
  }

  valueOf() {
    return this.value;
  }
}

const typeOf = (global) => {
  const state = known.get(global);
  return (state.type ??= native.globalType(state.realm.realm, state.number));
};

for (const Class of [Module, Instance, Memory, Table, Global]) {
  Object.defineProperty(Class.prototype, Symbol.toStringTag, {
    value: `WebAssembly.${Class.name}`,
    configurable: true,
  });
}

/** The bytes of a response, which a stream of a body is for. */
async function streamed(source, who) {
  const response = await source;
  if (!(response instanceof Response))
    throw new TypeError(`${who}: Argument 0 must be a Response or a Promise resolving to one`);
  if (!response.ok) throw new TypeError(`${who}: HTTP status code is not ok`);
  const type = response.headers.get('content-type');
  if (type?.trim().toLowerCase() !== 'application/wasm')
    throw new TypeError(`${who}: Incorrect response MIME type. Expected 'application/wasm'.`);
  return response.arrayBuffer();
}

function moduleOf(source, who) {
  const module = Object.create(Module.prototype);
  known.set(module, { kind: 'module', ...compiled(source, who) });
  return module;
}

async function instance(source, imports, who) {
  if (known.get(source)?.kind === 'module')
    return instantiate(Object.create(Instance.prototype), source, imports, who);
  const module = moduleOf(source, who);
  return { module, instance: instantiate(Object.create(Instance.prototype), module, imports, who) };
}

/** The text of an ES module around a WebAssembly module, and the function that instantiates it: its `import.meta.value`. */
export function asModule(bytes, name) {
  const module = Object.create(Module.prototype);
  known.set(module, { kind: 'module', ...compiled(bytes, name) });
  const { imports, exports } = known.get(module);
  const from = [...new Set(imports.map((row) => row.module))];
  const lines = from.map((each, at) => `import * as i${at} from ${JSON.stringify(each)};`);
  const given = from.map((each, at) => `[${JSON.stringify(each)}]: i${at}`);
  lines.push(`const e = import.meta.value({ ${given.join(', ')} });`);
  for (const [at, row] of exports.entries()) {
    const quoted = JSON.stringify(row.name);
    lines.push(`const e${at} = e[${quoted}]; export { e${at} as ${quoted} };`);
  }
  const run = (imported) => {
    const instance = instantiate(Object.create(Instance.prototype), module, imported, name);
    const values = Object.entries(instance.exports);
    // As in Node, the value of a global is exported.
    return Object.fromEntries(
      values.map(([key, value]) => [key, known.get(value)?.kind === 'global' ? value.value : value]),
    );
  };
  return [lines.join('\n'), run];
}

export const WebAssembly = Object.create(Object.prototype, {
  [Symbol.toStringTag]: { value: 'WebAssembly', configurable: true },
});

const members = {
  CompileError,
  Global,
  Instance,
  LinkError,
  Memory,
  Module,
  RuntimeError,
  Table,
  async compile(source) {
    return moduleOf(source, 'WebAssembly.compile()');
  },
  async compileStreaming(source) {
    const who = 'WebAssembly.compileStreaming()';
    return moduleOf(await streamed(source, who), who);
  },
  async instantiate(source, imports) {
    return instance(source, imports, 'WebAssembly.instantiate()');
  },
  async instantiateStreaming(source, imports) {
    const who = 'WebAssembly.instantiateStreaming()';
    return instance(await streamed(source, who), imports, who);
  },
  validate(source) {
    return typeof native.compile(bytesOf(source, 'WebAssembly.validate()')) !== 'string';
  },
};
for (const name in members) {
  Object.defineProperty(WebAssembly, name, { value: members[name], configurable: true, writable: true });
}
