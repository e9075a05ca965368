import { checkFunction } from 'internal/errors';
import { deepEqual as same } from 'internal/deep-equal';
import { inspect } from 'internal/inspect';

export class AssertionError extends Error {
  constructor(options) {
    const { message, actual, expected, operator } = options;
    super(message === undefined ? `${inspect(actual)} ${operator} ${inspect(expected)}` : String(message));
    this.generatedMessage = message === undefined;
    this.code = 'ERR_ASSERTION';
    this.actual = actual;
    this.expected = expected;
    this.operator = operator;
  }
}
Object.defineProperty(AssertionError.prototype, 'name', {
  value: 'AssertionError',
  configurable: true,
  writable: true,
});

function fails(message, rest, fallback) {
  if (message instanceof Error) throw message;
  const error = new AssertionError({ message: message ?? fallback, ...rest });
  error.generatedMessage = message === undefined;
  throw error;
}

/** Nothing was thrown. */
function unmet(what, wanted, message, operator) {
  const kind = typeof wanted === 'function' && wanted.prototype instanceof Error ? ` (${wanted.name})` : '';
  const told = `Missing expected ${what}${kind}${message === undefined ? '.' : `: ${message}`}`;
  fails(message instanceof Error ? message : told, { expected: wanted, operator });
}

function unwanted(what, error, message, operator) {
  const told = `Got unwanted ${what}${message === undefined ? '.' : `: ${message}`}\nActual message: "${error?.message}"`;
  fails(message instanceof Error ? message : told, { actual: error, operator });
}

function check(name, holds, fallback) {
  return (actual, expected, message) => {
    if (!holds(actual, expected)) {
      fails(message, { actual, expected, operator: name }, fallback(actual, expected));
    }
  };
}

export function ok(value, message) {
  if (!value) {
    const given = arguments.length === 0 ? 'No value argument passed to `assert.ok()`' : undefined;
    fails(
      message,
      { actual: value, expected: true, operator: '==' },
      given ?? `The expression evaluated to a falsy value: ${inspect(value)}`,
    );
  }
}

const differ = (words) => (a, b) =>
  `${words}\n\n${inspect(a)}\n\nshould ${words.includes('not') || words.includes('unequal') ? 'not ' : ''}equal\n\n${inspect(b)}`;

export const equal = check(
  '==',
  (a, b) => a == b || (a !== a && b !== b),
  (a, b) => `${inspect(a)} == ${inspect(b)}`,
);
export const notEqual = check(
  '!=',
  (a, b) => !(a == b || (a !== a && b !== b)),
  (a, b) => `${inspect(a)} != ${inspect(b)}`,
);
export const strictEqual = check(
  'strictEqual',
  Object.is,
  (a, b) => `Expected values to be strictly equal:\n\n${inspect(a)} !== ${inspect(b)}\n`,
);
export const notStrictEqual = check(
  'notStrictEqual',
  (a, b) => !Object.is(a, b),
  (a) => `Expected "actual" to be strictly unequal to: ${inspect(a)}`,
);
export const deepEqual = check(
  'deepEqual',
  (a, b) => same(a, b, false),
  differ('Expected values to be loosely deep-equal:'),
);
export const notDeepEqual = check(
  'notDeepEqual',
  (a, b) => !same(a, b, false),
  differ('Expected "actual" not to be loosely deep-equal to:'),
);
export const deepStrictEqual = check(
  'deepStrictEqual',
  (a, b) => same(a, b, true),
  differ('Expected values to be strictly deep-equal:'),
);
export const notDeepStrictEqual = check(
  'notDeepStrictEqual',
  (a, b) => !same(a, b, true),
  differ('Expected "actual" not to be strictly deep-equal to:'),
);
export const match = check(
  'match',
  (text, pattern) => typeof text === 'string' && pattern.test(text),
  (a, b) => `The input did not match the regular expression ${b}. Input:\n\n${inspect(a)}\n`,
);
export const doesNotMatch = check(
  'doesNotMatch',
  (text, pattern) => !pattern.test(text),
  (a, b) => `The input was expected to not match the regular expression ${b}. Input:\n\n${inspect(a)}\n`,
);

