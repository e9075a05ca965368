import { Bytes } from 'internal/buffer';
import { Server as NetServer, Socket, isIP } from 'node:net';
import { absent } from 'internal/absent';
import { coded, missing } from 'internal/errors';
import native from 'native/tls';
import { TLSSocket, check } from 'internal/tls';
import { mismatch } from 'internal/x509';

export const CLIENT_RENEG_LIMIT = 3;
export const CLIENT_RENEG_WINDOW = 600;
export const DEFAULT_MIN_VERSION = 'TLSv1.2';
export const DEFAULT_MAX_VERSION = 'TLSv1.3';
export const DEFAULT_ECDH_CURVE = 'auto';
export const DEFAULT_CIPHERS =
  'TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:' +
  'ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-AES256-GCM-SHA384:' +
  'ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-CHACHA20-POLY1305';

export const getCiphers = () => DEFAULT_CIPHERS.toLowerCase().split(':');
export const createSecurePair = absent('tls.createSecurePair', 'use tls.TLSSocket');

export class SecureContext {
  #options;

  constructor(options = {}) {
    this.#options = options;
  }

  get context() {
    return this.#options;
  }
}

export function createSecureContext(options = {}) {
  if (options.cert !== undefined || options.ca !== undefined) check(options);
  return new SecureContext(options);
}

export function checkServerIdentity(host, certificate) {
  const reason = mismatch(`${host}`, certificate, isIP);
  if (reason === undefined) return undefined;
  return coded(
    Error,
    'ERR_TLS_CERT_ALTNAME_INVALID',
    `Hostname/IP does not match certificate's altnames: ${reason}`,
    { reason, host, cert: certificate },
  );
}

export function convertALPNProtocols(protocols, out) {
  if (Array.isArray(protocols))
    out.ALPNProtocols = Bytes.concat(
      protocols.flatMap((each) => [Bytes.from([Bytes.byteLength(each)]), Bytes.from(each)]),
    );
  else if (ArrayBuffer.isView(protocols)) out.ALPNProtocols = Bytes.from(protocols);
}

/** `(port, host?, options?)`, `(options)` or `(path, options?)`, then perhaps a callback. */
function arrange(given) {
  const callback = typeof given.at(-1) === 'function' ? given.pop() : undefined;
  const [first, second, third] = given;
  if (first !== null && typeof first === 'object') return [{ ...first }, callback];
  const place = typeof first === 'string' && !/^\d+$/.test(first) ? { path: first } : { port: Number(first) };
  if (typeof second === 'string') place.host = second;
  const options = typeof second === 'object' ? second : third;
  return [{ ...options, ...place }, callback];
}

export function connect(...given) {
  const [options, callback] = arrange(given);
  options.rejectUnauthorized ??= process.env.NODE_TLS_REJECT_UNAUTHORIZED !== '0';
  const host = options.host ?? 'localhost';
  const below = options.socket;
  const socket = new TLSSocket(undefined, {
    ...options,
    socket: undefined,
    isServer: false,
    host: options.servername || host,
  });
  socket.servername = options.servername ?? (isIP(host) ? '' : host);
  socket._host = host;
  if (callback) socket.once('secureConnect', callback);
  if (options.timeout) socket.setTimeout(options.timeout);
  if (below) {
    if (below instanceof Socket && below.connecting) below.once('connect', () => socket._start(below));
    else socket._start(below);
    below.once('error', (error) => socket.destroy(error));
    return socket;
  }
  const raw = new Socket({ allowHalfOpen: true });
  raw.once('error', (error) => socket.destroy(error));
  raw.on('lookup', (...found) => socket.emit('lookup', ...found));
  raw.once('connect', () => socket._start(raw));
  socket.once('close', () => raw.destroy());
  raw.connect({
    host: options.host,
    port: options.port,
    path: options.path,
    family: options.family,
    lookup: options.lookup,
  });
  return socket;
}

export class Server extends NetServer {
  #options;

  constructor(options, listener) {
    if (typeof options === 'function') [options, listener] = [{}, options];
    super({ ...options, allowHalfOpen: true });
    this.#options = { ...options };
    if (this.#options.SNICallback || this.#options.ALPNCallback) {
      throw coded(
        Error,
        'ERR_METHOD_NOT_IMPLEMENTED',
        'the options SNICallback and ALPNCallback are not implemented by the engine that runs plugins; use key, cert and ALPNProtocols',
      );
    }
    if (this.#options.key !== undefined || this.#options.cert !== undefined) check(this.#options);
    if (listener) this.on('secureConnection', listener);
    this.on('connection', (raw) => this._secure(raw));
  }

  _secure(raw) {
    const socket = new TLSSocket(raw, { ...this.#options, isServer: true });
    socket.server = this;
    const failed = (error) => this.emit('tlsClientError', error, socket);
    socket.on('error', () => {});
    socket.once('_tlsError', failed);
    socket.once('secure', () => {
      socket.removeListener('_tlsError', failed);
      this.emit('secureConnection', socket);
    });
  }

  setSecureContext(options) {
    check(options);
    this.#options = { ...this.#options, ...options };
  }

  addContext() {
    throw coded(
      Error,
      'ERR_METHOD_NOT_IMPLEMENTED',
      'tls.Server.addContext is not implemented by the engine that runs plugins; use setSecureContext',
    );
  }

  getTicketKeys() {
    throw missing('tls.Server.getTicketKeys', 'sessions are resumed with keys of the host');
  }
  setTicketKeys() {
    throw missing('tls.Server.setTicketKeys', 'sessions are resumed with keys of the host');
  }
}

export const createServer = (options, listener) => new Server(options, listener);

/** Fills a list when it is first looked at: reading the certificates of the system takes a while. */
function later(list, fill) {
  let filled = false;
  const traps = {};
  for (const trap of ['get', 'has', 'ownKeys', 'getOwnPropertyDescriptor', 'isExtensible']) {
    traps[trap] = (target, ...given) => {
      if (!filled) {
        filled = true;
        target.push(...fill());
        Object.freeze(target);
      }
      return Reflect[trap](target, ...given);
    };
  }
  return new Proxy(list, traps);
}

let authorities;
function trusted() {
  authorities ??= native.authorities();
  if (authorities.length === 0) {
    throw coded(
      Error,
      'ERR_METHOD_NOT_IMPLEMENTED',
      'tls.rootCertificates: the system has no certificates of authorities; install ca-certificates',
    );
  }
  return authorities;
}

/** Those that the host trusts: the system's. Node has Mozilla's built in. */
export const rootCertificates = later([], trusted);

export function getCACertificates(type = 'default') {
  switch (type) {
    case 'default':
    case 'system':
      return [...trusted()];
    case 'extra':
      return [];
    default:
      throw coded(
        Error,
        'ERR_METHOD_NOT_IMPLEMENTED',
        `tls.getCACertificates(${JSON.stringify(type)}): only those of the system are there; use 'system'`,
      );
  }
}

export { TLSSocket };
export default {
  CLIENT_RENEG_LIMIT,
  CLIENT_RENEG_WINDOW,
  DEFAULT_CIPHERS,
  DEFAULT_ECDH_CURVE,
  DEFAULT_MAX_VERSION,
  DEFAULT_MIN_VERSION,
  SecureContext,
  Server,
  TLSSocket,
  checkServerIdentity,
  connect,
  convertALPNProtocols,
  createSecureContext,
  createSecurePair,
  createServer,
  getCACertificates,
  getCiphers,
  rootCertificates,
};
