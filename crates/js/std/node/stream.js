import { Stream, addAbortSignal } from 'internal/stream/base';
import { Readable } from 'internal/stream/readable';
import { Writable } from 'internal/stream/writable';
import { Duplex, PassThrough, Transform } from 'internal/stream/duplex';
import 'internal/stream/adapters';
import { finished, pipeline } from 'internal/stream/pipeline';
import promises from 'node:stream/promises';

let byteMark = 65536;
let objectMark = 16;

export const getDefaultHighWaterMark = (objectMode) => (objectMode ? objectMark : byteMark);
export const setDefaultHighWaterMark = (objectMode, value) => {
  if (objectMode) objectMark = value;
  else byteMark = value;
};
export const isReadable = (stream) =>
  !!stream?._readableState && !stream.destroyed && !stream._readableState.endEmitted;
export const isWritable = (stream) =>
  !!stream?._writableState && !stream.destroyed && !stream._writableState.ending;
export const isErrored = (stream) => !!stream?.errored;
export const isDisturbed = (stream) => Readable.isDisturbed(stream);
export const destroy = (stream, error) => stream.destroy(error);

Object.assign(Stream, {
  Stream,
  Readable,
  Writable,
  Duplex,
  Transform,
  PassThrough,
  addAbortSignal,
  destroy,
  finished,
  getDefaultHighWaterMark,
  isDisturbed,
  isErrored,
  isReadable,
  isWritable,
  pipeline,
  promises,
  setDefaultHighWaterMark,
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
