// `fetch`.

import native from 'native/http';
import { Request, partsOf, responseFrom } from 'internal/http';
import { URL } from 'internal/url';
import { Buffer } from 'node:buffer';

const MOST_REDIRECTS = 20;
const BODY_HEADERS = [
  'content-encoding',
  'content-language',
  'content-location',
  'content-type',
  'content-length',
];

function failed(cause) {
  return new TypeError('fetch failed', { cause });
}

function dataUrl(url) {
  const found = /^data:([^,]*),(.*)$/s.exec(url.href.split('#')[0]);
  if (!found) throw failed(new Error('This is no data: URL'));
  const isBase64 = /;\s*base64$/i.test(found[1]);
  const type = found[1].replace(/;\s*base64$/i, '') || 'text/plain;charset=US-ASCII';
  const text = decodeURIComponent(found[2].replace(/%(?![\da-f]{2})/gi, '%25'));
  const bytes = isBase64 ? Buffer.from(text, 'base64') : Buffer.from(text);
  const headers = [['content-type', type.startsWith(';') ? `text/plain${type}` : type]];
  return responseFrom({ status: 200, statusText: 'OK', headers, body: new Uint8Array(bytes), url: url.href });
}

/** Sends one request; the signal gives it up. */
async function exchange(parts, signal) {
  const sent = native.send(parts);
  let give;
  const given = new Promise((_, reject) => {
    give = () => {
      sent.abort();
      reject(signal.reason);
    };
  });
  given.catch(() => {});
  signal?.addEventListener('abort', give, { once: true });
  try {
    return await Promise.race([sent.answer, given]);
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw failed(error);
  } finally {
    sent.answer.catch(() => {});
    signal?.removeEventListener('abort', give);
  }
}

/** A body that fails once the signal is aborted. */
function abortable(next, signal) {
  if (!signal || typeof next !== 'function') return next;
  return () => {
    if (signal.aborted) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => {
      const give = () => reject(signal.reason);
      signal.addEventListener('abort', give, { once: true });
      next()
        .then(resolve, (error) => reject(failed(error)))
        .finally(() => signal.removeEventListener('abort', give));
    });
  };
}

export async function fetch(input, init) {
  const request = new Request(input, init);
  const given = init?.signal ?? (input instanceof Request ? input.signal : undefined);
  const signal = given ? request.signal : undefined;
  signal?.throwIfAborted();
  let url = new URL(request.url);
  if (url.protocol === 'data:') return dataUrl(url);
  if (url.protocol !== 'http:' && url.protocol !== 'https:') {
    throw failed(new Error(`fetch does not know the scheme ${url.protocol}`));
  }
  const streamed = request._isStream;
  const parts = partsOf(Request, request);
  parts.headers = parts.headers.map((pair) => [...pair]);
  const has = (name) => parts.headers.some(([known]) => known === name);
  if (!has('accept')) parts.headers.push(['accept', '*/*']);
  if (parts.body === null && ['POST', 'PUT', 'PATCH'].includes(parts.method) && !has('content-length')) {
    parts.headers.push(['content-length', '0']);
  }
  for (let redirects = 0; ; redirects += 1) {
    parts.url = url.href.split('#')[0];
    const answer = await exchange({ ...parts }, signal);
    const location = answer.headers.find(([name]) => name === 'location')?.[1];
    const isRedirect = [301, 302, 303, 307, 308].includes(answer.status) && location !== undefined;
    if (!isRedirect || request.redirect === 'manual') {
      return responseFrom({
        ...answer,
        body: abortable(answer.body, signal),
        url: url.href,
        redirected: redirects > 0,
      });
    }
    if (request.redirect === 'error') throw failed(new Error(`unexpected redirect to ${location}`));
    if (redirects >= MOST_REDIRECTS) throw failed(new Error('redirect count exceeded'));
    if (!URL.canParse(location, url)) throw failed(new Error(`the redirect to ${location} leads nowhere`));
    const next = new URL(location, url);
    if (next.protocol !== 'http:' && next.protocol !== 'https:')
      throw failed(new Error(`redirect to ${next.protocol}`));
    if (answer.status !== 303 && streamed) throw failed(new Error('a streamed body cannot be sent twice'));
    const turns =
      (answer.status === 303 && !['GET', 'HEAD'].includes(parts.method)) ||
      ([301, 302].includes(answer.status) && parts.method === 'POST');
    if (turns) {
      parts.method = 'GET';
      parts.body = null;
      parts.headers = parts.headers.filter(([name]) => !BODY_HEADERS.includes(name));
    }
    // What was meant for one host is not told another.
    if (next.origin !== url.origin) {
      parts.headers = parts.headers.filter(
        ([name]) => !['authorization', 'proxy-authorization', 'cookie', 'host'].includes(name),
      );
    }
    if (next.hash === '' && url.hash !== '') next.hash = url.hash;
    url = next;
  }
}
