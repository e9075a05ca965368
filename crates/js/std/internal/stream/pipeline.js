// Several streams as one: joined, and failing together.

import { abortError, checkFunction, checkObject, coded, kindOf, wrongType } from 'internal/errors';
import { addAbortSignal, streamError } from 'internal/stream/base';
import { Readable } from 'internal/stream/readable';
import { Writable } from 'internal/stream/writable';
import { AbortController } from 'internal/event-target';
import { Duplex, PassThrough } from 'internal/stream/duplex';
import { webInside, webKind } from 'internal/stream/web';
import { nextTick } from 'internal/ticks';

const isReadable = (stream) => typeof stream?.pipe === 'function' && !!stream._readableState;
const isWritable = (stream) => typeof stream?.write === 'function' && typeof stream?.on === 'function';

/** Calls back once a stream has ended, or will not. Answers the function that stops waiting. */
export function finished(stream, options, callback) {
  if (arguments.length === 2) [options, callback] = [{}, options];
  else if (options !== undefined && options !== null) checkObject(options, 'options');
  checkFunction(callback, 'callback');
  const inside = webInside(stream);
  if (inside) return finishedWeb(stream, inside, options?.signal, callback);
  if (typeof stream?.on !== 'function')
    throw wrongType('stream', 'an instance of ReadableStream, WritableStream, or Stream', stream);
  const reads = options?.readable ?? (isReadable(stream) && stream._readableState !== undefined);
  const writes = options?.writable ?? !!stream._writableState;
  let read = !reads || !!stream._readableState?.endEmitted;
  let written = !writes || !!stream._writableState?.finished;
  let called = false;
  const done = (error) => {
    if (called) return;
    called = true;
    forget();
    callback.call(stream, error ?? undefined);
  };
  // What destroys itself in the end is waited for until it has.
  const ending = stream._streamEnd;
  const closes =
    !!ending?.autoDestroy &&
    ending.emitClose &&
    !ending.closed &&
    !!stream._readableState === !!reads &&
    !!stream._writableState === !!writes &&
    !(read && written);
  const check = () => {
    if (read && written && !(closes && !stream.destroyed)) done();
  };
  const ended = () => {
    read = true;
    check();
  };
  const finish = () => {
    written = true;
    check();
  };
  const failed = (error) => done(error);
  const closed = () => {
    if (stream.errored) done(stream.errored);
    else if (!read && !stream._readableState?.endEmitted)
      done(streamError('ERR_STREAM_PREMATURE_CLOSE', 'Premature close'));
    else if (!written && !stream._writableState?.finished)
      done(streamError('ERR_STREAM_PREMATURE_CLOSE', 'Premature close'));
    else done();
  };
  const aborted = () => done(abortError(options.signal));
  const forget = () => {
    stream.removeListener('end', ended);
    stream.removeListener('finish', finish);
    stream.removeListener('error', failed);
    stream.removeListener('close', closed);
    options?.signal?.removeEventListener('abort', aborted);
  };
  stream.on('end', ended);
  stream.on('finish', finish);
  if (options?.error !== false) stream.on('error', failed);
  stream.on('close', closed);
  if (options?.signal?.aborted) nextTick(aborted);
  else options?.signal?.addEventListener('abort', aborted, { once: true });
  if (stream.closed) nextTick(closed);
  else if (stream.errored) nextTick(() => failed(stream.errored));
  else if (read && written) nextTick(check);
  return forget;
}

/** As `finished`, of a stream of the web's. */
function finishedWeb(stream, inside, signal, callback) {
  let called = false;
  const done = (...given) => {
    if (called) return;
    called = true;
    signal?.removeEventListener('abort', aborted);
    callback.apply(stream, given);
  };
  const aborted = () => done(abortError(signal));
  if (signal?.aborted) nextTick(aborted);
  else signal?.addEventListener('abort', aborted, { once: true });
  inside.ended.then(
    () => nextTick(done),
    (error) => nextTick(done, error),
  );
  return () => {};
}

