// `url.parse`, `url.format` and `url.resolve`, which read URLs as Node did before there was a standard. Loaded when one of
// them is first called.

import { coded, wrongType } from 'internal/errors';
import { URL } from 'internal/url';
import querystring from 'node:querystring';

const isSlashed = (protocol) => /^(?:https?|ftp|gopher|file|wss?):?$/.test(protocol ?? '');
const isScript = (protocol) => /^javascript:?$/.test(protocol ?? '');
const isIpv6 = (host) => host.startsWith('[') && host.endsWith(']');

function invalid(input) {
  return coded(TypeError, 'ERR_INVALID_URL', 'Invalid URL', { input });
}

/** A domain in ASCII; what is ASCII already stays as it is. */
function toAscii(host, text) {
  // eslint-disable-next-line no-control-regex
  if (/^[\0-\x7f]*$/.test(host) && !/(?:^|\.)xn--/.test(host)) return host;
  const { hostname } = URL.parse(`http://${host}`) ?? {};
  if (!hostname || hostname.startsWith('[')) throw invalid(text);
  return hostname;
}

/** Sets what stands between the slashes and the path, and returns the path and what follows. */
function readHost(url, rest, text) {
  const end = rest.search(/[#/?]/);
  const authority = (end < 0 ? rest : rest.slice(0, end)).replace(/[\t\n\r]/g, '');
  // An @ in the name of a user is possible: the last one counts.
  const at = authority.lastIndexOf('@');
  if (at >= 0) url.auth = decodeURIComponent(authority.slice(0, at));
  let host = authority.slice(at + 1);
  const stop = host.search(/[ "%';<>\\^`{|}]/);
  let path = end < 0 ? '' : rest.slice(end);
  if (stop >= 0) [host, path] = [host.slice(0, stop), host.slice(stop) + path];
  const port = /:[0-9]*$/.exec(host);
  if (port) {
    if (port[0] !== ':') url.port = port[0].slice(1);
    host = host.slice(0, port.index);
  }
  const ipv6 = isIpv6(host);
  if (!ipv6) {
    // What cannot be in a name begins the path.
    const strange = host.search(/[/\\#?:]/);
    if (strange >= 0) [host, path] = [host.slice(0, strange), `/${host.slice(strange)}${path}`];
  }
  host = host.length > 255 ? '' : host.toLowerCase();
  if (host !== '') {
    if (!ipv6) host = toAscii(host, text);
    // eslint-disable-next-line no-control-regex
    if ((ipv6 ? /[\0\t\n\r #%/<>?@\\^|]/ : /[\0\t\n\r #%/:<>?@[\\\]^|]/).test(host)) throw invalid(text);
  }
  url.host = url.port ? `${host}:${url.port}` : host;
  url.hostname = ipv6 ? host.slice(1, -1) : host;
  return ipv6 && !path.startsWith('/') ? `/${path}` : path;
}

const escapes = /[\t\n\r "'<>\\^`{|}]/g;
const escaped = (c) => `%${c.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`;

/** Reads a text into a `Url`. With `hostAfterSlashes`, two slashes begin a host without a protocol too. */
export function read(url, text, withQuery, hostAfterSlashes) {
  if (typeof text !== 'string') throw wrongType('url', 'of type string', text);
  // eslint-disable-next-line no-control-regex
  const trimmed = text.replace(/^[\0-\x20\u00a0\ufeff]+|[\0-\x20\u00a0\ufeff]+$/g, '');
  // A backslash is a slash, up to the query.
  const [before] = /^[^?#]*/.exec(trimmed);
  let rest = before.replaceAll('\\', '/') + trimmed.slice(before.length);
  if (!hostAfterSlashes && !rest.includes('#') && !before.includes('@')) {
    const simple = /^(\/\/?(?!\/)[^?\s]*)(\?\S*)?$/.exec(rest);
    if (simple) {
      url.path = url.href = rest;
      url.pathname = simple[1];
      if (simple[2]) {
        url.search = simple[2];
        url.query = withQuery ? querystring.parse(simple[2].slice(1)) : simple[2].slice(1);
      } else if (withQuery) {
        url.search = null;
        url.query = Object.create(null);
      }
      return url;
    }
  }
  const protocol = /^[a-z0-9.+-]+:/i.exec(rest)?.[0];
  const lower = protocol?.toLowerCase();
  if (protocol) {
    url.protocol = lower;
    rest = rest.slice(protocol.length);
  }
  let slashes = false;
  if (hostAfterSlashes || protocol || /^\/\/[^@/]+@[^@/]+/.test(rest)) {
    slashes = rest.startsWith('//');
    if (slashes && !isScript(lower)) {
      rest = rest.slice(2);
      url.slashes = true;
    }
  }
  if (!isScript(lower) && (slashes || (protocol && !isSlashed(protocol)))) rest = readHost(url, rest, text);
  if (!isScript(lower)) rest = rest.replace(escapes, escaped);
  const hash = rest.indexOf('#');
  if (hash >= 0) [url.hash, rest] = [rest.slice(hash), rest.slice(0, hash)];
  const question = rest.indexOf('?');
  if (question >= 0) {
    url.search = rest.slice(question);
    url.query = withQuery ? querystring.parse(rest.slice(question + 1)) : rest.slice(question + 1);
    rest = rest.slice(0, question);
  } else if (withQuery) {
    url.search = null;
    url.query = Object.create(null);
  }
  if (rest !== '') url.pathname = rest;
  if (isSlashed(lower) && url.hostname && !url.pathname) url.pathname = '/';
  setPath(url);
  url.href = write(url);
  return url;
}

function setPath(url) {
  if (url.pathname || url.search) url.path = `${url.pathname ?? ''}${url.search ?? ''}`;
}

/** The text of a `Url`, or of an object with its properties. */
export function write(url) {
  let auth = url.auth || '';
  if (auth) auth = `${encodeURIComponent(auth).replaceAll('%3A', ':')}@`;
  let protocol = url.protocol || '';
  if (protocol && !protocol.endsWith(':')) protocol += ':';
  let host = '';
  if (url.host) host = auth + url.host;
  else if (url.hostname) {
    const bare = url.hostname.includes(':') && !isIpv6(url.hostname);
    host = auth + (bare ? `[${url.hostname}]` : url.hostname) + (url.port ? `:${url.port}` : '');
  }
  const query = url.query !== null && typeof url.query === 'object' ? querystring.stringify(url.query) : '';
  let search = url.search || (query && `?${query}`) || '';
  let pathname = (url.pathname || '').replace(/[#?]/g, escaped);
  if (url.slashes || isSlashed(protocol)) {
    if (url.slashes || host) {
      if (pathname && !pathname.startsWith('/')) pathname = `/${pathname}`;
      host = `//${host}`;
    } else if (protocol.startsWith('file')) host = '//';
  }
  search = search.replaceAll('#', '%23');
  if (search && !search.startsWith('?')) search = `?${search}`;
  const hash = url.hash && !url.hash.startsWith('#') ? `#${url.hash}` : (url.hash ?? '');
  return protocol + host + pathname + search + hash;
}

/** A user that only stands in the host, as in `mailto:`. */
function splitHost(url) {
  if (!(url.host && url.host.indexOf('@') > 0)) return;
  const [auth, host] = url.host.split('@');
  url.auth = auth;
  url.host = url.hostname = host;
}

/** Removes `.` and `..`, and returns how many `..` lead above the first part. */
function removeDots(parts) {
  let up = 0;
  for (let at = parts.length - 1; at >= 0; at -= 1) {
    if (parts[at] === '.') parts.splice(at, 1);
    else if (parts[at] === '..') {
      parts.splice(at, 1);
      up += 1;
    } else if (up > 0) {
      parts.splice(at, 1);
      up -= 1;
    }
  }
  return up;
}

const isFromRoot = (parts) => parts[0] === '' || !!parts[0]?.startsWith('/');

/** The `Url` that another one leads to; both are changed. */
export function resolve(url, to) {
  const done = () => {
    url.href = write(url);
    return url;
  };
  url.hash = to.hash;
  if (to.href === '') return done();
  if (to.slashes && !to.protocol) {
    for (const key of Object.keys(to)) if (key !== 'protocol') url[key] = to[key];
    if (isSlashed(url.protocol) && url.hostname && !url.pathname) url.path = url.pathname = '/';
    return done();
  }
  if (to.protocol && to.protocol !== url.protocol) {
    if (!isSlashed(to.protocol)) {
      Object.assign(url, to);
      return done();
    }
    url.protocol = to.protocol;
    url.pathname = to.pathname;
    if (!to.host && !/^file:?$/.test(to.protocol)) {
      // The first part of the path is the host.
      const parts = (to.pathname || '').split('/');
      while (parts.length > 0 && !to.host) to.host = parts.shift();
      to.host ||= '';
      to.hostname ||= '';
      if (parts[0] !== '') parts.unshift('');
      if (parts.length < 2) parts.unshift('');
      url.pathname = parts.join('/');
    }
    [url.search, url.query, url.auth, url.port] = [to.search, to.query, to.auth, to.port];
    url.host = to.host || '';
    url.hostname = to.hostname || to.host;
    setPath(url);
    url.slashes ||= to.slashes;
    return done();
  }

  const fromRoot = !!(to.host || to.pathname?.startsWith('/'));
  let absolute = fromRoot || !!url.pathname?.startsWith('/') || !!(url.host && to.pathname);
  const removeAll = absolute;
  let parts = url.pathname ? url.pathname.split('/') : [];
  const added = to.pathname ? to.pathname.split('/') : [];
  // Without slashes, the host is the first part of the path.
  const hostInPath = !!url.protocol && !isSlashed(url.protocol);
  if (hostInPath) {
    url.hostname = '';
    url.port = null;
    if (url.host) {
      if (parts[0] === '') parts[0] = url.host;
      else parts.unshift(url.host);
    }
    url.host = '';
    if (to.protocol) {
      to.hostname = to.port = url.auth = null;
      if (to.host) {
        if (added[0] === '') added[0] = to.host;
        else added.unshift(to.host);
      }
      to.host = null;
    }
    absolute &&= added[0] === '' || parts[0] === '';
  }
  if (fromRoot) {
    if (to.host || to.host === '') {
      if (url.host !== to.host) url.auth = null;
      [url.host, url.port] = [to.host, to.port];
    }
    if (to.hostname || to.hostname === '') {
      if (url.hostname !== to.hostname) url.auth = null;
      url.hostname = to.hostname;
    }
    [url.search, url.query] = [to.search, to.query];
    parts = added;
  } else if (added.length > 0) {
    parts.pop();
    parts = parts.concat(added);
    [url.search, url.query] = [to.search, to.query];
  } else if (to.search !== null && to.search !== undefined) {
    if (hostInPath) {
      url.hostname = url.host = parts.shift();
      splitHost(url);
    }
    [url.search, url.query] = [to.search, to.query];
    if (url.pathname !== null || url.search !== null) url.path = `${url.pathname || ''}${url.search || ''}`;
    return done();
  }
  if (parts.length === 0) {
    url.pathname = null;
    url.path = url.search ? `/${url.search}` : null;
    return done();
  }
  const last = parts.at(-1);
  const slashAtEnd =
    last === '' || (!!(url.host || to.host || parts.length > 1) && (last === '.' || last === '..'));
  const up = removeDots(parts);
  if (!absolute && !removeAll) for (let left = up; left > 0; left -= 1) parts.unshift('..');
  if (absolute && !isFromRoot(parts)) parts.unshift('');
  if (slashAtEnd && !parts.join('/').endsWith('/')) parts.push('');
  const rooted = isFromRoot(parts);
  if (hostInPath) {
    url.hostname = url.host = rooted ? '' : parts.length > 0 ? parts.shift() : '';
    splitHost(url);
  }
  absolute ||= !!(url.host && parts.length > 0);
  if (absolute && !rooted) parts.unshift('');
  url.pathname = parts.length > 0 ? parts.join('/') : null;
  url.path = url.pathname !== null || url.search !== null ? `${url.pathname || ''}${url.search || ''}` : null;
  url.auth = to.auth || url.auth;
  url.slashes ||= to.slashes;
  return done();
}
