// Node's streams as the web's, and the web's as Node's.

import { Bytes } from 'internal/buffer';
import { abortError, checkObject, wrongType, wrongValue } from 'internal/errors';
import { destroyStream, streamError } from 'internal/stream/base';
import { Duplex } from 'internal/stream/duplex';
import { finished } from 'internal/stream/pipeline';
import { Readable } from 'internal/stream/readable';
import { webKind } from 'internal/stream/web';
import { Writable } from 'internal/stream/writable';

const noop = () => {};
const premature = () => streamError('ERR_STREAM_PREMATURE_CLOSE', 'Premature close');

function checkWeb(value, kind, name) {
  if (webKind(value) !== kind)
    throw wrongType(
      name,
      `an instance of ${kind === 'readable' ? 'ReadableStream' : 'WritableStream'}`,
      value,
    );
}

/** The options of a stream of Node's around one of the web's. */
function checked(options = {}) {
  checkObject(options, 'options');
  const { encoding, objectMode = false, decodeStrings = true } = options;
  if (encoding !== undefined && !Bytes.isEncoding(encoding)) throw wrongValue('options.encoding', encoding);
  if (typeof objectMode !== 'boolean') throw wrongType('options.objectMode', 'of type boolean', objectMode);
  if (typeof decodeStrings !== 'boolean')
    throw wrongType('options.decodeStrings', 'of type boolean', decodeStrings);
  const { highWaterMark, signal } = options;
  return { encoding, objectMode, decodeStrings, highWaterMark, signal };
}

/** What is read of a reader of the web's. `stream` answers the stream around it. */
function reads(reader, stream) {
  const half = { over: false };
  reader.closed.then(
    () => {
      half.over = true;
    },
    (error) => {
      half.over = true;
      destroyStream(stream(), error);
    },
  );
  half.read = () => {
    reader.read().then(
      ({ value, done }) => stream().push(done ? null : value),
      (error) => destroyStream(stream(), error),
    );
  };
  half.end = (error) => (half.over ? undefined : reader.cancel(error ?? undefined));
  return half;
}

/** What is written to a writer of the web's. */
function writes(writer, stream) {
  const half = { over: false };
  writer.closed.then(
    () => {
      half.over = true;
      if (!stream()._writableState.ending) destroyStream(stream(), premature());
    },
    (error) => {
      half.over = true;
      destroyStream(stream(), error);
    },
  );
  half.write = (chunk, encoding, callback) => {
    writer.ready.then(() => writer.write(chunk)).then(() => callback(), callback);
  };
  half.final = (callback) => {
    if (half.over) callback();
    else writer.close().then(() => callback(), callback);
  };
  return half;
}

/** Calls back once the halves that a destroyed stream left have ended. */
const settle = (ends, error, callback) => {
  Promise.allSettled(ends).then(() => callback(error));
};

Readable.fromWeb = function fromWeb(web, options) {
  checkWeb(web, 'readable', 'readableStream');
  const { encoding, objectMode, highWaterMark, signal } = checked(options);
  const half = reads(web.getReader(), () => stream);
  const stream = new Readable({
    encoding,
    objectMode,
    highWaterMark,
    signal,
    read: half.read,
    destroy: (error, callback) => settle([half.end(error)], error, callback),
  });
  return stream;
};

Writable.fromWeb = function fromWeb(web, options) {
  checkWeb(web, 'writable', 'writableStream');
  const { objectMode, decodeStrings, highWaterMark, signal } = checked(options);
  const writer = web.getWriter();
  const half = writes(writer, () => stream);
  const stream = new Writable({
    objectMode,
    decodeStrings,
    highWaterMark,
    signal,
    write: half.write,
    final: half.final,
    destroy(error, callback) {
      const end = () => (error ? writer.abort(error) : writer.close());
      settle([half.over ? undefined : end()], error, callback);
    },
  });
  return stream;
};

Duplex.fromWeb = function fromWeb(pair, options) {
  checkObject(pair, 'pair');
  checkWeb(pair.readable, 'readable', 'pair.readable');
  checkWeb(pair.writable, 'writable', 'pair.writable');
  const settings = checked(options);
  const writer = pair.writable.getWriter();
  const output = reads(pair.readable.getReader(), () => stream);
  const input = writes(writer, () => stream);
  const stream = new Duplex({
    ...settings,
    allowHalfOpen: options?.allowHalfOpen ?? false,
    read: output.read,
    write: input.write,
    final: input.final,
    destroy(error, callback) {
      settle([input.over ? undefined : writer.abort(error), output.end(error)], error, callback);
    },
  });
  return stream;
};