/** A stream of the web's as one of Node's, at its place in a pipeline. */
function fromWeb(part, kind, isFirst, isLast) {
  const options = { objectMode: true };
  if (kind === 'readable') return Readable.fromWeb(part, options);
  if (kind === 'writable') return Writable.fromWeb(part, options);
  // The other half of a pair at either end belongs to the program.
  if (isFirst) return Readable.fromWeb(part.readable, options);
  return isLast ? Writable.fromWeb(part.writable, options) : Duplex.fromWeb(part, options);
}

/** What a function that is not the last one answers, and its name in errors. */
const wanted = (before) =>
  before ? ['AsyncIterable', 'transform'] : ['Iterable, AsyncIterable or Stream', 'source'];

function toStream(part, before, last, signal) {
  if (typeof part === 'function') {
    const answer = before ? part(before, { signal }) : part({ signal });
    if (answer?.[Symbol.asyncIterator] || answer?.[Symbol.iterator]) {
      return isReadable(answer) ? answer : Readable.from(answer);
    }
    if (last && typeof answer?.then === 'function') {
      const through = new PassThrough({ objectMode: true });
      answer.then(
        (value) => {
          through.value = value;
          if (value !== undefined && value !== null) through.write(value);
          through.end();
          through.resume();
        },
        (error) => through.destroy(error),
      );
      return through;
    }
    const [expected, place] = last ? ['AsyncIterable or Promise', 'destination'] : wanted(before);
    throw coded(
      TypeError,
      'ERR_INVALID_RETURN_VALUE',
      `Expected ${expected} to be returned from the "${place}" function but got ${kindOf(answer)}.`,
    );
  }
  const kind = webKind(part);
  if (kind) return fromWeb(part, kind, !before, last);
  if (isReadable(part) || isWritable(part)) return part;
  return part?.[Symbol.asyncIterator] || part?.[Symbol.iterator] ? Readable.from(part) : Duplex.from(part);
}

export function pipeline(...given) {
  const callback = given.pop();
  if (typeof callback !== 'function')
    throw wrongType('streams[stream.length - 1] property', 'of type function', callback);
  const parts = given.length === 1 && Array.isArray(given[0]) ? given[0] : given;
  if (parts.length < 2)
    throw coded(TypeError, 'ERR_MISSING_ARGS', 'The "streams" argument must be specified');
  return join(parts, {}, callback);
}

export function join(parts, options, callback) {
  const streams = [];
  const stop = parts.some((part) => typeof part === 'function') ? new AbortController() : undefined;
  let left = 0;
  let failure;
  const settle = (error) => {
    if (error && (!failure || failure.code === 'ERR_STREAM_PREMATURE_CLOSE')) failure = error;
    if (error) for (const stream of streams) if (!stream.destroyed) stream.destroy(error);
    left -= 1;
    if (error || left === 0) stop?.abort();
    if (left === 0) nextTick(() => callback(failure, streams.at(-1)?.value));
  };
  for (const [at, part] of parts.entries()) {
    const before = streams.at(-1);
    const stream = toStream(part, before, at === parts.length - 1, stop?.signal);
    const consumed = typeof part === 'function' && at > 0;
    if (before && !consumed) {
      const last = at === parts.length - 1;
      before.pipe(stream, { end: false });
      if (!(last && options.end === false)) {
        const end = () => stream.end();
        if (before._readableState?.endEmitted) nextTick(end);
        else before.once('end', end);
      }
    }
    streams.push(stream);
    left += 1;
  }
  for (const [at, stream] of streams.entries()) {
    const last = at === streams.length - 1;
    stream.on('error', () => {});
    finished(
      stream,
      {
        readable: !last && isReadable(stream),
        writable: at > 0 && !!stream._writableState && !(last && options.end === false),
      },
      settle,
    );
    if (options.signal) addAbortSignal(options.signal, stream);
  }
  return webKind(parts.at(-1)) ? parts.at(-1) : streams.at(-1);
}
