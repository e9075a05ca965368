import * as timers from 'internal/timers';

function abortable(signal, start, stop) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(abortError(signal));
      return;
    }
    const give = () => {
      stop(timer);
      reject(abortError(signal));
    };
    const timer = start((value) => {
      signal?.removeEventListener('abort', give);
      resolve(value);
    });
    signal?.addEventListener('abort', give, { once: true });
  });
}

function abortError(signal) {
  const error = new Error('The operation was aborted', { cause: signal.reason });
  error.name = 'AbortError';
  error.code = 'ABORT_ERR';
  return error;
}

export function setTimeout(after, value, options) {
  return abortable(options?.signal, (done) => timers.setTimeout(done, after, value), timers.clearTimeout);
}

export function setImmediate(value, options) {
  return abortable(options?.signal, (done) => timers.setImmediate(done, value), timers.clearImmediate);
}

export async function* setInterval(after, value, options) {
  for (;;) {
    await setTimeout(after, undefined, options);
    yield value;
  }
}

export const scheduler = {
  wait: (after, options) => setTimeout(after, undefined, options),
  yield: () => setImmediate(),
};

export default { setTimeout, setImmediate, setInterval, scheduler };
