// `util.inspect` and `util.format`: what a value looks like to a person.

import loader from 'native/globals';
import native from 'native/process';
import * as kinds from 'internal/kinds';
import { colors as palette, styles } from 'internal/styles';

const custom = Symbol.for('nodejs.util.inspect.custom');

const defaults = {
  showHidden: false,
  depth: 2,
  colors: false,
  customInspect: true,
  showProxy: false,
  maxArrayLength: 100,
  maxStringLength: 10000,
  breakLength: 80,
  compact: 3,
  sorted: false,
  getters: false,
  numericSeparator: false,
};

export function inspect(value, options, depth, colors) {
  const settings = { ...defaults, ...(typeof options === 'object' ? options : {}) };
  if (typeof options === 'boolean') settings.showHidden = options;
  if (typeof depth === 'number' || depth === null) settings.depth = depth;
  if (typeof colors === 'boolean') settings.colors = colors;
  for (const name of ['depth', 'maxArrayLength', 'maxStringLength'])
    if (settings[name] === null) settings[name] = Infinity;
  return new Inspector(settings).show(value, 0);
}

inspect.custom = custom;
inspect.defaultOptions = defaults;
inspect.styles = Object.fromEntries(Object.keys(styles).map((name) => [name, name]));
inspect.colors = palette;

/** Text with the characters escaped that terminals do not show. */
const escaped = (text) =>
  text.replace(
    // eslint-disable-next-line no-control-regex
    /[\u0000-\u001f\u007f-\u009f\\]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g,
    (c) => {
      const short = { '\n': '\\n', '\t': '\\t', '\r': '\\r', '\b': '\\b', '\f': '\\f', '\\': '\\\\' }[c];
      const code = c.charCodeAt(0);
      if (code >= 0xd800) return `\\u${code.toString(16)}`;
      return short ?? `\\x${code.toString(16).toUpperCase().padStart(2, '0')}`;
    },
  );

