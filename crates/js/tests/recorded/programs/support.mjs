// What the programs share. A program gets a function that logs a value.
import { Readable, Writable } from 'node:stream';

export const nothing = () => {};

/** Logs those events of a stream, with what they carry. */
export function watch(log, stream, ...events) {
  for (const event of events)
    stream.on(event, (value) => {
      if (value === undefined) log(event);
      else if (value instanceof Error) log(`${event} ${value.code ?? value.name} ${value.message}`);
      else if (value instanceof Uint8Array || typeof value === 'string') log(`${event} ${value}`);
      else log(event);
    });
}

/** A readable stream that is pushed to. */
export const reader = (options) => new Readable({ read: nothing, ...options });

/** A writable stream that logs what it writes and answers at once. */
export const writer = (log, options) =>
  new Writable({
    write(chunk, encoding, done) {
      log(`write ${this.writableObjectMode ? JSON.stringify(chunk) : chunk} ${encoding}`);
      done();
    },
    ...options,
  });
