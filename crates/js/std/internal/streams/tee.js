// `tee` of a stream that is not a byte stream.

import { Deferred, RESOLVED } from 'internal/streams/common';
import { Reader, makeReadable } from 'internal/streams/readable';

/** Both branches of the inside of a stream. */
export function tee(source) {
  const reader = new Reader(source);
  let reading = false;
  let readAgain = false;
  const cancelled = [false, false];
  const reasons = [undefined, undefined];
  const over = new Deferred();
  const branches = [];
  const pull = () => {
    if (reading) {
      readAgain = true;
      return RESOLVED;
    }
    reading = true;
    reader.read({
      chunk: (chunk) =>
        queueMicrotask(() => {
          readAgain = false;
          if (!cancelled[0]) branches[0].controller.enqueue(chunk);
          if (!cancelled[1]) branches[1].controller.enqueue(chunk);
          reading = false;
          if (readAgain) pull();
        }),
      close: () => {
        reading = false;
        if (!cancelled[0]) branches[0].controller.close();
        if (!cancelled[1]) branches[1].controller.close();
        if (!cancelled[0] || !cancelled[1]) over.resolve();
      },
      error: () => {
        reading = false;
      },
    });
    return RESOLVED;
  };
  const cancel = (which) => (reason) => {
    cancelled[which] = true;
    reasons[which] = reason;
    if (cancelled[1 - which]) over.resolve(source.cancel([reasons[0], reasons[1]]));
    return over.promise;
  };
  branches.push(makeReadable({ pull, cancel: cancel(0) }), makeReadable({ pull, cancel: cancel(1) }));
  reader.closed.promise.then(undefined, (error) => {
    branches[0].controller.error(error);
    branches[1].controller.error(error);
    if (!cancelled[0] || !cancelled[1]) over.resolve();
  });
  return [branches[0].stream, branches[1].stream];
}
