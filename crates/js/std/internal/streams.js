// Web streams: LLRT's, with what it lacks.

import native from 'native/streams';
import { AbortSignal } from 'internal/event-target';
import { TextDecoder, TextEncoder } from 'internal/text';

export const {
  ByteLengthQueuingStrategy,
  CountQueuingStrategy,
  ReadableByteStreamController,
  ReadableStream,
  ReadableStreamBYOBReader,
  ReadableStreamBYOBRequest,
  ReadableStreamDefaultController,
  ReadableStreamDefaultReader,
  WritableStream,
  WritableStreamDefaultController,
  WritableStreamDefaultWriter,
} = native;

async function pipe(from, to, options) {
  const { preventClose = false, preventAbort = false, preventCancel = false, signal } = options;
  const reader = from.getReader();
  const writer = to.getWriter();
  let give;
  const given = new Promise((_, reject) => {
    give = () => reject(signal.reason);
  });
  given.catch(() => {});
  if (signal?.aborted) give();
  signal?.addEventListener('abort', give, { once: true });
  // The sink's failure ends the pipe even while the source is silent.
  const closed = writer.closed.then(() => {
    throw new TypeError('The destination stream was closed');
  });
  closed.catch(() => {});

  try {
    for (;;) {
      await Promise.race([writer.ready, given, closed]);

      const { value, done } = await Promise.race([reader.read(), given, closed]);

      if (done) break;
      writer.write(value).catch(() => {});
    }
    if (!preventClose) await writer.close();
  } catch (error) {
    const failed = await Promise.race([
      reader.closed.then(
        () => false,
        () => true,
      ),
      Promise.resolve(false),
    ]);
    if (!preventAbort) await writer.abort(error).catch(() => {});
    if (!preventCancel && !failed) await reader.cancel(error).catch(() => {});
    throw error;
  } finally {
    signal?.removeEventListener('abort', give);
    reader.releaseLock();
    writer.releaseLock();
  }
}

Object.defineProperties(ReadableStream.prototype, {
  pipeTo: {
    configurable: true,
    writable: true,
    value: function pipeTo(to, options = {}) {
      if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) {
        return Promise.reject(
          new TypeError('The "options.signal" property must be an instance of AbortSignal'),
        );
      }
      if (this.locked || to.locked) {
        return Promise.reject(new TypeError('A stream that is piped must not be locked'));
      }
      return pipe(this, to, options ?? {});
    },
  },
  pipeThrough: {
    configurable: true,
    writable: true,
    value: function pipeThrough({ readable, writable }, options) {
      this.pipeTo(writable, options).catch(() => {});
      return readable;
    },
  },
});

export class TransformStreamDefaultController {
  #readable;
  #flow;

  constructor(readable, flow) {
    this.#readable = readable;
    this.#flow = flow;
  }

  get desiredSize() {
    return this.#readable.desiredSize;
  }

  enqueue(chunk) {
    // Before it is handed on: whoever takes it may ask for more at once.
    this.#flow.asked = false;
    this.#readable.enqueue(chunk);
  }

  error(reason) {
    this.#flow.fail(reason);
  }

  terminate() {
    this.#readable.close();
    this.#flow.fail(new TypeError('The transform stream has been terminated'), true);
  }
}

export class TransformStream {
  #readable;
  #writable;

  constructor(transformer = {}, writableStrategy = {}, readableStrategy = {}) {
    const { start, transform, flush, cancel } = transformer ?? {};
    let source;
    let sink;
    let controller;
    let over;
    let wake = () => {};
    const flow = {
      asked: false,
      fail(reason, terminated) {
        over ??= { reason };
        if (!terminated) source.error(reason);
        sink.error(reason);
        wake();
      },
    };
    this.#readable = new ReadableStream(
      {
        start: (given) => {
          source = given;
        },
        pull: () => {
          flow.asked = true;
          wake();
        },
        cancel: async (reason) => {
          over ??= { reason };
          wake();
          await cancel?.call(transformer, reason);
          sink.error(reason);
        },
      },
      { highWaterMark: 0, ...readableStrategy },
    );
    this.#writable = new WritableStream(
      {
        start: (given) => {
          sink = given;
          controller = new TransformStreamDefaultController(source, flow);
          return start?.call(transformer, controller);
        },
        write: async (chunk) => {
          // Nothing is transformed before somebody wants it.
          // `over` changes while this awaits.
          // oxlint-disable-next-line no-unmodified-loop-condition
          while (!flow.asked && !over && source.desiredSize <= 0) {
            await new Promise((resolve) => {
              wake = resolve;
            });
          }
          if (over) throw over.reason;
          try {
            if (transform) await transform.call(transformer, chunk, controller);
            else controller.enqueue(chunk);
          } catch (error) {
            flow.fail(error);
            throw error;
          }
        },
        close: async () => {
          try {
            await flush?.call(transformer, controller);
            if (over) throw over.reason;
            source.close();
          } catch (error) {
            if (!over) flow.fail(error);
            throw error;
          }
        },
        abort: async (reason) => {
          over ??= { reason };
          await cancel?.call(transformer, reason);
          source.error(reason);
        },
      },
      { highWaterMark: 1, ...writableStrategy },
    );
  }

  get readable() {
    return this.#readable;
  }

  get writable() {
    return this.#writable;
  }

  get [Symbol.toStringTag]() {
    return 'TransformStream';
  }
}

class Piece {
  #stream;

  constructor(transformer) {
    this.#stream = new TransformStream(transformer);
  }

  get readable() {
    return this.#stream.readable;
  }

  get writable() {
    return this.#stream.writable;
  }
}

export class TextEncoderStream extends Piece {
  constructor() {
    const encoder = new TextEncoder();
    let high = '';
    super({
      transform(chunk, controller) {
        let text = high + `${chunk}`;
        high = /[\ud800-\udbff]$/.test(text) ? text.slice(-1) : '';
        if (high) text = text.slice(0, -1);
        if (text !== '') controller.enqueue(encoder.encode(text));
      },
      flush(controller) {
        if (high) controller.enqueue(encoder.encode('\ufffd'));
      },
    });
  }

  get encoding() {
    return 'utf-8';
  }
}

export class TextDecoderStream extends Piece {
  #decoder;

  constructor(label, options) {
    const decoder = new TextDecoder(label, options);
    super({
      transform(chunk, controller) {
        const text = decoder.decode(chunk, { stream: true });
        if (text !== '') controller.enqueue(text);
      },
      flush(controller) {
        const text = decoder.decode();
        if (text !== '') controller.enqueue(text);
      },
    });
    this.#decoder = decoder;
  }

  get encoding() {
    return this.#decoder.encoding;
  }
  get fatal() {
    return this.#decoder.fatal;
  }
  get ignoreBOM() {
    return this.#decoder.ignoreBOM;
  }
}
