// `map`, `filter` and the other methods that a readable stream has as a list has them.

import { AbortController, AbortSignal } from 'internal/event-target';
import { checkFunction, coded, outOfRange } from 'internal/errors';

/** What `run` answers for each chunk, in their order, while it works on several. */
async function* concurrently(stream, run, options, stop) {
  const most = Math.floor(options?.concurrency ?? 1);
  const signal = options?.signal ? AbortSignal.any([options.signal, stop.signal]) : stop.signal;
  const iterator = stream[Symbol.asyncIterator]();
  const begun = [];
  let ended = false;
  try {
    for (;;) {
      while (!ended && begun.length < most) {
        const { value, done } = await iterator.next();
        ended = done;
        if (done) break;
        const result = (async () => run(value, { signal }))();
        result.catch(() => {});
        begun.push(result);
      }
      if (begun.length === 0) return;
      yield await begun.shift();
    }
  } finally {
    stop.abort();
    if (!ended) await iterator.return?.();
  }
}

/** Returns the methods; `streamOf` makes a stream of an iterable, as `Readable.from` does. */
export function helpers(streamOf) {
  const from = (make) =>
    function derived(...given) {
      return streamOf(make(this, ...given), { objectMode: true });
    };
  const mapped = (pick, wrap) =>
    function derived(run, options) {
      checkFunction(run, 'fn');
      const many = options?.concurrency ?? 1;
      if (!(many >= 1)) throw outOfRange('concurrency', '>= 1', many);
      const call = wrap ? (chunk, given) => wrap(chunk, run(chunk, given)) : run;
      return streamOf(pick(concurrently(this, call, options, new AbortController())), { objectMode: true });
    };
  return {
    map: mapped(async function* map(results) {
      yield* results;
    }),
    filter: mapped(
      async function* filter(results) {
        for await (const { chunk, passes } of results) if (passes) yield chunk;
      },
      async (chunk, passes) => ({ chunk, passes: await passes }),
    ),
    flatMap: mapped(async function* flatMap(results) {
      for await (const rows of results) yield* rows;
    }),
    take: from(async function* take(stream, many) {
      let left = many;
      if (left > 0)
        for await (const chunk of stream) {
          yield chunk;
          if (--left <= 0) return;
        }
    }),
    drop: from(async function* drop(stream, many) {
      let left = many;
      for await (const chunk of stream) if (left-- <= 0) yield chunk;
    }),
    async toArray() {
      const all = [];
      for await (const chunk of this) all.push(chunk);
      return all;
    },
    async forEach(run, options) {
      checkFunction(run, 'fn');
      const stop = new AbortController();
      for await (const done of concurrently(this, run, options, stop)) void done;
    },
    async reduce(run, ...initial) {
      let sum = initial[0];
      let begun = initial.length > 0;
      for await (const chunk of this) {
        sum = begun ? await run(sum, chunk) : chunk;
        begun = true;
      }
      if (begun) return sum;
      throw coded(TypeError, 'ERR_MISSING_ARGS', 'Reduce of an empty stream requires an initial value');
    },
    async some(run) {
      for await (const chunk of this) if (await run(chunk)) return true;
      return false;
    },
    async every(run) {
      for await (const chunk of this) if (!(await run(chunk))) return false;
      return true;
    },
    async find(run) {
      for await (const chunk of this) if (await run(chunk)) return chunk;
      return undefined;
    },
  };
}
