// Node's streams as the web's, and the web's as Node's.

import { Bytes } from 'internal/buffer';
import { abortError } from 'internal/errors';
import { Duplex } from 'internal/stream/duplex';
import { Readable } from 'internal/stream/readable';
import { Writable } from 'internal/stream/writable';

async function pull(reader, stream) {
  try {
    const { value, done } = await reader.read();
    stream.push(done ? null : value);
  } catch (error) {
    stream.destroy(error);
  }
}

/** The writing half of what is built around a writer of the web's. */
function writes(writer) {
  return {
    write(chunk, encoding, callback) {
      writer.ready.then(() => writer.write(chunk)).then(() => callback(), callback);
    },
    final(callback) {
      writer.close().then(() => callback(), callback);
    },
  };
}

Readable.fromWeb = function fromWeb(web, options) {
  const reader = web.getReader();
  return new Readable({
    ...options,
    read() {
      void pull(reader, this);
    },
    destroy(error, callback) {
      reader.cancel(error ?? undefined).then(
        () => callback(error),
        () => callback(error),
      );
    },
  });
};

Readable.toWeb = function toWeb(stream) {
  const iterator = stream[Symbol.asyncIterator]();
  return new ReadableStream(
    {
      async pull(controller) {
        const { value, done } = await iterator.next();
        if (done) controller.close();
        else
          controller.enqueue(
            Bytes.isBuffer(value) ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : value,
          );
      },
      async cancel(reason) {
        stream.destroy(reason instanceof Error ? reason : abortError({ reason }));
        await iterator.return?.();
      },
    },
    { highWaterMark: 0 },
  );
};

Writable.fromWeb = function fromWeb(web, options) {
  const writer = web.getWriter();
  return new Writable({
    ...options,
    ...writes(writer),
    destroy(error, callback) {
      if (error)
        writer.abort(error).then(
          () => callback(error),
          () => callback(error),
        );
      else callback(null);
    },
  });
};

Writable.toWeb = function toWeb(stream) {
  const told = (run) =>
    new Promise((resolve, reject) => {
      run((error) => (error ? reject(error) : resolve()));
    });
  return new WritableStream({
    write: (chunk) => told((done) => stream.write(chunk, done)),
    close: () => told((done) => stream.end(done)),
    abort(reason) {
      stream.destroy(reason);
    },
  });
};

Duplex.fromWeb = function fromWeb({ readable, writable }, options) {
  const reader = readable.getReader();
  const writer = writable.getWriter();
  return new Duplex({
    ...options,
    ...writes(writer),
    read() {
      void pull(reader, this);
    },
    destroy(error, callback) {
      const ends = [reader.cancel(error ?? undefined), error ? writer.abort(error) : null];
      Promise.allSettled(ends).then(() => callback(error));
    },
  });
};

Duplex.toWeb = function toWeb(stream) {
  return { readable: Readable.toWeb(stream), writable: Writable.toWeb(stream) };
};
