// `tee` of a byte stream, whose branches may each be read into buffers of their readers' own.

import { Deferred, RESOLVED } from 'internal/streams/common';
import { readInto } from 'internal/streams/byob-reader';
import { makeBytes } from 'internal/streams/bytes';
import { ReadableStream, Reader } from 'internal/streams/readable';

const copyOf = (chunk) =>
  new Uint8Array(chunk.buffer.slice(chunk.byteOffset, chunk.byteOffset + chunk.byteLength));

/** Both branches of the inside of a byte stream. */
export function tee(source) {
  let reader;
  let reading = false;
  const again = [false, false];
  const cancelled = [false, false];
  const reasons = [undefined, undefined];
  const over = new Deferred();
  const branches = [];

  const follow = (followed) => {
    followed.closed.promise.then(undefined, (error) => {
      if (followed !== reader) return;
      for (const { controller } of branches) controller.error(error);
      if (!cancelled[0] || !cancelled[1]) over.resolve();
    });
  };

  const readNext = () => {
    reading = false;
    if (again[0]) pull(0);
    else if (again[1]) pull(1);
  };

  const fail = (error) => {
    for (const { controller } of branches) controller.error(error);
    over.resolve(source.cancel(error));
  };

  const take = (byob) => {
    reader.release();
    reader = new Reader(source, byob);
    follow(reader);
  };

  const read = () => {
    if (reader.byob) take(false);
    reader.read({
      chunk: (chunk) =>
        queueMicrotask(() => {
          again.fill(false);
          let copy = chunk;
          if (!cancelled[0] && !cancelled[1]) {
            try {
              copy = copyOf(chunk);
            } catch (error) {
              fail(error);
              return;
            }
          }
          if (!cancelled[0]) branches[0].controller.enqueue(chunk);
          if (!cancelled[1]) branches[1].controller.enqueue(copy);
          readNext();
        }),
      close: () => {
        reading = false;
        for (const which of [0, 1]) if (!cancelled[which]) branches[which].controller.close();
        for (const { controller } of branches) if (controller.request) controller.respond(0);
        if (!cancelled[0] || !cancelled[1]) over.resolve();
      },
      error: () => {
        reading = false;
      },
    });
  };

  const readBuffer = (view, which) => {
    if (!reader.byob) take(true);
    const mine = branches[which].controller;
    const other = branches[1 - which].controller;
    readInto(reader, view, 1, {
      chunk: (chunk) =>
        queueMicrotask(() => {
          again.fill(false);
          if (!cancelled[1 - which]) {
            let copy;
            try {
              copy = copyOf(chunk);
            } catch (error) {
              fail(error);
              return;
            }
            if (!cancelled[which]) mine.respondWithNewView(chunk);
            other.enqueue(copy);
          } else if (!cancelled[which]) mine.respondWithNewView(chunk);
          readNext();
        }),
      close: (chunk) => {
        reading = false;
        if (!cancelled[which]) mine.close();
        if (!cancelled[1 - which]) other.close();
        if (chunk !== undefined) {
          if (!cancelled[which]) mine.respondWithNewView(chunk);
          if (!cancelled[1 - which] && other.request) other.respond(0);
        }
        if (!cancelled[0] || !cancelled[1]) over.resolve();
      },
      error: () => {
        reading = false;
      },
    });
  };

  const pull = (which) => {
    if (reading) {
      again[which] = true;
      return RESOLVED;
    }
    reading = true;
    const { request } = branches[which].controller;
    if (request) readBuffer(request.view, which);
    else read();
    return RESOLVED;
  };

  const cancel = (which) => (reason) => {
    cancelled[which] = true;
    reasons[which] = reason;
    if (cancelled[1 - which]) over.resolve(source.cancel([reasons[0], reasons[1]]));
    return over.promise;
  };

  reader = new Reader(source);
  for (const which of [0, 1]) {
    branches.push(makeBytes({ pull: () => pull(which), cancel: cancel(which) }, ReadableStream));
  }
  follow(reader);
  return [branches[0].stream, branches[1].stream];
}
