// Errors with the codes Node's authors look at.

import loader from 'native/globals';

/** An error with a `code`, as `new Class(message)` with `error.code === code`. */
export function coded(Class, code, message, extra) {
  const error = new Class(message);
  error.code = code;
  return extra ? Object.assign(error, extra) : error;
}

function received(value) {
  if (value == null) return `Received ${value}`;
  if (typeof value === 'function') return `Received function ${value.name}`;
  if (typeof value === 'object') {
    return value.constructor?.name
      ? `Received an instance of ${value.constructor.name}`
      : 'Received an object';
  }
  const shown =
    typeof value === 'bigint' ? `${value}n` : typeof value === 'string' ? `'${value}'` : String(value);
  return `Received type ${typeof value} (${shown.length > 28 ? `${shown.slice(0, 25)}...` : shown})`;
}

/** An argument of the wrong type; `expected` goes on after *must be*. */
export function wrongType(name, expected, value) {
  const what = name.endsWith(' property')
    ? `"${name.slice(0, -' property'.length)}" property`
    : name.endsWith(' argument')
      ? name
      : `"${name}" ${name.includes('.') ? 'property' : 'argument'}`;
  const message = `The ${what} must be ${expected}. ${received(value)}`;
  return coded(TypeError, 'ERR_INVALID_ARG_TYPE', message);
}

export function wrongValue(name, value, why = 'is invalid') {
  const whole = loader.load('internal/inspect').inspect(value);
  const shown = whole.length > 128 ? `${whole.slice(0, 128)}...` : whole;
  const what = name.includes('.') ? 'property' : 'argument';
  return coded(TypeError, 'ERR_INVALID_ARG_VALUE', `The ${what} '${name}' ${why}. Received ${shown}`);
}

/** A number as Node writes it in such a message: one beyond 32 bits has separators. */
function written(value) {
  if (typeof value === 'string') return `'${value}'`;
  const ending = typeof value === 'bigint' ? 'n' : '';
  const large = ending ? value > 2n ** 32n || value < -(2n ** 32n) : Math.abs(value) > 2 ** 32;
  if (!large || !(ending || Number.isInteger(value)))
    return Object.is(value, -0) ? '-0' : `${String(value)}${ending}`;
  return String(value).replace(/\B(?=(?:\d{3})+$)/g, '_') + ending;
}

export function outOfRange(name, range, value) {
  const message = `The value of "${name}" is out of range. It must be ${range}. Received ${written(value)}`;
  return coded(RangeError, 'ERR_OUT_OF_RANGE', message);
}

/** A value as errors name it. */
export function kindOf(value) {
  if (value?.constructor?.name) {
    if (typeof value === 'object') return `an instance of ${value.constructor.name}`;
    if (typeof value !== 'function') return `type ${typeof value} (${String(value)})`;
    return `function ${value.name}`;
  }
  return `${value}`;
}

/** An access beyond the end of a buffer. */
export function outOfBounds(name) {
  const message = name
    ? `"${name}" is outside of buffer bounds`
    : 'Attempt to access memory outside buffer bounds';
  return coded(RangeError, 'ERR_BUFFER_OUT_OF_BOUNDS', message);
}

export function checkFunction(value, name) {
  if (typeof value !== 'function') throw wrongType(name, 'of type function', value);
}

export function checkString(value, name) {
  if (typeof value !== 'string') throw wrongType(name, 'of type string', value);
}

export function checkObject(value, name) {
  if (value === null || typeof value !== 'object') throw wrongType(name, 'of type object', value);
}

/** What an aborted operation throws. */
export function abortError(signal, message = 'The operation was aborted') {
  const cause = signal?.reason;
  const error = new Error(message, cause === undefined ? undefined : { cause });
  error.code = 'ABORT_ERR';
  error.name = 'AbortError';
  return error;
}

/** What a module of Node's lacks here. */
export function missing(what, instead) {
  const hint = instead ? `; ${instead}` : '';
  return coded(
    Error,
    'ERR_METHOD_NOT_IMPLEMENTED',
    `${what} is not implemented by the engine that runs plugins${hint}`,
  );
}
