// `URLPattern`.

import native from 'native/url-pattern';
import { coded } from 'internal/errors';
import { enumerable } from 'internal/members';

const PARTS = ['protocol', 'username', 'password', 'hostname', 'port', 'pathname', 'search', 'hash'];

/** A text, or an object of texts, as JSON. */
function written(input) {
  if (typeof input === 'string') return JSON.stringify(input.toWellFormed());
  if (input !== null && typeof input !== 'object' && typeof input !== 'function')
    throw coded(TypeError, 'ERR_INVALID_ARG_TYPE', 'Input must be an object or a string');
  const init = {};
  for (const name of [...PARTS, 'baseURL']) {
    const value = input?.[name];
    if (value !== undefined) init[name] = `${value}`.toWellFormed();
  }
  return JSON.stringify(init);
}

function refuse(cause) {
  const error = coded(TypeError, 'ERR_INVALID_URL_PATTERN', 'Failed to construct URLPattern');
  Object.defineProperty(error, 'cause', { value: cause, configurable: true, writable: true });
  return error;
}

/** With `v` only where it is needed: with it the engine refuses `-` and `/` outside of classes as well. */
function compile(text, flags) {
  try {
    return new RegExp(text, `u${flags}`);
  } catch {
    return new RegExp(text, `v${flags}`);
  }
}

export class URLPattern {
  #parts = {};
  #hasRegExpGroups;

  constructor(input = {}, base, options) {
    if (typeof base === 'object') [base, options] = [undefined, base ?? options];
    const given = written(input);
    const ignoreCase = !!options?.ignoreCase;
    try {
      const pattern = JSON.parse(native.parse(given, base === undefined ? undefined : `${base}`, ignoreCase));
      this.#hasRegExpGroups = pattern.hasRegexpGroups;
      for (const name of PARTS) {
        const { patternString, regexpString, groupNameList } = pattern[name];
        const expression = compile(regexpString, ignoreCase ? 'i' : '');
        this.#parts[name] = { text: patternString, expression, names: groupNameList };
      }
    } catch (error) {
      throw refuse(error);
    }
  }

  /** The parts of what is matched with what each part found; nothing where one does not match. */
  #match(input, base) {
    const given = written(input);
    let read;
    try {
      read = native.read(given, base === undefined ? undefined : `${base}`);
    } catch {
      throw coded(TypeError, 'ERR_OPERATION_FAILED', 'Failed to exec URLPattern');
    }
    if (typeof read !== 'string') return null;
    const values = JSON.parse(read);
    const found = {};
    for (const name of PARTS) {
      found[name] = [this.#parts[name].expression.exec(values[name]), values[name]];
      if (!found[name][0]) return null;
    }
    return found;
  }

  test(input = {}, base = undefined) {
    return this.#match(input, base) !== null;
  }

  exec(input = {}, base = undefined) {
    const found = this.#match(input, base);
    if (!found) return null;
    const inputs = base === undefined ? [input] : [input, base];
    const result = Object.assign(Object.create(null), { inputs });
    for (const name of PARTS) {
      const [match, value] = found[name];
      const groups = {};
      this.#parts[name].names.forEach((group, at) => {
        groups[group] = match[at + 1];
      });
      result[name] = { input: value, groups };
    }
    return result;
  }

  get protocol() {
    return this.#parts.protocol.text;
  }
  get username() {
    return this.#parts.username.text;
  }
  get password() {
    return this.#parts.password.text;
  }
  get hostname() {
    return this.#parts.hostname.text;
  }
  get port() {
    return this.#parts.port.text;
  }
  get pathname() {
    return this.#parts.pathname.text;
  }
  get search() {
    return this.#parts.search.text;
  }
  get hash() {
    return this.#parts.hash.text;
  }
  get hasRegExpGroups() {
    return this.#hasRegExpGroups;
  }
}

enumerable([URLPattern]);
