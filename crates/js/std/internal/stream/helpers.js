// `map`, `filter` and the other methods that a readable stream has as a list has them.

import { AbortController, AbortSignal } from 'internal/event-target';
import { abortError, checkFunction, checkObject, coded, outOfRange, wrongType } from 'internal/errors';

const nothing = Symbol('nothing');

/** Checks options of a method. */
export function checkOptions(options) {
  if (options === undefined || options === null) return;
  checkObject(options, 'options');
  const { signal } = options;
  if (signal !== undefined && signal !== null && typeof signal?.aborted !== 'boolean')
    throw wrongType('options.signal', 'an instance of AbortSignal', signal);
}

function whole(value, name, least) {
  if (!Number.isInteger(value)) throw outOfRange(name, 'an integer', value);
  if (value < least || value > Number.MAX_SAFE_INTEGER)
    throw outOfRange(name, `>= ${least} && <= ${Number.MAX_SAFE_INTEGER}`, value);
}

/** What `run` answers for each chunk, in their order, while it works on several. */
function mapped(stream, run, options) {
  checkFunction(run, 'fn');
  checkOptions(options);
  const many = Math.floor(options?.concurrency ?? 1);
  const ahead = Math.floor(options?.highWaterMark ?? many - 1);
  whole(many, 'options.concurrency', 1);
  whole(ahead, 'options.highWaterMark', 0);
  return results(stream, run, many, ahead + many, AbortSignal.any(options?.signal ? [options.signal] : []));
}

async function* results(stream, run, concurrency, most, signal) {
  // Answers that were not yielded; the last is `nothing` where the stream has ended.
  const queue = [];
  let working = 0;
  let over = false;
  let wakeReader;
  let wakeWriter;
  const writeOn = () => {
    if (!wakeWriter || over || working >= concurrency || queue.length >= most) return;
    wakeWriter();
    wakeWriter = undefined;
  };
  const settled = () => {
    working -= 1;
    writeOn();
  };
  const failed = () => {
    over = true;
    settled();
  };
  const give = (answer) => {
    answer.then(settled, failed);
    queue.push(answer);
  };
  const readOn = () => {
    wakeReader?.();
    wakeReader = undefined;
  };
  const work = async () => {
    try {
      for await (const chunk of stream) {
        if (over) return;
        if (signal.aborted) throw abortError();
        let answer;
        try {
          answer = Promise.resolve(run(chunk, { signal }));
        } catch (error) {
          answer = Promise.reject(error);
        }
        working += 1;
        give(answer);
        readOn();
        if (!over && (queue.length >= most || working >= concurrency))
          await new Promise((resolve) => {
            wakeWriter = resolve;
          });
      }
      queue.push(null);
    } catch (error) {
      give(Promise.reject(error));
    } finally {
      over = true;
      readOn();
    }
  };
  void work();
  try {
    for (;;) {
      while (queue.length > 0) {
        if (queue[0] === null) return;
        const answer = await queue[0];
        if (signal.aborted) throw abortError();
        if (answer !== nothing) yield answer;
        queue.shift();
        writeOn();
      }
      await new Promise((resolve) => {
        wakeReader = resolve;
      });
    }
  } finally {
    over = true;
    wakeWriter?.();
  }
}

const filtered = (stream, run, options) => {
  checkFunction(run, 'fn');
  return mapped(stream, async (chunk, given) => ((await run(chunk, given)) ? chunk : nothing), options);
};

function amount(number) {
  const many = Number(number);
  if (Number.isNaN(many)) return 0;
  if (many < 0) throw outOfRange('number', '>= 0', many);
  return many;
}

/** The chunks of a stream, until a signal aborts. */
async function* chunksOf(stream, options) {
  if (options?.signal?.aborted) throw abortError();
  for await (const chunk of stream) {
    if (options?.signal?.aborted) throw abortError();
    yield chunk;
  }
}

/** Methods whose answer becomes a stream. */
const iterables = {
  map(fn, options) {
    return mapped(this, fn, options);
  },
  filter(fn, options) {
    return filtered(this, fn, options);
  },
  flatMap(fn, options) {
    const rows = mapped(this, fn, options);
    return (async function* flat() {
      for await (const row of rows) yield* row;
    })();
  },
  drop(number, options = undefined) {
    checkOptions(options);
    let left = amount(number);
    const chunks = chunksOf(this, options);
    return (async function* dropped() {
      for await (const chunk of chunks) if (left-- <= 0) yield chunk;
    })();
  },
  take(number, options = undefined) {
    checkOptions(options);
    let left = amount(number);
    const chunks = chunksOf(this, options);
    return (async function* taken() {
      for await (const chunk of chunks) {
        if (left-- > 0) yield chunk;
        if (left <= 0) return;
      }
    })();
  },
};

/** Methods that answer a promise. */
const promises = {
  async toArray(options) {
    checkOptions(options);
    const all = [];
    for await (const chunk of this) {
      if (options?.signal?.aborted) throw abortError(options.signal);
      all.push(chunk);
    }
    return all;
  },
  async forEach(fn, options) {
    checkFunction(fn, 'fn');
    const run = async (chunk, given) => {
      await fn(chunk, given);
      return nothing;
    };
    for await (const done of mapped(this, run, options)) void done;
  },
  async reduce(reducer, initialValue, options) {
    checkFunction(reducer, 'reducer');
    checkOptions(options);
    let begun = arguments.length > 1;
    let sum = initialValue;
    if (options?.signal?.aborted) {
      const error = abortError(options.signal);
      this.once('error', () => {});
      this.destroy(error);
      throw error;
    }
    const stop = new AbortController();
    options?.signal?.addEventListener('abort', () => stop.abort(), { once: true });
    try {
      for await (const chunk of this) {
        if (options?.signal?.aborted) throw abortError();
        sum = begun ? await reducer(sum, chunk, { signal: stop.signal }) : chunk;
        begun = true;
      }
    } finally {
      stop.abort();
    }
    if (begun) return sum;
    throw coded(TypeError, 'ERR_MISSING_ARGS', 'Reduce of an empty stream requires an initial value');
  },
  async some(fn, options = undefined) {
    for await (const chunk of filtered(this, fn, options)) return chunk !== nothing;
    return false;
  },
  async every(fn, options = undefined) {
    checkFunction(fn, 'fn');
    const fails = async (chunk, given) => !(await fn(chunk, given));
    for await (const chunk of filtered(this, fails, options)) return chunk === nothing;
    return true;
  },
  async find(fn, options) {
    for await (const chunk of filtered(this, fn, options)) return chunk;
    return undefined;
  },
};

/** Gives a class of streams the methods; `streamOf` makes a stream of an iterable, as `Readable.from` does. */
export function giveHelpers(prototype, streamOf) {
  const give = (name, length, value) => {
    Object.defineProperties(value, { name: { value: name }, length: { value: length } });
    Object.defineProperty(prototype, name, { value, writable: true, enumerable: false, configurable: true });
  };
  const checkNew = (made) => {
    if (made) throw coded(TypeError, 'ERR_ILLEGAL_CONSTRUCTOR', 'Illegal constructor');
  };
  for (const [name, make] of Object.entries(iterables)) {
    give(name, make.length, function derived(...given) {
      checkNew(new.target);
      return streamOf(make.apply(this, given));
    });
  }
  for (const [name, run] of Object.entries(promises)) {
    give(name, run.length, function answering(...given) {
      checkNew(new.target);
      return run.apply(this, given);
    });
  }
}
