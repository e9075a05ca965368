// `util.format`: values in a text, as `printf` does it.

import { wrongType } from 'internal/errors';
import { builtIn, inspect, numeral } from 'internal/inspect';

/** As `printf`, then the rest of the arguments. */
export function formatWithOptions(options, ...given) {
  if (options === null || typeof options !== 'object')
    throw wrongType('inspectOptions', 'of type object', options);
  const [first] = given;
  let used = 0;
  let text = '';
  if (typeof first === 'string') {
    used = 1;
    if (given.length === 1) return first;
    text = first.replace(/%([sdifjoOc%])/g, (whole, kind) => {
      if (kind === '%') return '%';
      if (used >= given.length) return whole;
      const value = given[used];
      used += 1;
      switch (kind) {
        case 's':
          return shown(value, options);
        case 'd':
          return number(value, Number, options);
        case 'i':
          return number(value, (given) => parseInt(given, 10), options);
        case 'f':
          return number(typeof value === 'bigint' ? Number(value) : value, parseFloat, options);
        case 'j':
          try {
            return JSON.stringify(value);
          } catch (error) {
            if (/circular/i.test(error.message)) return '[Circular]';
            throw /BigInt/.test(error.message)
              ? new TypeError('Do not know how to serialize a BigInt')
              : error;
          }
        case 'o':
          return inspect(value, { ...options, showHidden: true, showProxy: true, depth: 4 });
        case 'O':
          return inspect(value, options);
        default:
          return '';
      }
    });
  }
  for (const value of given.slice(used)) {
    if (text !== '' || used > 0) text += ' ';
    used += 1;
    text += typeof value === 'string' ? value : inspect(value, options);
  }
  return text;
}

function number(value, read, options) {
  const made = typeof value === 'bigint' ? value : typeof value === 'symbol' ? NaN : primitive(value, read);
  return numeral(made, options.numericSeparator);
}

/** What `read` makes of a value; the engine says less than others of an object that has none. */
function primitive(value, read) {
  try {
    return read(value);
  } catch (error) {
    if (error instanceof TypeError && error.message === 'toPrimitive')
      throw new TypeError('Cannot convert object to primitive value', { cause: error });
    throw error;
  }
}

/** Whether what an object's `toString` returns is the language's own. */
function hasBuiltInText(value) {
  if (value instanceof Date || value instanceof Symbol) return true;
  if (typeof value[Symbol.toPrimitive] === 'function') return false;
  if (typeof value.toString !== 'function') return true;
  if (Object.hasOwn(value, 'toString')) return false;
  let at = value;
  do at = Object.getPrototypeOf(at);
  while (!Object.hasOwn(at, 'toString'));
  const made = Object.getOwnPropertyDescriptor(at, 'constructor');
  return typeof made?.value === 'function' && builtIn(made.value.name);
}

function shown(value, options) {
  if (typeof value === 'bigint' || typeof value === 'number') return number(value, Number, options);
  if (typeof value !== 'object' || value === null || !hasBuiltInText(value)) return primitive(value, String);
  return inspect(value, { ...options, depth: 0, colors: false, compact: 3 });
}

export function format(...given) {
  return formatWithOptions({}, ...given);
}
