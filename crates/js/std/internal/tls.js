// TLS on a stream: what the session makes of its bytes, as the handle of a socket.

import native from 'native/tls';
import { Bytes } from 'internal/buffer';
import { Socket, isIP } from 'node:net';
import { coded } from 'internal/errors';
import { hangUp } from 'internal/http1/common';
import { certificate, mismatch } from 'internal/x509';

/** Plain bytes that wait to be read; beyond it nothing is read from the stream. */
const HIGH_WATER_MARK = 256 << 10;

const pem = (value) => {
  if (value === undefined || value === null) return undefined;
  const parts = [value].flat().map((each) => each?.pem ?? each);
  if (parts.length === 1 && typeof parts[0] !== 'string') return parts[0];
  return Bytes.concat(parts.flatMap((each) => [Bytes.from(each), Bytes.from('\n')]));
};

/** What the native side reads of `tls` options. */
export function prepare(given) {
  const options = { ...given.secureContext?.context, ...given };
  if (options.pfx !== undefined) {
    throw coded(
      Error,
      'ERR_METHOD_NOT_IMPLEMENTED',
      'the option pfx is not implemented by the engine that runs plugins; use key and cert in PEM',
    );
  }
  const alpn = options.ALPNProtocols;
  return {
    ca: pem(options.ca),
    cert: pem(options.cert),
    key: pem(options.key),
    alpn: ArrayBuffer.isView(alpn) ? unpack(alpn) : alpn?.map((each) => `${each}`),
    requestCert: !!options.requestCert,
    rejectUnauthorized: options.rejectUnauthorized !== false,
  };
}

function unpack(bytes) {
  const names = [];
  for (let at = 0; at < bytes.length; at += bytes[at] + 1)
    names.push(Bytes.from(bytes.subarray(at + 1, at + 1 + bytes[at])).toString('latin1'));
  return names;
}

/** Joins a session and a stream; `secured` is called with the facts of the handshake. */
function handleOf(session, stream, secured, failed) {
  const waiting = [];
  let size = 0;
  let asked = null;
  let ended = false;
  let error = null;
  let done = false;

  const give = () => {
    if (!asked) return;
    if (waiting.length > 0) {
      const bytes = waiting.length === 1 ? waiting[0] : Bytes.concat(waiting);
      waiting.length = 0;
      size = 0;
      asked.resolve(bytes);
      stream.resume();
    } else if (error) asked.reject(error);
    else if (ended) asked.resolve(null);
    else return;
    asked = null;
  };
  const flush = (callback) => {
    const bytes = session.outgoing();
    if (bytes !== null && stream.writable)
      return stream.write(Bytes.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), callback);
    callback?.();
    return true;
  };
  const stop = (reason) => {
    if (reason) error ??= reason;
    ended = true;
    if (!done) {
      done = true;
      failed(
        reason ??
          Object.assign(
            hangUp('Client network socket disconnected before secure TLS connection was established'),
          ),
      );
    }
    give();
  };
  stream.on('data', (bytes) => {
    if (ended) return;
    let received;
    try {
      received = session.receive(bytes);
    } catch (reason) {
      flush();
      stop(reason);
      return;
    }
    flush();
    const [plain, over] = received;
    if (!done) {
      const facts = session.facts();
      if (facts) {
        done = true;
        secured(facts);
      }
    }
    if (plain !== null) {
      waiting.push(plain);
      size += plain.length;
      if (size > HIGH_WATER_MARK) stream.pause();
    }
    if (over) ended = true;
    give();
  });
  stream.on('end', () => stop());
  stream.on('close', () => stop());
  stream.on('error', stop);
  if (stream.readableFlowing === false) stream.resume();
  flush();
  return {
    read: () =>
      new Promise((resolve, reject) => {
        asked = { resolve, reject };
        give();
      }),
    write: (bytes) =>
      new Promise((resolve, reject) => {
        session.send(bytes);
        if (!flush((reason) => (reason ? reject(reason) : resolve()))) return;
        resolve();
      }),
    end: () =>
      new Promise((resolve) => {
        session.end();
        flush();
        if (stream.writable) stream.end(() => resolve());
        else resolve();
      }),
    destroy() {
      ended = true;
      stream.destroy();
    },
    get localAddress() {
      return stream.localAddress;
    },
    get localPort() {
      return stream.localPort;
    },
    get remoteAddress() {
      return stream.remoteAddress;
    },
    get remotePort() {
      return stream.remotePort;
    },
  };
}

/** A stream as a socket, which packages take from here. */
class StreamSocket extends Socket {
  constructor(stream) {
    super();
    this.stream = stream;
    if (!(stream instanceof Socket)) this._open(plainHandle(stream));
  }
}

function plainHandle(stream) {
  const read = () =>
    new Promise((resolve, reject) => {
      const bytes = stream.read();
      if (bytes !== null) resolve(bytes);
      else if (stream.readableEnded || stream.destroyed) resolve(null);
      else {
        const again = () => {
          stream.removeListener('readable', again);
          stream.removeListener('end', again);
          stream.removeListener('close', again);
          read().then(resolve, reject);
        };
        for (const event of ['readable', 'end', 'close']) stream.on(event, again);
      }
    });
  return {
    read,
    write: (bytes) =>
      new Promise((resolve, reject) => {
        stream.write(bytes, (error) => (error ? reject(error) : resolve()));
      }),
    end: () => new Promise((resolve) => stream.end(resolve)),
    destroy: () => stream.destroy(),
  };
}

export class TLSSocket extends Socket {
  #facts = null;
  #stream;
  #options;
  encrypted = true;
  authorized = false;
  authorizationError = null;
  alpnProtocol = null;
  secureConnecting = true;