function quote(text) {
  const mark = !text.includes("'") ? "'" : !text.includes('"') ? '"' : !text.includes('`') ? '`' : "'";
  const inside = escaped(text);
  return mark + (mark === "'" ? inside.replace(/'/g, "\\'") : inside) + mark;
}

/** A number, where wanted with `_` between thousands. */
export function numeral(value, separated) {
  if (Object.is(value, -0)) return '-0';
  const text = typeof value === 'bigint' ? `${value}n` : `${value}`;
  if (!separated) return text;
  const [, sign, whole, rest = '', ending] = /^(-?)(\d+)(\.\d+)?(n?)$/.exec(text) ?? [];
  if (whole === undefined) return text;
  const grouped = whole.replace(/\B(?=(?:\d{3})+$)/g, '_');
  return sign + grouped + rest.replace(/(\d{3})(?=\d)/g, '$1_') + ending;
}

/** The constructors of the language: what their prototypes have is not shown. */
export const builtIn = (name) =>
  /^(?:(?:Aggregate|Eval|Range|Reference|Suppressed|Syntax|Type|URI)?Error|(?:Shared)?Array(?:Buffer)?|Atomics|BigInt|Boolean|DataView|Date|FinalizationRegistry|Function|(?:BigInt|BigUint|Float|Int|Uint)\d+(?:Clamped)?Array|Iterator|Map|Number|Object|Promise|Proxy|RegExp|Set|String|Symbol|WeakMap|WeakRef|WeakSet)$/.test(
    name,
  );

/** The constructor's name and, with `hidden`, the prototypes before the first of the language's own. */
function className(object, hidden) {
  for (let at = object; at !== null; at = Object.getPrototypeOf(at)) {
    const own = Object.getOwnPropertyDescriptor(at, 'constructor');
    if (typeof own?.value !== 'function' || own.value.name === '') continue;
    if (!isInstance(object, own.value)) continue;
    let up = Object.getPrototypeOf(object);
    if (hidden && (at !== up || !builtIn(own.value.name))) {
      for (let first = at !== object; up !== null && hidden.length < 3; first = false) {
        const made = Object.getOwnPropertyDescriptor(up, 'constructor');
        if (!first && typeof made?.value === 'function' && builtIn(made.value.name)) break;
        hidden.push(up);
        up = Object.getPrototypeOf(up);
      }
    }
    return own.value.name;
  }
  return null;
}

function isInstance(object, Class) {
  try {
    return object instanceof Class;
  } catch {
    return false;
  }
}

class Inspector {
  constructor(settings) {
    this.settings = settings;
    this.seen = [];
    // The level of the object that was shown last.
    this.deepest = 0;
    this.circular = new Map();
  }

  paint(text, style) {
    if (!this.settings.colors) return text;
    const [on, off] = styles[style];
    return `\u001b[${on}m${text}\u001b[${off}m`;
  }

  show(value, level, typed) {
    switch (typeof value) {
      case 'string':
        return this.text(value, level);
      case 'number':
        return this.paint(numeral(value, this.settings.numericSeparator), 'number');
      case 'bigint':
        return this.paint(numeral(value, this.settings.numericSeparator), 'bigint');
      case 'boolean':
        return this.paint(`${value}`, 'boolean');
      case 'undefined':
        return this.paint('undefined', 'undefined');
      case 'symbol':
        return this.paint(String(value), 'symbol');
      default:
        return value === null ? this.paint('null', 'null') : this.object(value, level, typed);
    }
  }

  text(value, level) {
    const { breakLength, compact, maxStringLength } = this.settings;
    let more = '';
    if (value.length > maxStringLength) {
      const left = value.length - maxStringLength;
      more = `... ${left} more character${left > 1 ? 's' : ''}`;
      value = value.slice(0, maxStringLength);
    }
    if (compact !== true && value.length > 16 && value.length > breakLength - level * 2 - 4) {
      const lines = value.split(/(?<=\n)/).map((line) => this.paint(quote(line), 'string'));
      return lines.join(` +\n${'  '.repeat(level + 1)}`) + more;
    }
    return this.paint(quote(value), 'string') + more;
  }

  object(given, level) {
    let value = given;
    for (let proxy; (proxy = kinds.proxied(value)) !== undefined; [value] = proxy) {
      if (proxy[0] === null) return this.paint('<Revoked Proxy>', 'special');
      if (!this.settings.showProxy) continue;
      if (level > this.settings.depth) return this.paint('Proxy [Array]', 'special');
      const deepest = this.deepest;
      this.deepest = level;
      const shown = this.joined(
        'Proxy [',
        ']',
        proxy.map((part) => this.show(part, level + 1)),
        level,
      );
      this.deepest = Math.max(deepest, this.deepest);
      return shown;
    }
    if (this.settings.customInspect) {
      const own = value[custom];
      if (typeof own === 'function' && own !== inspect) {
        const left = this.settings.depth - level;
        const shown = own.call(
          given,
          left,
          { ...this.settings, stylize: (text, style) => this.paint(text, style) },
          inspect,
        );
        if (shown !== value) {
          return typeof shown === 'string'
            ? shown.replaceAll('\n', `\n${'  '.repeat(level)}`)
            : this.show(shown, level);
        }
      }
    }
    if (this.seen.includes(value)) {
      if (!this.circular.has(value)) this.circular.set(value, this.circular.size + 1);
      return this.paint(`[Circular *${this.circular.get(value)}]`, 'special');
    }
    return this.structure(value, level);
  }

  /** The name of a value's class, and its tag where it is another. */
  name(value, hidden) {
    const name = className(value, hidden);
    const tag = value[Symbol.toStringTag];
    // Its own, which is shown as a member, is not shown twice.
    const shown = this.settings.showHidden
      ? Object.hasOwn(value, Symbol.toStringTag)
      : Object.prototype.propertyIsEnumerable.call(value, Symbol.toStringTag);
    return [name, typeof tag === 'string' && tag !== '' && !shown && tag !== name ? ` [${tag}]` : ''];
  }

  /** What is written before the members, the entries that are no members, and the brackets. */
  kind(value, level, inView) {
    const [name, suffix] = this.name(value);
    const named = (fallback, size) => {
      const many = size === undefined ? '' : `(${size})`;
      return name === null ? `[${fallback}${many}: null prototype]${suffix}` : `${name}${many}${suffix}`;
    };
    if (Array.isArray(value)) {
      const prefix = name === 'Array' && !suffix ? '' : `${named('Array', value.length)} `;
      const isEmpty = value.length === 0;
      return { prefix, open: '[', close: ']', isEmpty, entries: () => this.list(value, level) };
    }
    const typed = kinds.typedName(value);
    if (typed) {
      const length = kinds.typedLength(value);
      // As in Node, elements count as large numbers where the length says that there are none.
      const entries = () =>
        length === value.length || value.length === undefined
          ? this.list(value, level, length)
          : Array.from({ length }, (_, at) => this.paint(`${value[at]}n`, 'bigint'));
      return {
        prefix: `${named(typed, length)} `,
        open: '[',
        close: ']',
        isEmpty: length === 0,
        entries: () => entries().concat(this.settings.showHidden ? this.view(value, level) : []),
      };
    }
    if (kinds.isSet(value)) {
      const size = kinds.setSize(value);
      const entries = () => this.some(kinds.setValues(value), size, (entry) => this.show(entry, level + 1));
      return { prefix: `${named('Set', size)} `, open: '{', close: '}', isEmpty: size === 0, entries };
    }
    if (kinds.isMap(value)) {
      const size = kinds.mapSize(value);
      const entry = ([k, v]) => `${this.show(k, level + 1)} => ${this.show(v, level + 1)}`;
      const entries = () => this.some(kinds.mapEntries(value), size, entry);
      return { prefix: `${named('Map', size)} `, open: '{', close: '}', isEmpty: size === 0, entries };
    }
    if (typeof value === 'function')
      return { base: this.paint(this.callable(value, name, suffix), 'special') };
    const before = (fallback) => (name === fallback && !suffix ? '' : `${named(fallback)} `);
    if (kinds.isRegExp(value))
      return { base: this.paint(`${before('RegExp')}${kinds.regExpText(value)}`, 'regexp'), isWhole: true };
    if (kinds.isDate(value)) {
      const text = Number.isNaN(kinds.dateTime(value)) ? 'Invalid Date' : kinds.dateText(value);
      return { base: this.paint(`${before('Date')}${text}`, 'date') };
    }
    if (value instanceof Error || Error.isError?.(value))
      return { base: this.error(value, level), isError: true };
    const isShared = kinds.isSharedArrayBuffer(value);
    if (isShared || kinds.isArrayBuffer(value)) {
      const bytes = value.detached ? [] : new Uint8Array(value);
      const most = Math.min(this.settings.maxArrayLength, bytes.length);
      const shown = Array.from(bytes.subarray?.(0, most) ?? [], (byte) => byte.toString(16).padStart(2, '0'));
      const left = bytes.length - most;
      const more = left > 0 ? ` ... ${left} more byte${left > 1 ? 's' : ''}` : '';
      const size = `${this.paint('[byteLength]', 'string')}: ${this.show(value.byteLength, level)}`;
      const contents = value.detached
        ? this.paint('(detached)', 'special')
        : `${this.paint('[Uint8Contents]', 'special')}: <${shown.join(' ')}${more}>`;
      const entries = () => (inView ? [size] : [contents, size]);
      const prefix = `${named(isShared ? 'SharedArrayBuffer' : 'ArrayBuffer')} `;
      return { prefix, open: '{', close: '}', entries };
    }
    if (kinds.isDataView(value)) {
      const members = ['byteLength', 'byteOffset', 'buffer'];
      const entries = () => members.map((name) => `[${name}]: ${this.show(value[name], level + 1)}`);
      return { prefix: `${named('DataView')} `, open: '{', close: '}', entries };
    }
    if (kinds.isPromise(value)) {
      const entries = () => {
        const settled = native.settled(value);
        if (!settled) return [this.paint('<pending>', 'special')];
        const shown = this.show(settled[1], level + 1);
        return [settled[0] ? shown : `${this.paint('<rejected>', 'special')} ${shown}`];
      };
      return { prefix: `${named('Promise')} `, open: '{', close: '}', entries };
    }
    const weak = kinds.isWeakMap(value) ? 'WeakMap' : kinds.isWeakSet(value) ? 'WeakSet' : undefined;
    if (weak) {
      const entries = () => [this.paint('<items unknown>', 'special')];
      return { prefix: `${named(weak)} `, open: '{', close: '}', entries };
    }
    const box = kinds.boxed(value);
    if (box) {
      const [type, primitive] = box;
      const inner = new Inspector({ ...this.settings, colors: false }).show(primitive, level);
      const made = name === type ? '' : ` (${name ?? 'null prototype'})`;
      return { base: `[${type}${made}: ${inner}]${suffix}`, style: type.toLowerCase() };
    }
    const isArguments = Object.prototype.toString.call(value) === '[object Arguments]';
    if (isArguments)
      return { prefix: '[Arguments] ', open: '{', close: '}', entries: () => [], isPlain: true };
    const prefix = name === 'Object' && !suffix ? '' : `${named('Object')} `;
    return { prefix, open: '{', close: '}', entries: () => [], isPlain: true };
  }

  /** What a view of bytes has besides them. */
  view(value, level) {
    const sizes = ['BYTES_PER_ELEMENT', 'length', 'byteLength', 'byteOffset'];
    return sizes
      .map((name) => `[${name}]: ${this.show(value[name], level + 1)}`)
      .concat(`[buffer]: ${this.structure(value.buffer, level + 1, true)}`);
  }

  /** As many entries of a set or a map as are shown. */
  some(rows, size, shown) {
    const most = Math.min(size, this.settings.maxArrayLength);
    const entries = [];
    for (const entry of rows) {
      if (entries.length >= most) break;
      entries.push(shown(entry));
    }
    const left = size - most;
    if (left > 0) entries.push(`... ${left} more item${left > 1 ? 's' : ''}`);
    return entries;
  }

  callable(value, name, suffix) {
    const source = Function.prototype.toString.call(value);
    if (source.startsWith('class') && source.endsWith('}')) {
      const own = Object.hasOwn(value, 'name') && value.name ? String(value.name) : '(anonymous)';
      const made = name === 'Function' || name === null ? '' : ` [${name}]`;
      const parent = name === null ? '[null prototype]' : Object.getPrototypeOf(value)?.name;
      return `[class ${own}${made}${suffix}${parent ? ` extends ${parent}` : ''}]`;
    }
    const type = kinds.functionKind(value, source);
    const bare = name === null ? ' (null prototype)' : '';
    const own = value.name === '' || value.name === undefined ? ' (anonymous)' : `: ${String(value.name)}`;
    return `[${type}${bare}${own}]${name === type || name === null ? '' : ` ${name}`}${suffix}`;
  }

  error(value, level) {
    const head = `${value.name ?? 'Error'}${value.message ? `: ${value.message}` : ''}`;
    const own = typeof value.stack === 'string' ? value.stack.trimEnd() : '';
    // The message may have lines like those of a stack.
    const frames = own.startsWith(head) ? own.slice(head.length) : own;
    const stack = own.slice(0, own.length - frames.length) + loader.mapped(frames);
    const whole = stack === '' ? `[${head}]` : stack.includes(head) ? stack : `${head}\n${stack}`;
    return level === 0 ? whole : whole.replaceAll('\n', `\n${'  '.repeat(level)}`);
  }

  list(value, level, length = value.length) {
    const most = Math.max(0, Math.min(length, this.settings.maxArrayLength));
    const entries = [];
    const holes = (many) =>
      entries.push(this.paint(`<${many} empty item${many > 1 ? 's' : ''}>`, 'undefined'));
    let at = 0;
    while (at < most && at in value) {
      entries.push(this.show(value[at], level + 1));
      at += 1;
    }
    if (at < most) {
      // Of a list with holes, which may be long, only its elements are looked at.
      for (const key of Object.keys(value)) {
        const place = Number(key);
        if (place < at) continue;
        if (entries.length >= most || String(place) !== key || !(place < length)) break;
        if (place > at) holes(place - at);
        at = place;
        if (entries.length >= most) break;
        entries.push(this.show(value[at], level + 1));
        at += 1;
      }
    }
    const left = length - at;
    if (left > 0 && entries.length < most) holes(left);
    else if (left > 0) entries.push(`... ${left} more item${left > 1 ? 's' : ''}`);
    return entries;
  }

  members(value, isError) {
    let keys = this.settings.showHidden
      ? Reflect.ownKeys(value)
      : [
          ...Object.keys(value),
          ...Object.getOwnPropertySymbols(value).filter(
            (key) => Object.getOwnPropertyDescriptor(value, key)?.enumerable,
          ),
        ];
    const text = kinds.boxed(value)?.[0] === 'String';
    if (Array.isArray(value) || kinds.typedName(value) || text) {
      const most = text ? String.prototype.valueOf.call(value).length : 2 ** 32 - 1;
      keys = keys.filter(
        (key) => typeof key === 'symbol' || !/^(0|[1-9]\d*)$/.test(key) || Number(key) >= most,
      );
    }
    if (isError) {
      keys = keys.filter((key) => !['stack', 'message', 'name'].includes(key));
      for (const key of ['cause', 'errors'])
        if (Object.hasOwn(value, key) && !keys.includes(key)) keys.push(key);
    }
    return keys;
  }

  member(holder, key, level, value = holder) {
    const own = Object.getOwnPropertyDescriptor(holder, key) ?? { value: value[key], enumerable: true };
    const plain = typeof key === 'string' && /^[A-Za-z_$][\w$]*$/.test(key);
    let name =
      typeof key === 'symbol'
        ? this.paint(escaped(String(key)), 'symbol')
        : key === '__proto__'
          ? "['__proto__']"
          : plain
            ? key
            : this.paint(quote(key), 'string');
    if (own.enumerable === false) name = `[${typeof key === 'symbol' ? escaped(String(key)) : key}]`;
    if (own.get) return `${name}: ${this.getter(value, own, level)}`;
    if (own.set && !own.get) return `${name}: ${this.paint('[Setter]', 'special')}`;
    return `${name}: ${this.show(own.value, level + 1)}`;
  }

  getter(value, own, level) {
    const label = own.set ? 'Getter/Setter' : 'Getter';
    const { getters } = this.settings;
    const wanted = getters === true || (getters === 'get' && !own.set) || (getters === 'set' && own.set);
    if (!wanted) return this.paint(`[${label}]`, 'special');
    try {
      const got = own.get.call(value);
      if (got !== null && typeof got === 'object') {
        return `${this.paint(`[${label}]`, 'special')} ${this.show(got, level + 1)}`;
      }
      const [open, close] = [this.paint(`[${label}:`, 'special'), this.paint(']', 'special')];
      return `${open} ${this.show(got, level + 1)}${close}`;
    } catch (error) {
      const open = this.paint(`[${label}:`, 'special');
      return `${open} <Inspection threw (${this.show(error, level + 1)})>${this.paint(']', 'special')}`;
    }
  }

  structure(value, level, inView) {
    const kind = this.kind(value, level, inView);
    const keys = this.members(value, kind.isError);
    const isDeep = level > this.settings.depth;
    // What a class of the plugin's own defines.
    const above = this.settings.showHidden && !isDeep ? [] : undefined;
    const [name, suffix] = this.name(value, above);
    if (keys.length === 0 && !above?.length) {
      if (kind.base !== undefined)
        return kind.style && this.settings.colors ? this.paint(kind.base, kind.style) : kind.base;
      if (kind.isPlain) return `${kind.prefix}{}`;
      if (kind.isEmpty && !(this.settings.showHidden && ArrayBuffer.isView(value)))
        return `${kind.prefix}${kind.open}${kind.close}`;
    }
    if (isDeep) {
      if (kind.isWhole) return kind.base;
      const shown = Array.isArray(value) ? 'Array' : `${name ?? '[Object: null prototype]'}${suffix}`;
      return this.paint(shown.startsWith('[') ? shown : `[${shown}]`, 'special');
    }
    this.seen.push(value);
    const deepest = this.deepest;
    this.deepest = level;
    const listed = kind.entries ? kind.entries() : [];
    const members = keys.map((key) => this.member(value, key, level));
    const seenKeys = new Set(['constructor']);
    for (const holder of above ?? []) {
      for (const key of Reflect.ownKeys(holder)) {
        const own = Object.getOwnPropertyDescriptor(holder, key);
        if (seenKeys.has(key) || Object.hasOwn(value, key) || typeof own.value === 'function') continue;
        const shown = this.member(holder, key, level, value);
        members.push(this.settings.colors ? `\u001b[2m${shown}\u001b[22m` : shown);
        seenKeys.add(key);
      }
    }
    this.seen.pop();
    let entries = listed.concat(members);
    if (this.settings.sorted) {
      const order = typeof this.settings.sorted === 'function' ? this.settings.sorted : undefined;
      // Of a list, the members only.
      entries = kind.open === '[' ? listed.concat(members.sort(order)) : entries.sort(order);
    }
    const mark = this.circular.has(value)
      ? `${this.paint(`<ref *${this.circular.get(value)}>`, 'special')} `
      : '';
    const open = kind.base === undefined ? `${kind.prefix}${kind.open}` : `${kind.base} {`;
    const close = kind.close ?? '}';
    if (entries.length === 0) {
      this.deepest = deepest;
      return `${mark}${open}${close}`;
    }
    const list = kind.open === '[' && entries.length > 6 ? value : undefined;
    return this.joined(mark + open, close, entries, level, list);
  }

  joined(open, close, entries, level, list) {
    const { breakLength, compact } = this.settings;
    const indent = '  '.repeat(level);
    if (compact === true) {
      const length = entries.reduce(
        (sum, entry) => sum + (this.settings.colors ? plain(entry) : entry).length,
        2 * entries.length,
      );
      if (length <= breakLength && !open.includes('\n')) return `${open} ${entries.join(', ')} ${close}`;
      const first = open.length === 1 ? ' ' : `\n${indent}  `;
      return `${open}${first}${entries.join(`,\n${indent}  `)} ${close}`;
    }
    const rows = list && compact !== false ? this.columns(entries, level, list) : entries;
    // What holds few levels goes on one line, where it fits.
    if (compact !== false && this.deepest - level < compact && rows === entries) {
      const length = entries.reduce(
        (sum, entry) => sum + (this.settings.colors ? plain(entry) : entry).length,
        2 * entries.length + open.length + indent.length + 10,
      );
      if (length <= breakLength && !entries.some((entry) => entry.includes('\n'))) {
        return `${open} ${entries.join(', ')} ${close}`;
      }
    }
    return `${open}\n${indent}  ${rows.join(`,\n${indent}  `)}\n${indent}${close}`;
  }

  /** Short entries of a long list stand several on a line, as near to a square as letters allow. */
  columns(entries, level, list) {
    const more = entries.length > (this.settings.maxArrayLength ?? Infinity) ? 1 : 0;
    const shown = entries.slice(0, entries.length - more);
    const widths = shown.map((entry) => (this.settings.colors ? plain(entry) : entry).length);
    const total = widths.reduce((sum, width) => sum + width + 2, 0);
    const widest = Math.max(...widths) + 2;
    const { breakLength, compact } = this.settings;
    if (widest * 3 + level * 2 >= breakLength || (total / widest <= 5 && widest > 8)) return entries;
    const typical = Math.max(widest - 3 - Math.sqrt(widest - total / entries.length), 1);
    const across = Math.min(
      Math.round(Math.sqrt(2.5 * typical * shown.length) / typical),
      Math.floor((breakLength - level * 2) / widest),
      Number(compact) * 4,
      15,
    );
    if (across <= 1) return entries;
    const wide = Array.from({ length: across }, (_, column) =>
      Math.max(0, ...widths.filter((_, at) => at % across === column)),
    );
    const numbers = entries.every((_, at) => typeof list[at] === 'number' || typeof list[at] === 'bigint');
    const rows = [];
    for (let at = 0; at < shown.length; at += across) {
      const row = shown.slice(at, at + across).map((entry, column, all) => {
        const padding = ' '.repeat(wide[column] - widths[at + column]);
        if (numbers) return padding + entry;
        return column === all.length - 1 ? entry : `${entry}, ${padding}`;
      });
      rows.push(row.join(numbers ? ', ' : ''));
    }
    return more ? [...rows, entries.at(-1)] : rows;
  }
}

// eslint-disable-next-line no-control-regex
const plain = (text) => text.replace(/\u001b\[\d+m/g, '');
