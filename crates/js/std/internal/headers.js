// `Headers`.

import { enumerable } from 'internal/members';

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
// eslint-disable-next-line no-control-regex
const VALUE = /^[^\u0000\n\r]*$/;

function nameOf(name) {
  const text = `${name}`;
  if (!NAME.test(text)) throw new TypeError(`Headers: ${JSON.stringify(text)} is an invalid header name.`);
  return text.toLowerCase();
}

function valueOf(value) {
  const text = `${value}`.replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, '');
  // eslint-disable-next-line no-control-regex
  if (!VALUE.test(text) || /[^\u0000-\u00ff]/.test(text)) {
    throw new TypeError(`Headers: ${JSON.stringify(text)} is an invalid header value.`);
  }
  return text;
}

export class Headers {
  // Pairs, in the order they came, names in lower case.
  #pairs = [];
  #immutable = false;

  constructor(init) {
    if (init === undefined) return;
    if (init === null || (typeof init !== 'object' && typeof init !== 'function')) {
      throw new TypeError('Headers: the initial value must be an object, a list of pairs or Headers');
    }
    // What only inherits from Headers is read like any other object.
    if (#pairs in init) {
      this.#pairs = init.#pairs.map((pair) => [...pair]);
    } else if (typeof init[Symbol.iterator] === 'function') {
      for (const pair of init) {
        const entry = [...pair];
        if (entry.length !== 2) throw new TypeError('Headers: each pair must hold a name and a value');
        this.append(entry[0], entry[1]);
      }
    } else {
      for (const name of Reflect.ownKeys(init)) {
        if (typeof name === 'string' && Object.prototype.propertyIsEnumerable.call(init, name))
          this.append(name, init[name]);
      }
    }
  }

  /** Those of a message that came from outside: as they are. */
  static _of(pairs) {
    const headers = new Headers();
    headers.#pairs = pairs.map(([name, value]) => [name.toLowerCase(), value]);
    return headers;
  }

  _freeze() {
    this.#immutable = true;
    return this;
  }

  _pairs() {
    return this.#pairs;
  }

  #change() {
    if (this.#immutable) throw new TypeError('Headers: these cannot be changed');
  }

  append(name, value) {
    const pair = [nameOf(name), valueOf(value)];
    this.#change();
    this.#pairs.push(pair);
  }

  delete(name) {
    const wanted = nameOf(name);
    this.#change();
    this.#pairs = this.#pairs.filter(([known]) => known !== wanted);
  }

  get(name) {
    const wanted = nameOf(name);
    const values = this.#pairs.filter(([known]) => known === wanted).map(([, value]) => value);
    if (values.length === 0) return null;
    return values.join(wanted === 'cookie' ? '; ' : ', ');
  }

  getSetCookie() {
    return this.#pairs.filter(([name]) => name === 'set-cookie').map(([, value]) => value);
  }

  has(name) {
    const wanted = nameOf(name);
    return this.#pairs.some(([known]) => known === wanted);
  }

  set(name, value) {
    const [wanted, text] = [nameOf(name), valueOf(value)];
    this.#change();
    const at = this.#pairs.findIndex(([known]) => known === wanted);
    if (at < 0) {
      this.#pairs.push([wanted, text]);
    } else {
      this.#pairs[at] = [wanted, text];
      this.#pairs = this.#pairs.filter(([known], index) => known !== wanted || index <= at);
    }
  }

  forEach(callback, thisArg) {
    for (const [name, value] of this) callback.call(thisArg, value, name, this);
  }

  /** By name; every cookie set stands for itself. */
  *entries() {
    const names = [...new Set(this.#pairs.map(([name]) => name))].sort();
    for (const name of names) {
      if (name === 'set-cookie') for (const cookie of this.getSetCookie()) yield [name, cookie];
      else yield [name, this.get(name)];
    }
  }

  *keys() {
    for (const [name] of this) yield name;
  }

  *values() {
    for (const [, value] of this) yield value;
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  get [Symbol.toStringTag]() {
    return 'Headers';
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return `Headers ${inspect(Object.fromEntries(this), options)}`;
  }
}

for (const name of ['_freeze', '_pairs'])
  Object.defineProperty(Headers.prototype, name, { enumerable: false });
enumerable([Headers]);
