// `map`, `filter` and the other methods that a readable stream has as a list has them.

/** Returns the methods; `streamOf` makes a stream of an iterable, as `Readable.from` does. */
export function helpers(streamOf) {
  const from = (make) =>
    function derived(...given) {
      return streamOf(make(this, ...given), { objectMode: true });
    };
  return {
    map: from(async function* map(stream, run) {
      for await (const chunk of stream) yield await run(chunk);
    }),
    filter: from(async function* filter(stream, run) {
      for await (const chunk of stream) if (await run(chunk)) yield chunk;
    }),
    flatMap: from(async function* flatMap(stream, run) {
      for await (const chunk of stream) yield* await run(chunk);
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
    async forEach(run) {
      for await (const chunk of this) await run(chunk);
    },
    async reduce(run, ...initial) {
      let sum = initial[0];
      let begun = initial.length > 0;
      for await (const chunk of this) {
        sum = begun ? await run(sum, chunk) : chunk;
        begun = true;
      }
      return sum;
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
