// `HTTPParser` as Node's internal binding has it, for packages that parse messages without a connection.

import { Bytes } from 'internal/buffer';
import { lasts, message, parser, upgrades } from 'internal/http1/connection';
import { IncomingMessage } from 'internal/http1/incoming';

/** The methods by their number in llhttp. */
const METHODS = (
  'DELETE GET HEAD POST PUT CONNECT OPTIONS TRACE COPY LOCK MKCOL MOVE PROPFIND PROPPATCH SEARCH UNLOCK BIND REBIND ' +
  'UNBIND ACL REPORT MKACTIVITY CHECKOUT MERGE M-SEARCH NOTIFY SUBSCRIBE UNSUBSCRIBE PATCH PURGE MKCALENDAR LINK ' +
  'UNLINK SOURCE PRI DESCRIBE ANNOUNCE SETUP PLAY PAUSE TEARDOWN GET_PARAMETER SET_PARAMETER REDIRECT RECORD FLUSH QUERY'
).split(' ');

/** More pairs than this are passed in several calls. */
const MOST_PAIRS = 31;

const CONSTANTS = {
  REQUEST: 1,
  RESPONSE: 2,
  kOnMessageBegin: 0,
  kOnHeaders: 1,
  kOnHeadersComplete: 2,
  kOnBody: 3,
  kOnMessageComplete: 4,
  kOnExecute: 5,
  kOnTimeout: 6,
  kLenientNone: 0,
  kLenientHeaders: 1,
  kLenientChunkedLength: 2,
  kLenientKeepAlive: 4,
  kLenientTransferEncoding: 8,
  kLenientVersion: 16,
  kLenientDataAfterClose: 32,
  kLenientOptionalLFAfterCR: 64,
  kLenientOptionalCRLFAfterChunk: 128,
  kLenientOptionalCRBeforeLF: 256,
  kLenientSpacesAfterChunkSize: 512,
  kLenientHeaderValueRelaxed: 1024,
  kLenientAll: 1023,
};

const { kOnMessageBegin, kOnHeaders, kOnHeadersComplete, kOnBody, kOnMessageComplete } = CONSTANTS;

export class HTTPParser {
  #from = null;
  #requests = true;
  #upgraded = false;
  #url = '';

  initialize(type, resource, maxHeaderSize) {
    this.#requests = type === CONSTANTS.REQUEST;
    this.#from = parser(this.#requests ? 'requests' : 'responses', maxHeaderSize);
    this.#upgraded = false;
  }

  /** Parses bytes; returns how many, or an error. */
  execute(bytes) {
    if (!this.#from || this.#upgraded) return 0;
    try {
      this.#from.push(bytes);
      for (let part = this.#from.next(); part !== null; part = this.#from.next()) {
        this.#pass(part);
        if (this.#upgraded) return bytes.length - this.#from.rest().length;
        if (!this.#from) break;
      }
    } catch (error) {
      if (!error?.code?.startsWith?.('HPE_')) throw error;
      error.bytesParsed = 0;
      return error;
    }
    return bytes.length;
  }

  finish() {
    try {
      if (this.#from?.finish()) this[kOnMessageComplete]?.();
      return undefined;
    } catch (error) {
      return error;
    }
  }

  #pass(part) {
    const [kind] = part;
    if (kind === 'head') this.#head(part);
    else if (kind === 'body') {
      const [, { buffer, byteOffset, byteLength }] = part;
      this[kOnBody]?.(Bytes.from(buffer, byteOffset, byteLength));
    } else {
      if (part[1].length > 0) this.#flush(part[1]);
      this[kOnMessageComplete]?.();
    }
  }

  #flush(pairs) {
    for (let at = 0; at < pairs.length; at += 2 * MOST_PAIRS) {
      this[kOnHeaders]?.(pairs.slice(at, at + 2 * MOST_PAIRS), this.#url);
      this.#url = '';
    }
  }

  #head(part) {
    const [, minor, method, url, status, reason, pairs, length] = part;
    const made = message(IncomingMessage, undefined, part);
    const upgrade = method === 'CONNECT' || status === 101 || (this.#requests && upgrades(made));
    const bodiless = !this.#requests && (status < 200 || status === 204 || status === 304);
    const ends = this.#requests || bodiless || length !== null;
    const many = pairs.length > 2 * MOST_PAIRS;
    this[kOnMessageBegin]?.();
    this.#url = url;
    if (many) this.#flush(pairs);
    const skipped = this[kOnHeadersComplete]?.(
      1,
      minor,
      many ? undefined : pairs,
      this.#requests ? METHODS.indexOf(method) : undefined,
      this.#requests && !many ? url : undefined,
      this.#requests ? undefined : status,
      this.#requests ? undefined : reason,
      upgrade,
      lasts(made) && ends,
    );
    if (!this.#from) return;
    if (upgrade || skipped === 2) {
      this.#upgraded = true;
      this.#from.body('upgrade');
      this[kOnMessageComplete]?.();
    } else this.#from.body(bodiless || skipped === 1 ? 'none' : undefined);
  }

  close() {
    this.#from = null;
  }
  free() {
    this.#from = null;
  }
  remove() {}
  pause() {}
  resume() {}
  consume() {}
  unconsume() {}
  getCurrentBuffer() {
    return Bytes.alloc(0);
  }
}
Object.assign(HTTPParser, CONSTANTS);
