// `fetch`.

import zlib from 'native/zlib';
import native from 'native/http';
import { coded } from 'internal/errors';
import { Request, partsOf, responseFrom } from 'internal/http';
import { URL } from 'internal/url';
import { Bytes } from 'internal/buffer';

/** More than a body can have; the memory of the plugin is the limit. */
const MOST = 2 ** 53;
const MOST_REDIRECTS = 20;
const PASSED_BY = ['no-store', 'reload'];
const CONDITIONS = ['if-modified-since', 'if-none-match', 'if-unmodified-since', 'if-match', 'if-range'];
const BODY_HEADERS = [
  'content-encoding',
  'content-language',
  'content-location',
  'content-type',
  'content-length',
];

// What the host says, and the codes that authors look at.
const codes = [
  [/connection refused/i, 'ECONNREFUSED'],
  [/connection reset/i, 'ECONNRESET'],
  [/broken pipe/i, 'EPIPE'],
  [/no route to host|host (is )?unreachable/i, 'EHOSTUNREACH'],
  [/network (is )?unreachable/i, 'ENETUNREACH'],
  [/lookup address|name or service not known|nodename nor servname|no address associated/i, 'ENOTFOUND'],
  [/certificate.*expired/i, 'CERT_HAS_EXPIRED'],
  [/certificate.*not valid for name/i, 'ERR_TLS_CERT_ALTNAME_INVALID'],
  [/certificate.*unknown ?issuer/i, 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
  [/operation timed out|deadline has elapsed/i, 'UND_ERR_CONNECT_TIMEOUT'],
  [/closed before message completed|unexpected eof|end of file|error reading a body/i, 'UND_ERR_SOCKET'],
];

function withCode(cause) {
  const code = cause.code === undefined && codes.find(([words]) => words.test(cause.message))?.[1];
  if (code)
    Object.defineProperty(cause, 'code', {
      value: code,
      configurable: true,
      enumerable: true,
      writable: true,
    });
  return cause;
}

function failed(cause) {
  return new TypeError('fetch failed', { cause: withCode(cause) });
}

function dataUrl(url) {
  const found = /^data:([^,]*),(.*)$/s.exec(url.href.split('#')[0]);
  if (!found) throw failed(new Error('This is no data: URL'));
  const isBase64 = /;\s*base64$/i.test(found[1]);
  const type = found[1].replace(/;\s*base64$/i, '') || 'text/plain;charset=US-ASCII';
  const text = decodeURIComponent(found[2].replace(/%(?![\da-f]{2})/gi, '%25'));
  const bytes = isBase64 ? Bytes.from(text, 'base64') : Bytes.from(text);
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

const MOST_CODINGS = 5;
const NULL_BODY = [101, 103, 204, 205, 304];

/** The codec of a coding, chosen by the first bytes; undefined for one that is not known. */
function codecOf(coding, bytes) {
  switch (coding) {
    case 'gzip':
    case 'x-gzip':
      return zlib.codec('gunzip', []);
    case 'deflate':
      // Some servers leave the header of zlib out.
      return zlib.codec((bytes[0] & 0x0f) === 8 ? 'inflate' : 'inflateRaw', []);
    case 'br':
      return zlib.codec('brotliDecompress', []);
    default:
      return undefined;
  }
}
const CODINGS = ['gzip', 'x-gzip', 'deflate', 'br'];

/** A body without one coding around it. A body that ends too early is what came of it, as in Node. */
function decoded(next, coding) {
  let codec;
  let over = false;
  const read = async () => {
    while (!over) {
      const bytes = await next();
      over = bytes === null;
      if (!over && bytes.byteLength === 0) continue;
      codec ??= over ? undefined : codecOf(coding, bytes);
      if (codec === undefined) return null;
      const made = over ? codec.finish(false, MOST) : codec.write(bytes, MOST);
      if (made.byteLength > 0) return made;
    }
    return null;
  };
  read.cancel = () => next.cancel?.();
  return read;
}

/** The body of an answer, without the codings around it; what is not known stays as it is. */
function unpacked({ body, headers, status }) {
  if (typeof body !== 'function' || NULL_BODY.includes(status)) return body;
  const said = headers.filter(([name]) => name === 'content-encoding').map(([, value]) => value);
  const codings = said
    .join(',')
    .toLowerCase()
    .split(',')
    .map((coding) => coding.trim())
    .filter((coding) => coding !== '');
  if (codings.length > MOST_CODINGS || !codings.every((coding) => CODINGS.includes(coding))) return body;
  return codings.reduceRight(decoded, body);
}

/** A body that fails once the signal is aborted, and gives its connection up. */
function abortable(next, signal) {
  if (typeof next !== 'function') return next;
  let fail = () => {};
  const give = () => {
    next.cancel?.();
    fail(signal.reason);
  };
  const end = () => signal?.removeEventListener('abort', give);
  signal?.addEventListener('abort', give, { once: true });
  const read = () => {
    if (signal?.aborted) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => {
      fail = reject;
      next().then(
        (bytes) => {
          if (bytes === null) end();
          resolve(bytes);
        },
        (error) => {
          end();
          reject(new TypeError('terminated', { cause: withCode(error) }));
        },
      );
    });
  };
  read.cancel = () => {
    end();
    next.cancel?.();
  };
  return read;
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
  const said = parts.headers.find(([name]) => name === 'content-length')?.[1];
  if (said !== undefined && ArrayBuffer.isView(parts.body) && Number(said) !== parts.body.byteLength) {
    const cause = coded(
      Error,
      'UND_ERR_REQ_CONTENT_LENGTH_MISMATCH',
      'Request body length does not match content-length header',
    );
    cause.name = 'RequestContentLengthMismatchError';
    throw failed(cause);
  }
  // As the standard has it: who asks conditionally has a cache, so caches on the way are passed by.
  if (PASSED_BY.includes(request.cache) || (request.cache === 'default' && CONDITIONS.some(has))) {
    if (!has('pragma')) parts.headers.push(['pragma', 'no-cache']);
    if (!has('cache-control')) parts.headers.push(['cache-control', 'no-cache']);
  } else if (request.cache === 'no-cache' && !has('cache-control')) {
    parts.headers.push(['cache-control', 'max-age=0']);
  }
  if (!has('accept')) parts.headers.push(['accept', '*/*']);
  if (!has('accept-encoding')) {
    const codings = url.protocol === 'https:' ? 'br, gzip, deflate' : 'gzip, deflate';
    parts.headers.push(['accept-encoding', has('range') ? 'identity' : codings]);
  }
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
        body: abortable(unpacked(answer), signal),
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
