import { coded, wrongType } from 'internal/errors';
import { URL, URLSearchParams } from 'internal/url';
import querystring from 'node:querystring';
import { resolve as resolvePath } from 'node:path';

export function fileURLToPath(url) {
  const parsed = typeof url === 'string' ? new URL(url) : url;
  if (!(parsed instanceof URL)) throw wrongType('path', 'of type string or an instance of URL', url);
  if (parsed.protocol !== 'file:') {
    throw coded(TypeError, 'ERR_INVALID_URL_SCHEME', 'The URL must be of scheme file');
  }
  if (parsed.hostname !== '' && parsed.hostname !== 'localhost') {
    throw coded(TypeError, 'ERR_INVALID_FILE_URL_HOST', 'File URL host must be "localhost" or empty');
  }
  if (/%2f/i.test(parsed.pathname)) {
    throw coded(
      TypeError,
      'ERR_INVALID_FILE_URL_PATH',
      'File URL path must not include encoded / characters',
    );
  }
  return decodeURIComponent(parsed.pathname);
}

export function pathToFileURL(path) {
  const ending = path.endsWith('/') ? '/' : '';
  const encoded = (resolvePath(path) + ending).replace(
    /[%\\\n\r\t?#]/g,
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

export const domainToASCII = (domain) =>
  URL.canParse(`http://${domain}`) ? new URL(`http://${domain}`).hostname : '';
export const domainToUnicode = (domain) => domain;

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

  format() {
    return format(this);
  }
  resolve(to) {
    return resolve(this.href, to);
  }
}

export function parse(text, withQuery = false) {
  if (typeof text !== 'string') throw wrongType('url', 'of type string', text);
  const url = new Url();
  const [, protocol, slashes, authority, pathname, search, hash] =
    /^([a-z][a-z0-9+.-]*:)?(\/\/)?((?<=\/\/)[^/?#]*)?([^?#]*)(\?[^#]*)?(#.*)?$/is.exec(text.trim());
  url.protocol = protocol?.toLowerCase() ?? null;
  url.slashes = slashes ? true : null;
  if (authority !== undefined) {
    const at = authority.lastIndexOf('@');
    url.auth = at < 0 ? null : decodeURIComponent(authority.slice(0, at));
    url.host = authority.slice(at + 1).toLowerCase();
    const port = /:(\d*)$/.exec(url.host);
    url.port = port?.[1] || null;
    url.hostname = (port ? url.host.slice(0, port.index) : url.host).replace(/^\[|\]$/g, '');
  }
  url.pathname =
    pathname !== ''
      ? pathname
      : url.host && /^(https?|ftp|file|wss?):$/.test(url.protocol ?? '')
        ? '/'
        : null;
  url.search = search ?? (withQuery ? '' : null);
  const query = search?.slice(1) ?? null;
  url.query = withQuery ? querystring.parse(query ?? '') : query;
  url.hash = hash ?? null;
  url.path = url.pathname || url.search ? `${url.pathname ?? ''}${url.search ?? ''}` : null;
  url.href = format(url);
  return url;
}

export function format(url, options = {}) {
  if (typeof url === 'string') return parse(url).href;
  if (url instanceof URL) {
    const copy = new URL(url.href);
    if (options.fragment === false) copy.hash = '';
    if (options.search === false) copy.search = '';
    if (options.auth === false) copy.username = copy.password = '';
    return copy.href;
  }
  if (url === null || typeof url !== 'object')
    throw wrongType('urlObject', 'one of type object or string', url);
  const protocol = url.protocol ? (url.protocol.endsWith(':') ? url.protocol : `${url.protocol}:`) : '';
  const auth = url.auth ? `${encodeURIComponent(url.auth).replace(/%3A/i, ':')}@` : '';
  let host = url.host ? auth + url.host : '';
  if (!host && url.hostname) {
    host = `${auth}${url.hostname.includes(':') ? `[${url.hostname}]` : url.hostname}${url.port ? `:${url.port}` : ''}`;
  }
  const query = url.query !== null && typeof url.query === 'object' ? querystring.stringify(url.query) : '';
  let search = url.search || (query && `?${query}`) || '';
  if (search && !search.startsWith('?')) search = `?${search}`;
  const hash = url.hash ? (url.hash.startsWith('#') ? url.hash : `#${url.hash}`) : '';
  let pathname = url.pathname ?? '';
  const slashes = url.slashes || (/^(https?|ftp|file|wss?):$/.test(protocol) && host !== '');
  if (slashes && pathname && !pathname.startsWith('/')) pathname = `/${pathname}`;
  const path = pathname.replace(/[?#]/g, encodeURIComponent);
  return `${protocol}${slashes ? `//${host}` : host}${path}${search.replaceAll('#', '%23')}${hash}`;
}

export function resolve(from, to) {
  const base = new URL(from, 'resolve://here');
  const url = new URL(to, base);
  return url.protocol === 'resolve:' ? `${url.pathname}${url.search}${url.hash}` : url.href;
}

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
  urlToHttpOptions,
};
