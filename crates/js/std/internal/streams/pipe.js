// `pipeTo` and `pipeThrough`.

import { RESOLVED, invalidState, noop } from 'internal/streams/common';
import { Reader } from 'internal/streams/readable';
import { Writer, writableInside } from 'internal/streams/writable';

export { writableInside };

/** Pipes the inside of one stream into that of another. */
export function pipe(source, to, preventClose, preventAbort, preventCancel, signal) {
  const reader = new Reader(source);
  const writer = new Writer(to);
  source.disturbed = true;
  let ending = false;
  let lastWrite = RESOLVED;
  return new Promise((resolve, reject) => {
    const finish = (failure) => {
      writer.release();
      reader.release();
      signal?.removeEventListener('abort', give);
      if (failure) reject(failure.error);
      else resolve(undefined);
    };
    // What was read is written before the pipe ends.
    const written = () => {
      const waited = lastWrite;
      return waited.then(() => (waited === lastWrite ? undefined : written()));
    };
    const end = (action, failure) => {
      if (ending) return;
      ending = true;
      const act = () => {
        if (!action) {
          finish(failure);
          return;
        }
        action().then(
          () => finish(failure),
          (error) => finish({ error }),
        );
      };
      if (to.state === 'writable' && !to.closeQueued) written().then(act);
      else act();
    };
    const give = () => {
      const error = signal.reason;
      const actions = [];
      if (!preventAbort) actions.push(() => (to.state === 'writable' ? to.abort(error) : RESOLVED));
      if (!preventCancel) actions.push(() => (source.state === 'readable' ? source.cancel(error) : RESOLVED));
      end(() => Promise.all(actions.map((act) => act())), { error });
    };
    if (signal) {
      if (signal.aborted) {
        give();
        return;
      }
      signal.addEventListener('abort', give);
    }

    const sourceFailed = (error) => end(preventAbort ? null : () => to.abort(error), { error });
    const sourceClosed = () => end(preventClose ? null : () => writer.closeOrFail());
    const toFailed = (error) => end(preventCancel ? null : () => source.cancel(error), { error });
    if (source.state === 'errored') sourceFailed(source.error);
    if (to.state === 'errored') toFailed(to.error);
    if (source.state === 'closed') sourceClosed();
    if (to.closeQueued || to.state === 'closed') {
      toFailed(invalidState('Destination WritableStream is closed'));
    }
    reader.closed.promise.then(sourceClosed, sourceFailed);
    writer.closed.promise.then(undefined, toFailed);

    const request = {
      chunk(chunk) {
        lastWrite = writer.write(chunk).then(noop, noop);
        RESOLVED.then(step);
      },
      close: noop,
      error: noop,
    };
    const read = () => {
      if (!ending) reader.read(request);
    };
    const step = () => {
      if (ending) return;
      // A pending `ready` is waited for; the promise of one that is settled is not even made.
      if (writer.ready.pending) writer.ready.promise.then(read, noop);
      else if (writer.desiredSize !== null) read();
    };
    RESOLVED.then(step);
  });
}
