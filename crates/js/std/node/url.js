import { coded, wrongType } from 'internal/errors';
import { URL, URLSearchParams } from 'internal/url';
import loader from 'native/globals';
import native from 'native/url';
import { resolve as resolvePath } from 'node:path';

export function fileURLToPath(url) {
  const parsed = typeof url === 'string' ? new URL(url) : url;
  if (!(parsed instanceof URL)) throw wrongType('path', 'of type string or an instance of URL', url);
  if (parsed.protocol !== 'file:') {
    throw coded(TypeError, 'ERR_INVALID_URL_SCHEME', 'The URL must be of scheme file');
  }
  if (parsed.hostname !== '' && parsed.hostname !== 'localhost') {
    throw coded(
      TypeError,
      'ERR_INVALID_FILE_URL_HOST',
      `File URL host must be "localhost" or empty on ${loader.load('node:process').default.platform}`,
    );
  }
  if (/%2f/i.test(parsed.pathname)) {
    throw coded(
      TypeError,
      'ERR_INVALID_FILE_URL_PATH',
      'File URL path must not include encoded / characters',
    );
  }
  try {
    return decodeURIComponent(parsed.pathname);
  } catch {
    throw new URIError('URI malformed');
  }
}

export function pathToFileURL(path) {
  const ending = path.endsWith('/') ? '/' : '';
  const encoded = (resolvePath(path) + ending).replace(
    /[%\\\n\r\t?#[\]^|]/g,
    (c) => `%${c.charCodeAt(0).toString(16).padStart(2, '0').toUpperCase()}`,
  );
  return new URL(`file://${encoded.replace(/\/\/$/, '/')}`);
}

export function urlToHttpOptions(url) {
  const options = {
    protocol: url.protocol,
    hostname: url.hostname.replace(/^\[|\]$/g, ''),
    hash: url.hash,
    search: url.search,
    pathname: url.pathname,
    path: `${url.pathname}${url.search}`,
    href: url.href,
  };
  if (url.port !== '') options.port = Number(url.port);
  if (url.username || url.password)
    options.auth = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return options;
}

export function domainToASCII(domain) {
  const [host] = /^[^/?#\\]*/.exec(`${domain}`.replace(/[\t\n\r]/g, ''));
  // No user and no port.
  if (!/^(?:\[[^\]]*\]|[^:@[\]]*)$/.test(host)) return '';
  return URL.parse(`ws://${host}`)?.hostname ?? '';
}
export function domainToUnicode(domain) {
  const ascii = domainToASCII(domain);
  return native.unicode(ascii) || ascii;
}

const legacy = () => loader.load('internal/legacy-url');

/** A URL as Node read it before there was a standard. */
export class Url {
  protocol = null;
  slashes = null;
  auth = null;
  host = null;
  port = null;
  hostname = null;
  hash = null;
  search = null;
  query = null;
  pathname = null;
  path = null;
  href = null;

  parse(text, withQuery, hostAfterSlashes) {
    return legacy().read(this, text, withQuery, hostAfterSlashes);
  }
  format() {
    return legacy().write(this);
  }
  resolve(to) {
    return this.resolveObject(to).format();
  }
  resolveObject(to) {
    const url = Object.assign(new Url(), this);
    return legacy().resolve(
      url,
      typeof to === 'string' ? parse(to, false, true) : Object.assign(new Url(), to),
    );
  }
}

export function parse(text, withQuery, hostAfterSlashes) {
  return text instanceof Url ? text : new Url().parse(text, withQuery, hostAfterSlashes);
}

export function format(url, options) {
  if (typeof url === 'string') return parse(url).format();
  if (url === null || typeof url !== 'object')
    throw wrongType('urlObject', 'one of type object or string', url);
  if (!(url instanceof URL)) return legacy().write(url);
  const copy = new URL(url.href);
  if (options?.fragment === false) copy.hash = '';
  if (options?.search === false) copy.search = '';
  if (options?.auth === false) copy.username = copy.password = '';
  if (!options?.unicode || copy.hostname === '') return copy.href;
  const unicode = domainToUnicode(copy.hostname);
  return copy.href.replace(copy.hostname, () => unicode);
}

export const resolve = (from, to) => parse(from, false, true).resolve(to);
export const resolveObject = (from, to) => (from ? parse(from, false, true).resolveObject(to) : to);

export { URL, URLSearchParams };
export default {
  URL,
  URLSearchParams,
  Url,
  domainToASCII,
  domainToUnicode,
  fileURLToPath,
  format,
  parse,
  pathToFileURL,
  resolve,
  resolveObject,
  urlToHttpOptions,
};