export function partialDeepStrictEqual(actual, expected, message) {
  const holds = (a, b) => {
    if (typeof b !== 'object' || b === null) return Object.is(a, b);
    if (typeof a !== 'object' || a === null) return false;
    return Reflect.ownKeys(b).every((key) => key in a && holds(a[key], b[key]));
  };
  if (!holds(actual, expected)) fails(message, { actual, expected, operator: 'partialDeepStrictEqual' });
}

export function fail(message) {
  fails(message, { operator: 'fail' }, 'Failed');
}

export function ifError(value) {
  if (value === null || value === undefined) return;
  const told = value instanceof Error ? value.message || value.name : inspect(value);
  throw new AssertionError({
    message: `ifError got unwanted exception: ${told}`,
    actual: value,
    expected: null,
    operator: 'ifError',
  });
}

/** Whether what was thrown is what was wanted. */
function expected(thrown, wanted, message, operator) {
  if (wanted === undefined) return;
  if (wanted instanceof RegExp) {
    if (!wanted.test(String(thrown))) {
      fails(
        message,
        { actual: thrown, expected: wanted, operator },
        `The input did not match the regular expression ${wanted}. Input:\n\n${inspect(String(thrown))}\n`,
      );
    }
    return;
  }
  if (typeof wanted === 'function') {
    if (wanted.prototype !== undefined && thrown instanceof wanted) return;
    if (Object.prototype.isPrototypeOf.call(Error, wanted) || wanted === Error) throw thrown;
    if (wanted.call({}, thrown) !== true) {
      fails(
        message,
        { actual: thrown, expected: wanted, operator },
        `The ${wanted.name ? `"${wanted.name}"` : ''} validation function is expected to return "true".`,
      );
    }
    return;
  }
  const keys = Object.keys(wanted);
  if (wanted instanceof Error) keys.push('name', 'message');
  for (const key of keys) {
    const [has, wants] = [thrown?.[key], wanted[key]];
    const fits =
      wants instanceof RegExp && typeof has === 'string' ? wants.test(has) : same(has, wants, true);
    if (!fits)
      fails(
        message,
        { actual: thrown, expected: wanted, operator },
        `Expected ${key} ${inspect(wants)}, got ${inspect(has)}`,
      );
  }
}

export function throws(run, wanted, message) {
  checkFunction(run, 'fn');
  if (typeof wanted === 'string') [wanted, message] = [undefined, wanted];
  let thrown;
  try {
    run();
  } catch (error) {
    thrown = { error };
  }
  if (!thrown) unmet('exception', wanted, message, 'throws');
  expected(thrown.error, wanted, message, 'throws');
}

export function doesNotThrow(run, wanted, message) {
  checkFunction(run, 'fn');
  try {
    run();
  } catch (error) {
    unwanted('exception', error, typeof wanted === 'string' ? wanted : message, 'doesNotThrow');
  }
}

async function outcome(given) {
  try {
    await (typeof given === 'function' ? given() : given);
    return undefined;
  } catch (error) {
    return { error };
  }
}

export async function rejects(given, wanted, message) {
  if (typeof wanted === 'string') [wanted, message] = [undefined, wanted];
  const thrown = await outcome(given);
  if (!thrown) unmet('rejection', wanted, message, 'rejects');
  expected(thrown.error, wanted, message, 'rejects');
}

export async function doesNotReject(given, wanted, message) {
  const thrown = await outcome(given);
  if (thrown) {
    unwanted('rejection', thrown.error, typeof wanted === 'string' ? wanted : message, 'doesNotReject');
  }
}

export function assert(value, message) {
  ok(value, message);
}

const functions = {
  AssertionError,
  deepEqual,
  deepStrictEqual,
  doesNotMatch,
  doesNotReject,
  doesNotThrow,
  equal,
  fail,
  ifError,
  match,
  notDeepEqual,
  notDeepStrictEqual,
  notEqual,
  notStrictEqual,
  ok,
  partialDeepStrictEqual,
  rejects,
  strictEqual,
  throws,
};

export function strict(value, message) {
  ok(value, message);
}

Object.assign(assert, functions, { strict });
Object.assign(strict, functions, {
  deepEqual: deepStrictEqual,
  equal: strictEqual,
  notDeepEqual: notDeepStrictEqual,
  notEqual: notStrictEqual,
  strict,
});

export default assert;
