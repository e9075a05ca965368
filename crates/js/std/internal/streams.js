// The web's streams. Each part is a module of its own, so that a plugin loads what it uses.

export { ByteLengthQueuingStrategy, CountQueuingStrategy } from 'internal/streams/common';
export {
  ReadableStream,
  ReadableStreamDefaultController,
  ReadableStreamDefaultReader,
} from 'internal/streams/readable';
export {
  ReadableByteStreamController,
  ReadableStreamBYOBReader,
  ReadableStreamBYOBRequest,
} from 'internal/streams/bytes';
export {
  TextDecoderStream,
  TextEncoderStream,
  TransformStream,
  TransformStreamDefaultController,
} from 'internal/streams/transform';
export {
  WritableStream,
  WritableStreamDefaultController,
  WritableStreamDefaultWriter,
} from 'internal/streams/writable';
