// Streams over what an iterable gives.

import { coded, wrongType } from 'internal/errors';
import { nextTick } from 'internal/ticks';

/** A stream of the class over what an iterable gives. */
export function streamOf(Class, source, options) {
  if (typeof source === 'string' || source instanceof Uint8Array) {
    return new Class({
      objectMode: true,
      ...options,
      read() {
        this.push(source);
        this.push(null);
      },
    });
  }
  const isAsync = !!source?.[Symbol.asyncIterator];
  const iterator = isAsync ? source[Symbol.asyncIterator]() : source?.[Symbol.iterator]?.();
  if (!iterator) throw wrongType('iterable', 'an instance of Iterable', source);
  let reading = false;
  const stream = new Class({ objectMode: true, highWaterMark: 1, ...options });
  const next = async () => {
    for (;;) {
      try {
        const { value, done } = isAsync ? await iterator.next() : iterator.next();
        if (done) {
          stream.push(null);
          return;
        }
        const chunk = typeof value?.then === 'function' ? await value : value;
        if (chunk === null) {
          reading = false;
          throw coded(TypeError, 'ERR_STREAM_NULL_VALUES', 'May not write null values to stream');
        }
        if (stream.push(chunk)) continue;
        reading = false;
      } catch (error) {
        stream.destroy(error);
      }
      return;
    }
  };
  stream._read = () => {
    if (reading) return;
    reading = true;
    void next();
  };
  const before = stream._destroy;
  /** Ends the source, with the error where it takes one. */
  const close = async (error) => {
    if (error !== undefined && error !== null && typeof iterator.throw === 'function') {
      const { value, done } = await iterator.throw(error);
      await value;
      if (done) return;
    }
    if (typeof iterator.return === 'function') {
      const { value } = await iterator.return();
      await value;
    }
  };
  stream._destroy = (error, callback) =>
    before.call(stream, error, (given) => {
      close(error).then(
        () => nextTick(callback, given),
        (failed) => nextTick(callback, failed ?? given),
      );
    });
  return stream;
}
