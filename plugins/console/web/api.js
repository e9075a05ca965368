// The HTTP API of the listener that served the page.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Sends a request; with a body it is a POST. */
export async function api(path, body) {
  const options = { credentials: 'same-origin', cache: 'no-store' };
  if (body !== undefined) {
    options.method = 'POST';
    options.headers = { 'content-type': 'application/json' };
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(`/api/${path}`, options);
  } catch {
    throw new ApiError(0, 'The host does not respond');
  }
  const isJson = response.headers.get('content-type')?.includes('json');
  const answer = isJson ? await response.json() : await response.text();
  if (!response.ok)
    throw new ApiError(response.status, answer?.message ?? `The host answered ${response.status}`);
  return answer;
}

/**
 * Runs `read` once at a time: asked for while it runs, it runs once more afterwards, so that nothing is shown that was read before
 * what is shown already. The promise ends with a run that began after it was asked for.
 */
export function reader(read) {
  let running;
  let following;
  return function ask() {
    if (running) {
      following ??= running
        .catch(() => {})
        .then(() => {
          following = undefined;
          return ask();
        });
      return following;
    }
    running = (async () => {
      try {
        return await read();
      } finally {
        running = undefined;
      }
    })();
    return running;
  };
}

/** Calls `work` once in `time` milliseconds, however often it is asked for. */
export function throttled(work, time) {
  let wait;
  const ask = () => {
    wait ??= setTimeout(() => {
      wait = undefined;
      work();
    }, time);
  };
  ask.stop = () => {
    clearTimeout(wait);
    wait = undefined;
  };
  return ask;
}

/** The samples of OpenMetrics text: name to a list of labels and values. */
export function samples(text) {
  const all = new Map();
  for (const line of text.split('\n')) {
    const match = /^(\w+)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match || line.startsWith('#')) continue;
    const labels = Object.fromEntries(
      [...(match[2] ?? '').matchAll(/(\w+)="([^"]*)"/g)].map(([, key, value]) => [key, value]),
    );
    if (!all.has(match[1])) all.set(match[1], []);
    all.get(match[1]).push({ labels, value: Number(match[3]) });
  }
  return all;
}
