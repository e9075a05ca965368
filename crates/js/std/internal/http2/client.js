// A session of HTTP/2 as a client, and its requests.

import native from 'native/http2';
import net from 'node:net';
import tls from 'node:tls';
import { abortError, checkObject, coded, missing, wrongType } from 'internal/errors';
import { isToken } from 'internal/http1/common';
import { URL } from 'internal/url';
import { checkSettings, refusal, rowsOf } from 'internal/http2/common';
import { Http2Session } from 'internal/http2/session';
import { ClientHttp2Stream } from 'internal/http2/stream';

const WITHOUT_BODY = new Set(['DELETE', 'GET', 'HEAD']);

/** Settings that a session has before it begins. */
function initialSettings(given) {
  const settings = given !== null && typeof given === 'object' ? { ...given } : {};
  checkSettings(settings);
  if (settings.enablePush === true)
    throw missing('the setting enablePush of http2.connect', 'leave it out; the server then pushes nothing');
  if (settings.maxHeaderSize !== undefined) settings.maxHeaderListSize ??= settings.maxHeaderSize;
  return settings;
}

export class ClientHttp2Session extends Http2Session {
  #authority;
  #protocol;

  constructor(options, socket, authority, protocol) {
    super(options, socket);
    this.#authority = authority;
    this.#protocol = protocol;
  }

  get type() {
    return 1;
  }

  _open(settings) {
    return native.session(settings);
  }

  request(given, options) {
    this._live();
    if (this.closed) throw refusal('GOAWAY_SESSION');
    this._touch();
    if (given !== undefined) checkObject(given, 'headers');
    if (options !== undefined) checkObject(options, 'options');
    const headers = Object.assign(Object.create(null), given);
    for (const name of Object.keys(headers))
      if (name[0] !== ':' && name && !isToken(name))
        throw coded(
          TypeError,
          'ERR_INVALID_HTTP_TOKEN',
          `Header name must be a valid HTTP token ["${name}"]`,
        );
    this.#complete(headers);
    const { endStream = WITHOUT_BODY.has(headers[':method']), waitForTrailers, signal } = options ?? {};
    if (typeof endStream !== 'boolean') throw wrongType('options.endStream', 'of type boolean', endStream);
    const { head, rows } = rowsOf(headers, true);
    if (head[':authority'] === undefined && headers.host !== undefined)
      head[':authority'] = `${headers.host}`;
    const stream = new ClientHttp2Stream(this, headers, { endStream, waitForTrailers });
    this._wait(stream);
    if (endStream) stream.end();
    if (signal) this.#follow(signal, stream);
    if (this.connecting) this.once('connect', () => this.#begun(stream, head, rows, endStream));
    else this.#begun(stream, head, rows, endStream);
    return stream;
  }

  /** The pseudo-headers that nobody gave. */
  #complete(headers) {
    headers[':method'] ??= 'GET';
    if (headers[':method'] !== 'CONNECT' || headers[':protocol'] !== undefined) {
      if (headers[':authority'] === undefined && headers.host === undefined)
        headers[':authority'] = this.#authority;
      headers[':scheme'] ??= this.#protocol.slice(0, -1);
      headers[':path'] ??= '/';
      return;
    }
    if (headers[':authority'] === undefined) throw refusal('CONNECT_AUTHORITY');
    if (headers[':scheme'] !== undefined) throw refusal('CONNECT_SCHEME');
    if (headers[':path'] !== undefined) throw refusal('CONNECT_PATH');
  }

  #follow(signal, stream) {
    if (typeof signal !== 'object' || !('aborted' in signal))
      throw wrongType('options.signal', 'an instance of AbortSignal', signal);
    const abort = () => stream.destroy(abortError(signal));
    if (signal.aborted) {
      abort();
      return;
    }
    signal.addEventListener('abort', abort, { once: true });
    stream.once('close', () => signal.removeEventListener('abort', abort));
  }

  #begun(stream, head, rows, endStream) {
    if (stream.destroyed || this.destroyed) return;
    if (this.closed) {
      stream.destroy(refusal('GOAWAY_SESSION'));
      return;
    }
    let handle;
    try {
      handle = this._native.request(head, rows, endStream);
    } catch (error) {
      stream.destroy(error);
      return;
    }
    this._hold(stream, handle);
    stream._begin(handle);
  }
}

export function connect(authority, options, listener) {
  if (typeof options === 'function') [options, listener] = [undefined, options];
  if (options !== undefined) checkObject(options, 'options');
  const given = { ...options, settings: initialSettings(options?.settings) };
  if (typeof authority === 'string') authority = new URL(authority);
  if (authority === null || typeof authority !== 'object')
    throw wrongType('authority', 'of type string or an instance of Object or URL', authority);
  const protocol = authority.protocol || given.protocol || 'https:';
  const port = `${authority.port || (protocol === 'http:' ? 80 : 443)}`;
  const host = (authority.hostname || authority.host || 'localhost').replace(/^\[(.*)\]$/, '$1');
  const session = new ClientHttp2Session(
    given,
    connection(authority, given, protocol, port, host),
    `${given.servername || (host.includes(':') ? `[${host}]` : host)}:${port}`,
    protocol,
  );
  if (typeof listener === 'function') session.once('connect', listener);
  return session;
}

/** Through `node:net` and `node:tls`, as every other connection. */
function connection(authority, options, protocol, port, host) {
  if (typeof options.createConnection === 'function') return options.createConnection(authority, options);
  if (protocol === 'http:') return net.connect({ port, host, ...options });
  if (protocol !== 'https:') throw refusal('UNSUPPORTED_PROTOCOL', protocol);
  const servername = net.isIP(host) ? undefined : host;
  return tls.connect({ servername, ...options, port, host, ALPNProtocols: options.ALPNProtocols ?? ['h2'] });
}
