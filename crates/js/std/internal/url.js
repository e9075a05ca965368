// `URL` and `URLSearchParams`.

import native from 'native/url';
import { coded, wrongType } from 'internal/errors';
import { enumerable } from 'internal/members';

/** The blobs that have a URL. */
export const blobs = new Map();

const names = [
  'href',
  'origin',
  'protocol',
  'username',
  'password',
  'host',
  'hostname',
  'port',
  'pathname',
  'search',
  'hash',
];

function decode(text) {
  const plain = text.replaceAll('+', ' ');
  if (!plain.includes('%')) return plain;
  return plain.replace(/(?:%[\da-f]{2})+/gi, (run) => {
    const bytes = Uint8Array.from(run.slice(1).split('%'), (pair) => parseInt(pair, 16));
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
  });
}

function encode(text) {
  return encodeURIComponent(text.toWellFormed())
    .replaceAll('%20', '+')
    .replace(/[!'()~]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
}

function read(query) {
  const pairs = [];
  for (const pair of query.split('&')) {
    if (pair === '') continue;
    const at = pair.indexOf('=');
    pairs.push(at < 0 ? [decode(pair), ''] : [decode(pair.slice(0, at)), decode(pair.slice(at + 1))]);
  }
  return pairs;
}

export class URLSearchParams {
  #pairs = [];
  #changed = null;

  constructor(init = '') {
    if (init === null || init === undefined) return;
    if (typeof init === 'object' || typeof init === 'function') {
      if (typeof init[Symbol.iterator] === 'function') {
        for (const pair of init) {
          const entry = [...pair];
          if (entry.length !== 2) {
            throw coded(
              TypeError,
              'ERR_INVALID_TUPLE',
              'Each query pair must be an iterable [name, value] tuple',
            );
          }
          this.#pairs.push(entry.map((part) => `${part}`.toWellFormed()));
        }
      } else {
        for (const key of Reflect.ownKeys(init)) {
          if (typeof key === 'string' && Object.prototype.propertyIsEnumerable.call(init, key)) {
            this.set(key, init[key]);
          }
        }
      }
      return;
    }
    this.#pairs = read(`${init}`.replace(/^\?/, ''));
  }

  /** The parameters of a URL: each change is the URL's. */
  static _of(query, changed) {
    const params = new URLSearchParams(query);
    params.#changed = changed;
    return params;
  }

  _reread(query) {
    this.#pairs = read(query.replace(/^\?/, ''));
  }

  #tell() {
    this.#changed?.(this.toString());
  }

  get size() {
    return this.#pairs.length;
  }

  append(name, value) {
    this.#pairs.push([`${name}`.toWellFormed(), `${value}`.toWellFormed()]);
    this.#tell();
  }

  delete(name, value) {
    name = `${name}`;
    this.#pairs = this.#pairs.filter(
      ([key, kept]) => key !== name || (value !== undefined && kept !== `${value}`),
    );
    this.#tell();
  }

  get(name) {
    return this.#pairs.find(([key]) => key === `${name}`)?.[1] ?? null;
  }

  getAll(name) {
    return this.#pairs.filter(([key]) => key === `${name}`).map(([, value]) => value);
  }

  has(name, value) {
    return this.#pairs.some(
      ([key, kept]) => key === `${name}` && (value === undefined || kept === `${value}`),
    );
  }

  set(name, value) {
    [name, value] = [`${name}`.toWellFormed(), `${value}`.toWellFormed()];
    const at = this.#pairs.findIndex(([key]) => key === name);
    if (at < 0) {
      this.#pairs.push([name, value]);
    } else {
      this.#pairs[at] = [name, value];
      this.#pairs = this.#pairs.filter(([key], index) => key !== name || index <= at);
    }
    this.#tell();
  }

  sort() {
    this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    this.#tell();
  }

  forEach(callback, thisArg) {
    for (const [name, value] of this.#each()) callback.call(thisArg, value, name, this);
  }

  // A class derived from this one may override what is public.
  *#each() {
    for (let at = 0; at < this.#pairs.length; at += 1) yield [...this.#pairs[at]];
  }

  entries() {
    return this.#each();
  }

  *keys() {
    for (const [name] of this.#each()) yield name;
  }

  *values() {
    for (const [, value] of this.#each()) yield value;
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  toString() {
    return this.#pairs.map(([name, value]) => `${encode(name)}=${encode(value)}`).join('&');
  }

  get [Symbol.toStringTag]() {
    return 'URLSearchParams';
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    if (depth < 0) return options.stylize('[Object]', 'special');
    const pairs = this.#pairs.map(([name, value]) => `${inspect(name)} => ${inspect(value)}`);
    return pairs.length === 0 ? 'URLSearchParams {}' : `URLSearchParams { ${pairs.join(', ')} }`;
  }
}

for (const name of ['_reread']) Object.defineProperty(URLSearchParams.prototype, name, { enumerable: false });

export class URL {
  #parts;
  #params;

  constructor(url, base) {
    this.#parts = native.parse(
      `${url}`.toWellFormed(),
      base === undefined ? undefined : `${base}`.toWellFormed(),
    );
    if (!this.#parts) {
      throw coded(
        TypeError,
        'ERR_INVALID_URL',
        'Invalid URL',
        base === undefined ? { input: `${url}` } : { input: `${url}`, base: `${base}` },
      );
    }
  }

  #change(part, value) {
    this.#parts = native.change(this.#parts[0], part, `${value}`.toWellFormed()) ?? this.#parts;
    if (part === 'search') this.#params?._reread(this.search);
  }

  get href() {
    return this.#parts[0];
  }
  set href(value) {
    const parts = native.parse(`${value}`.toWellFormed(), undefined);
    if (!parts) throw coded(TypeError, 'ERR_INVALID_URL', 'Invalid URL', { input: `${value}` });
    this.#parts = parts;
    this.#params?._reread(this.search);
  }
  get origin() {
    return this.#parts[1];
  }
  get protocol() {
    return this.#parts[2];
  }
  set protocol(value) {
    this.#change('protocol', value);
  }
  get username() {
    return this.#parts[3];
  }
  set username(value) {
    this.#change('username', value);
  }
  get password() {
    return this.#parts[4];
  }
  set password(value) {
    this.#change('password', value);
  }
  get host() {
    return this.#parts[5];
  }
  set host(value) {
    this.#change('host', value);
  }
  get hostname() {
    return this.#parts[6];
  }
  set hostname(value) {
    this.#change('hostname', value);
  }
  get port() {
    return this.#parts[7];
  }
  set port(value) {
    this.#change('port', value);
  }
  get pathname() {
    return this.#parts[8];
  }
  set pathname(value) {
    this.#change('pathname', value);
  }
  get search() {
    return this.#parts[9];
  }
  set search(value) {
    this.#change('search', value);
  }
  get hash() {
    return this.#parts[10];
  }
  set hash(value) {
    this.#change('hash', value);
  }

  get searchParams() {
    this.#params ??= URLSearchParams._of(this.search, (query) => {
      this.#parts = native.change(this.#parts[0], 'search', query) ?? this.#parts;
    });
    return this.#params;
  }

  toString() {
    return this.href;
  }

  toJSON() {
    return this.href;
  }

  get [Symbol.toStringTag]() {
    return 'URL';
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    if (depth < 0) return 'URL {}';
    const { hash, ...shown } = Object.fromEntries(names.map((name) => [name, this[name]]));
    return `URL ${inspect({ ...shown, searchParams: this.searchParams, hash }, options)}`;
  }

  static canParse(url, base) {
    return !!native.parse(`${url}`.toWellFormed(), base === undefined ? undefined : `${base}`.toWellFormed());
  }

  static parse(url, base) {
    return URL.canParse(url, base) ? new URL(url, base) : null;
  }

  static createObjectURL(obj) {
    if (!/^(?:Blob|File)$/.test(obj?.[Symbol.toStringTag]))
      throw wrongType('obj', 'an instance of Blob', obj);
    const url = `blob:nodedata:${globalThis.crypto.randomUUID()}`;
    blobs.set(url, obj);
    return url;
  }

  static revokeObjectURL(url) {
    blobs.delete(`${url}`);
  }
}

enumerable([URL, URLSearchParams]);
