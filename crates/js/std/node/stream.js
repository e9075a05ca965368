import { Stream, addAbortSignal, defaultMark, destroyStream, setDefaultMark } from 'internal/stream/base';
import { checkOptions } from 'internal/stream/helpers';
import { Readable } from 'internal/stream/readable';
import { Writable } from 'internal/stream/writable';
import { Duplex, PassThrough, Transform } from 'internal/stream/duplex';
import 'internal/stream/adapters';
import { finished, pipeline } from 'internal/stream/pipeline';
import { webInside, webKind } from 'internal/stream/web';
import promises from 'node:stream/promises';
import { Bytes as Buffer } from 'internal/buffer';
import { coded, wrongValue } from 'internal/errors';
import { nextTick } from 'internal/ticks';

export { defaultMark as getDefaultHighWaterMark, setDefaultMark as setDefaultHighWaterMark };
/** What a stream of the web's is asked, else what one of Node's is. */
const ask = (stream, web, node) => {
  const inside = webInside(stream);
  return inside ? web(inside) : node();
};
export const isReadable = (stream) =>
  ask(
    stream,
    ({ state }) => (webKind(stream) === 'readable' ? state === 'readable' : null),
    () => {
      if (typeof stream?.readable !== 'boolean') return null;
      return !stream.destroyed && stream.readable && !stream._readableState?.endEmitted;
    },
  );
export const isWritable = (stream) =>
  ask(
    stream,
    ({ state }) => (webKind(stream) === 'writable' ? state === 'writable' : null),
    () => {
      if (typeof stream?.writable !== 'boolean') return null;
      return !stream.destroyed && stream.writable && !stream._writableState?.ending;
    },
  );
export const isErrored = (stream) =>
  ask(
    stream,
    ({ state }) => state === 'errored',
    () => !!stream?.errored,
  );
export const isDisturbed = (stream) => Readable.isDisturbed(stream);
export const destroy = destroyStream;
const isStream = (value) => !!(value?._readableState || value?._writableState);
export const isDestroyed = (stream) =>
  isStream(stream) ? !!(stream.destroyed || stream._readableState?.destroyed) : null;

// What packages that bring their own streams read.
export const _isArrayBufferView = ArrayBuffer.isView;
export const _isUint8Array = (value) => value instanceof Uint8Array;
export const _uint8ArrayToBuffer = (bytes) => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** The chunks of the web's streams are any values. */
const ofAnything = (part) =>
  webKind(part) === 'transform' ? Duplex.fromWeb(part, { objectMode: true }) : Duplex.from(part);

/** One stream of several, each piped into the next: it writes to the first and reads from the last. */
export function compose(...given) {
  if (given.length === 0)
    throw coded(TypeError, 'ERR_MISSING_ARGS', 'The "streams" argument must be specified');
  const parts = given.map((part) => (isStream(part) ? part : ofAnything(part)));
  parts.forEach((part, at) => {
    const kind = webKind(given[at]);
    if (at < parts.length - 1 && (kind === 'writable' || !part._readableState))
      throw wrongValue(`streams[${at}]`, given[at], 'must be readable');
    if (at > 0 && (kind === 'readable' || !part._writableState))
      throw wrongValue(`streams[${at}]`, given[at], 'must be writable');
  });
  if (parts.length === 1) return parts[0];
  const [first] = parts;
  const last = parts.at(-1);
  const whole = Duplex.from({
    writable: first.writable ? first : undefined,
    readable: last.readable ? last : undefined,
  });
  pipeline(...parts, (error) => {
    if (error) whole.destroy(error);
  });
  whole.on('close', () => {
    for (const part of parts) part.destroy();
  });
  return whole;
}

Readable.prototype.compose = function compose_(stream, options) {
  checkOptions(options);
  if ((isStream(stream) && !stream._writableState) || webKind(stream) === 'readable')
    throw wrongValue('stream', stream, 'must be writable');
  const made = compose(this, stream);
  if (options?.signal) addAbortSignal(options.signal, made);
  return made;
};
Object.defineProperty(Readable.prototype.compose, 'name', { value: 'compose' });

class Side extends Duplex {
  _other = null;
  _waiting = null;

  _read() {
    const waiting = this._waiting;
    this._waiting = null;
    waiting?.();
  }

  _write(chunk, encoding, callback) {
    if (chunk.length === 0) nextTick(callback);
    else {
      this._other._waiting = callback;
      this._other.push(chunk);
    }
  }

  _final(callback) {
    this._other.on('end', callback);
    this._other.push(null);
  }
}

/** Two streams: what is written to one is read from the other. */
export function duplexPair(options) {
  const [one, other] = [new Side(options), new Side(options)];
  one._other = other;
  other._other = one;
  return [one, other];
}

Object.assign(Stream, {
  Stream,
  Readable,
  Writable,
  Duplex,
  Transform,
  PassThrough,
  _isArrayBufferView,
  _isUint8Array,
  _uint8ArrayToBuffer,
  addAbortSignal,
  compose,
  destroy,
  duplexPair,
  finished,
  getDefaultHighWaterMark: defaultMark,
  isDestroyed,
  isDisturbed,
  isErrored,
  isReadable,
  isWritable,
  pipeline,
  promises,
  setDefaultHighWaterMark: setDefaultMark,
});
const custom = Symbol.for('nodejs.util.promisify.custom');
Object.defineProperty(pipeline, custom, { value: promises.pipeline });
Object.defineProperty(finished, custom, { value: promises.finished });

export {
  Duplex,
  PassThrough,
  Readable,
  Stream,
  Transform,
  Writable,
  addAbortSignal,
  finished,
  pipeline,
  promises,
};
export default Stream;