/** An error of one of Node's streams as one of the web's. */
const told = (error) =>
  error?.code === 'ERR_STREAM_PREMATURE_CLOSE' ? abortError({ reason: error }) : error;

const sizes = { bytes: (chunk) => chunk?.byteLength ?? chunk?.length ?? 1 };

Readable.toWeb = function toWeb(stream, options = {}) {
  if (typeof stream?._readableState !== 'object')
    throw wrongType('streamReadable', 'an stream.Readable', stream);
  checkObject(options, 'options');
  const { type, strategy } = options;
  if (type !== undefined && type !== 'bytes')
    throw wrongValue('options.type', type, "must be one of: 'bytes', undefined");
  const objects = stream.readableObjectMode;
  const isOpen = !stream.destroyed && stream.readable;
  let controller;
  let over = false;
  const source = {
    type,
    start(given) {
      controller = given;
    },
    cancel(reason) {
      over = true;
      destroyStream(stream, reason);
    },
  };
  const highWaterMark = stream.readableHighWaterMark;
  const usual = type === 'bytes' || objects ? { highWaterMark } : { highWaterMark, size: sizes.bytes };
  if (isOpen) source.pull = () => void stream.resume();
  const web = new ReadableStream(source, isOpen ? (strategy ?? usual) : undefined);
  finished(stream, { writable: false }, (error) => {
    stream.on('error', noop);
    if (over) return;
    over = true;
    if (error) {
      controller.error(told(error));
      return;
    }
    controller.close();
    if (type === 'bytes') controller.byobRequest?.respond(0);
  });
  if (isOpen) {
    stream.pause();
    stream.on('data', (chunk) => {
      if (over) return;
      // A copy: the bytes may be a part of a pool.
      controller.enqueue(Bytes.isBuffer(chunk) && !objects ? new Uint8Array(chunk) : chunk);
      if (controller.desiredSize <= 0) stream.pause();
    });
  }
  return web;
};

function withResolvers() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  return made;
}

Writable.toWeb = function toWeb(stream) {
  if (typeof stream?.write !== 'function' || typeof stream.on !== 'function')
    throw wrongType('streamWritable', 'an stream.Writable', stream);
  if (stream.destroyed || !stream.writable) {
    const web = new WritableStream();
    void web.close();
    return web;
  }
  let controller;
  let drained;
  let closing;
  const end = (error) => {
    drained?.reject(error);
    closing?.reject(error);
    controller.error(error);
  };
  finished(stream, { readable: false }, (error) => {
    stream.on('error', noop);
    if (error) end(told(error));
    else if (closing) closing.resolve();
    else end(abortError());
  });
  stream.on('drain', () => drained?.resolve());
  const highWaterMark = stream.writableHighWaterMark;
  return new WritableStream(
    {
      start(given) {
        controller = given;
      },
      write(chunk) {
        const bytes = !stream.writableObjectMode && chunk instanceof ArrayBuffer;
        if (stream.write(bytes ? new Uint8Array(chunk) : chunk)) return undefined;
        drained = withResolvers();
        if (!stream.writableNeedDrain) drained.resolve();
        return drained.promise;
      },
      close() {
        if (stream._writableState?.ending) return undefined;
        closing = withResolvers();
        stream.end();
        return closing.promise;
      },
      abort: (reason) => destroyStream(stream, reason),
    },
    stream.writableObjectMode ? { highWaterMark } : { highWaterMark, size: sizes.bytes },
  );
};

Duplex.toWeb = function toWeb(stream, options = {}) {
  if (typeof stream?._writableState !== 'object' || typeof stream._readableState !== 'object')
    throw wrongType('duplex', 'an stream.Duplex', stream);
  checkObject(options, 'options');
  const type = options.readableType ?? options.type;
  const writable = Writable.toWeb(stream);
  if (stream.destroyed || !stream.readable) {
    const readable = new ReadableStream({ type });
    void readable.cancel();
    return { readable, writable };
  }
  return { readable: Readable.toWeb(stream, { type }), writable };
};
