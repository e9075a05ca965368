// What the programs share. A program makes random calls from its seed and returns what it saw, as rows of a label and
// an outcome; the same seed makes the same calls on every engine.

export class Random {
  #state;

  constructor(seed) {
    this.#state = (seed * 2654435761 + 1) >>> 0;
    for (let at = 0; at < 4; at += 1) this.next();
  }

  next() {
    let x = this.#state || 0x9e3779b9;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x >>> 0;
    return this.#state;
  }

  below(limit) {
    return this.next() % limit;
  }

  chance(percent) {
    return this.below(100) < percent;
  }

  one(list) {
    return list[this.below(list.length)];
  }

  some(list, most) {
    return Array.from({ length: this.below(most + 1) }, () => this.one(list));
  }

  text(list, most) {
    return this.some(list, most).join('');
  }
}

/** An error as its class, code and message. */
export const failure = (error) =>
  error instanceof Error || typeof error?.message === 'string'
    ? { error: [error.name, error.code ?? null, error.message] }
    : { error: String(error) };

export function attempt(run) {
  try {
    return plain(run());
  } catch (error) {
    return failure(error);
  }
}

export async function attemptLater(run) {
  try {
    return plain(await run());
  } catch (error) {
    return failure(error);
  }
}

const written = (text) =>
  text.replace(/[\ud800-\udfff]/gu, (half) => `<${half.charCodeAt(0).toString(16)}>`);

/** Rows in which half a surrogate pair is text: not every reader of JSON takes one. */
export function wellFormed(value) {
  if (typeof value === 'string') return written(value);
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map(wellFormed);
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [written(name), wellFormed(each)]));
}

/** A value that JSON can write, with nothing lost that matters. */
export function plain(value) {
  if (value === undefined) return 'undefined';
  if (typeof value === 'number' && !Number.isFinite(value)) return `number ${value}`;
  if (Object.is(value, -0)) return 'number -0';
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'symbol' || typeof value === 'function') return typeof value;
  if (value === null || typeof value !== 'object') return value;
  if (ArrayBuffer.isView(value) && !(value instanceof DataView))
    return { [value.constructor.name]: Array.from(value, plain) };
  if (Array.isArray(value)) return value.map(plain);
  if (value instanceof Error) return failure(value);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plain(each)]));
}

/**
 * Waits until a log has not grown during so many turns of the event loop, each of at least five milliseconds. A program that
 * is slow because the computer is busy gets as many turns as one that is not.
 */
export async function quiet(log, turns) {
  for (let left = turns, length = log.length; left > 0; left -= 1) {
    await later(5);
    if (log.length !== length) [left, length] = [turns, log.length];
  }
}

/** Waits for so many turns of the event loop. */
export async function turns(many = 1) {
  for (let left = many * 4; left > 0; left -= 1) await new Promise((resolve) => setImmediate(resolve));
}

export const later = (milliseconds = 0) => new Promise((resolve) => setTimeout(resolve, milliseconds));
