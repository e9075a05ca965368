import { checkFunction, checkString, coded, wrongType, wrongValue } from 'internal/errors';
import { format, formatWithOptions } from 'internal/format';
import { inspect } from 'internal/inspect';
import { deepEqual } from 'internal/deep-equal';
import { parseArgs } from 'internal/parse-args';
import { TextDecoder, TextEncoder } from 'internal/text';
import process from 'node:process';
import types from 'node:util/types';

const customPromisify = Symbol.for('nodejs.util.promisify.custom');

/** A function that answers a promise instead of calling back. */
export function promisify(original) {
  checkFunction(original, 'original');
  const own = original[customPromisify];
  if (own !== undefined) {
    checkFunction(own, 'util.promisify.custom');
    return own;
  }
  const promised = function promised(...given) {
    return new Promise((resolve, reject) => {
      original.call(this, ...given, (error, ...values) => {
        if (error) reject(error);
        else resolve(values[0]);
      });
    });
  };
  Object.setPrototypeOf(promised, Object.getPrototypeOf(original));
  Object.defineProperty(promised, customPromisify, { value: promised });
  return Object.defineProperties(promised, Object.getOwnPropertyDescriptors(original));
}
promisify.custom = customPromisify;

/** A function that calls back instead of answering a promise. */
export function callbackify(original) {
  checkFunction(original, 'original');
  const calling = function calling(...given) {
    const callback = given.pop();
    checkFunction(callback, 'last argument');
    original.apply(this, given).then(
      (value) => process.nextTick(callback, null, value),
      (reason) => {
        const error =
          reason ||
          coded(Error, 'ERR_FALSY_VALUE_REJECTION', 'Promise was rejected with falsy value', { reason });
        process.nextTick(callback, error);
      },
    );
  };
  Object.defineProperty(calling, 'name', { value: `${original.name}Callbackified` });
  return calling;
}

export function inherits(constructor, parent) {
  checkFunction(constructor, 'ctor');
  checkFunction(parent, 'superCtor');
  Object.defineProperty(constructor, 'super_', { value: parent, writable: true, configurable: true });
  Object.setPrototypeOf(constructor.prototype, parent.prototype);
}

const warned = new Set();

export function deprecate(original, message, code) {
  let told = false;
  const deprecated = function deprecated(...given) {
    if (!told && !(code && warned.has(code))) {
      told = true;
      if (code) warned.add(code);
      process.emitWarning(message, 'DeprecationWarning', code);
    }
    return new.target ? Reflect.construct(original, given, new.target) : original.apply(this, given);
  };
  Object.setPrototypeOf(deprecated, original);
  if (original.prototype) deprecated.prototype = original.prototype;
  return deprecated;
}

export function debuglog(section, callback) {
  const enabled = `${process.env.NODE_DEBUG ?? ''}`.toUpperCase().split(',').includes(section.toUpperCase());
  const log = (...given) => {
    if (enabled) console.debug(`${section.toUpperCase()} ${process.pid}: ${format(...given)}`);
  };
  log.enabled = enabled;
  callback?.(log);
  return log;
}

export function isDeepStrictEqual(a, b) {
  return deepEqual(a, b, true);
}