  constructor(stream, options = {}) {
    super({
      allowHalfOpen: options.allowHalfOpen ?? !!options.isServer,
      signal: options.signal,
      highWaterMark: options.highWaterMark,
    });
    this.#stream = stream;
    this.#options = options;
    this._tlsOptions = options;
    this.connecting = true;
    if (stream && options.isServer) this._start(stream);
  }

  /** A client that only wraps a stream begins when it is used. */
  _begin() {
    if (this.#stream && !this._parent) this._start(this.#stream);
  }

  _write(chunk, encoding, callback) {
    this._begin();
    super._write(chunk, encoding, callback);
  }

  get _handle() {
    return this.destroyed ? null : { _parentWrap: this.#stream ? new StreamSocket(this.#stream) : null };
  }

  /** The stream below is there: the handshake begins. */
  _start(stream) {
    const options = this.#options;
    this.#stream = stream;
    this._parent = stream;
    if (this.destroyed) {
      stream.destroy();
      return;
    }
    let session;
    try {
      session = options.isServer
        ? native.accept(prepare(options))
        : native.connect(this.servername || options.host || 'localhost', prepare(options));
    } catch (error) {
      queueMicrotask(() => this.destroy(error));
      return;
    }
    const handle = handleOf(
      session,
      stream,
      (facts) => this.#secured(facts, handle),
      (error) => {
        this.connecting = false;
        this.secureConnecting = false;
        this.emit('_tlsError', error);
        this.destroy(error);
      },
    );
  }

  #secured(facts, handle) {
    this.#facts = facts;
    this.secureConnecting = false;
    this.alpnProtocol = facts.alpn ?? false;
    if (facts.servername) this.servername = facts.servername;
    const problem = this.#problem(facts);
    this.authorized = !problem;
    if (problem) this.authorizationError = problem.code;
    if (problem && this.#options.rejectUnauthorized !== false && !this.#options.isServer) {
      handle.destroy();
      this.destroy(problem);
      return;
    }
    this._open(handle);
    this.emit('secure');
    if (!this.#options.isServer) {
      this.emit('connect');
      this.emit('ready');
      this.emit('secureConnect');
    }
  }

  #problem({ problem, chain }) {
    const { isServer, requestCert, checkServerIdentity, host } = this.#options;
    if (isServer) {
      if (!requestCert || chain.length > 0) return undefined;
      return coded(Error, 'UNABLE_TO_GET_ISSUER_CERT', 'unable to get issuer certificate');
    }
    const name = this.servername || host || 'localhost';
    const own = chain.length > 0 ? certificate(chain[0]) : undefined;
    const named = problem?.[0] === 'ERR_TLS_CERT_ALTNAME_INVALID';
    if (problem && !named) {
      if (problem[0] === 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' || problem[0] === 'CERT_REJECTED') {
        if (own?.selfSigned) return coded(Error, 'DEPTH_ZERO_SELF_SIGNED_CERT', 'self-signed certificate');
        if (chain.some((each) => certificate(each).selfSigned))
          return coded(Error, 'SELF_SIGNED_CERT_IN_CHAIN', 'self-signed certificate in certificate chain');
      }
      return coded(Error, problem[0], problem[1]);
    }
    if (typeof checkServerIdentity === 'function') return checkServerIdentity(name, own);
    if (!named) return undefined;
    const reason = mismatch(name, own, isIP) ?? problem[1];
    return coded(
      Error,
      'ERR_TLS_CERT_ALTNAME_INVALID',
      `Hostname/IP does not match certificate's altnames: ${reason}`,
      { reason, host: name, cert: own },
    );
  }

  getPeerCertificate(detailed) {
    const chain = this.#facts?.chain ?? [];
    if (chain.length === 0) return {};
    const own = certificate(chain[0]);
    if (detailed) {
      let below = own;
      for (const each of chain.slice(1)) {
        below.issuerCertificate = certificate(each);
        below = below.issuerCertificate;
      }
      below.issuerCertificate = below;
    }
    return own;
  }

  getPeerX509Certificate() {
    return undefined;
  }
  getCertificate() {
    return {};
  }
  getCipher() {
    if (!this.#facts) return undefined;
    const { cipher, protocol } = this.#facts;
    return { name: cipher, standardName: cipher, version: protocol };
  }
  getProtocol() {
    return this.#facts?.protocol ?? null;
  }
  getSession() {
    return undefined;
  }
  getTLSTicket() {
    return undefined;
  }
  getEphemeralKeyInfo() {
    return {};
  }
  getFinished() {
    return undefined;
  }
  getPeerFinished() {
    return undefined;
  }
  getSharedSigalgs() {
    return [];
  }
  isSessionReused() {
    return false;
  }
  setServername(name) {
    this.servername = name;
  }
  setMaxSendFragment() {
    return true;
  }
  setSession() {}
  enableTrace() {}
  disableRenegotiation() {}
  setKeyCert() {
    throw coded(
      Error,
      'ERR_METHOD_NOT_IMPLEMENTED',
      'tls.TLSSocket.setKeyCert is not implemented by the engine that runs plugins; use the options key and cert',
    );
  }
  renegotiate(options, callback) {
    const error = coded(
      Error,
      'ERR_TLS_RENEGOTIATION_DISABLED',
      'TLS session renegotiation disabled for this socket',
    );
    if (callback) queueMicrotask(() => callback(error));
    return false;
  }

  _destroy(error, callback) {
    this.#stream?.destroy?.();
    super._destroy(error, callback);
  }

  setNoDelay(...given) {
    this.#stream?.setNoDelay?.(...given);
    return this;
  }
  setKeepAlive(...given) {
    this.#stream?.setKeepAlive?.(...given);
    return this;
  }
}

/** Throws where certificates and keys cannot be used. */
export const check = (options) => native.context(prepare(options));