const escapes =
  // oxlint-disable-next-line no-control-regex
  /[\u001b\u009b][[\]()#;?]*(?:(?:(?:[a-zA-Z\d]*(?:;[-a-zA-Z\d/#&.:=?%@~_]*)*)?\u0007)|(?:(?:\d{1,4}(?:;\d{0,4})*)?[\dA-PR-TZcf-ntqry=><~]))/g;

export function stripVTControlCharacters(text) {
  checkString(text, 'str');
  return text.replace(escapes, '');
}

export function styleText(format, text, options) {
  checkString(text, 'text');
  const { stream = process.stdout, validateStream = true } = options ?? {};
  if (validateStream && typeof stream?.on !== 'function' && !(stream instanceof WritableStream))
    throw wrongType('stream', 'an instance of ReadableStream, WritableStream, or Stream', stream);
  const wrap = (inner, name) => {
    if (name === 'none') return inner;
    const codes = inspect.colors[name];
    if (!codes) {
      const names = Object.getOwnPropertyNames(inspect.colors).map((each) => `'${each}'`);
      throw wrongValue('format', name, `must be one of: ${names.join(', ')}`);
    }
    const [open, close] = codes.map((code) => `\u001b[${code}m`);
    // What a style inside ends, begins again after it; bold and dim end with one code.
    const again = codes[1] === 22 ? close + open : open;
    const rest = inner.endsWith(close) ? close : '';
    return `${open}${inner.slice(0, inner.length - rest.length).replaceAll(close, again)}${rest}${close}`;
  };
  return [format].flat().reduceRight(wrap, text);
}

export function toUSVString(text) {
  return `${text}`.toWellFormed();
}

export function aborted(signal) {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

export function getSystemErrorName(number) {
  const names = {
    1: 'EPERM',
    2: 'ENOENT',
    5: 'EIO',
    9: 'EBADF',
    11: 'EAGAIN',
    13: 'EACCES',
    17: 'EEXIST',
    20: 'ENOTDIR',
    21: 'EISDIR',
    22: 'EINVAL',
    24: 'EMFILE',
    28: 'ENOSPC',
    32: 'EPIPE',
    39: 'ENOTEMPTY',
    98: 'EADDRINUSE',
    104: 'ECONNRESET',
    110: 'ETIMEDOUT',
    111: 'ECONNREFUSED',
  };
  return names[-number] ?? `Unknown system error ${number}`;
}

const errnoNames = () => Object.entries(process.getBuiltinModule('os').constants.errno);

/** Names and messages of the system's errors, by their numbers. */
export const getSystemErrorMap = () => new Map(errnoNames().map(([name, number]) => [-number, [name, name]]));

export const getSystemErrorMessage = (number) => getSystemErrorName(number);

/** An error of the system, as functions of `node:net` and `node:fs` throw it. */
export function _errnoException(number, syscall, original) {
  const code = getSystemErrorName(number);
  const message = original ? `${syscall} ${code} ${original}` : `${syscall} ${code}`;
  return Object.assign(new Error(message), { errno: number, code, syscall });
}

export function _exceptionWithHostPort(number, syscall, address, port) {
  const error = _errnoException(number, syscall, port ? `${address}:${port}` : address);
  return Object.assign(error, { address, ...(port ? { port } : {}) });
}

/** Where the caller is, from the innermost function outwards. */
export function getCallSites(most = 8) {
  const lines = new Error('here').stack.split('\n').filter((line) => line.includes('at '));
  return lines.slice(1, 1 + (typeof most === 'number' ? most : 8)).map((line) => {
    const [, functionName = '', scriptName = '', row = 0, column = 0] =
      /at (?:(.*?) \()?(.*?)(?::(\d+))?(?::(\d+))?\)?$/.exec(line) ?? [];
    return {
      functionName,
      scriptId: '0',
      scriptName,
      lineNumber: Number(row),
      columnNumber: Number(column),
      column: Number(column),
    };
  });
}

export const transferableAbortController = () => new AbortController();
export const transferableAbortSignal = (signal) => signal;
export const setTraceSigInt = () => {};
export const diff = undefined;

export class MIMEType {
  #type;
  #subtype;
  params = new Map();

  constructor(text) {
    const found = /^\s*([^\s/;]+)\/([^\s/;]+)\s*(;.*)?$/.exec(`${text}`);
    if (!found)
      throw coded(TypeError, 'ERR_INVALID_MIME_SYNTAX', `The MIME syntax for a type in "${text}" is invalid`);
    [this.#type, this.#subtype] = [found[1].toLowerCase(), found[2].toLowerCase()];
    for (const [, name, quoted, plain] of (found[3] ?? '').matchAll(
      /;\s*([^\s=;]+)=(?:"((?:[^"\\]|\\.)*)"|([^;]*))/g,
    )) {
      this.params.set(name.toLowerCase(), quoted?.replace(/\\(.)/g, '$1') ?? plain.trim());
    }
  }

  get type() {
    return this.#type;
  }
  get subtype() {
    return this.#subtype;
  }
  get essence() {
    return `${this.#type}/${this.#subtype}`;
  }
  toString() {
    return [
      this.essence,
      ...[...this.params].map(
        ([name, value]) => `${name}=${/^[\w.+-]+$/.test(value) ? value : JSON.stringify(value)}`,
      ),
    ].join(';');
  }
}

export const isArray = Array.isArray;

/** `Object.assign` before there was one: packages still call it. */
export function _extend(target, source) {
  if (source === null || typeof source !== 'object') return target;
  return Object.assign(target, source);
}

export function parseEnv(text) {
  const values = {};
  for (const [, name, double, single, plain] of text.matchAll(
    /^\s*(?:export\s+)?([\w.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^#\r\n]*))/gm,
  )) {
    values[name] = double?.replace(/\\n/g, '\n') ?? single ?? plain.trim();
  }
  return values;
}

export { debuglog as debug };
export { TextDecoder, TextEncoder, format, formatWithOptions, inspect, parseArgs, types };

export default {
  MIMEType,
  TextDecoder,
  TextEncoder,
  _errnoException,
  _exceptionWithHostPort,
  _extend,
  aborted,
  callbackify,
  debug: debuglog,
  debuglog,
  deprecate,
  format,
  formatWithOptions,
  getCallSites,
  getSystemErrorMap,
  getSystemErrorMessage,
  getSystemErrorName,
  inherits,
  inspect,
  isArray,
  isDeepStrictEqual,
  parseArgs,
  parseEnv,
  promisify,
  setTraceSigInt,
  stripVTControlCharacters,
  styleText,
  toUSVString,
  transferableAbortController,
  transferableAbortSignal,
  types,
};
