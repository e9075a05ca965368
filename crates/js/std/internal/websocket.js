// `WebSocket`, as a client.

import native from 'native/websocket';
import { Blob } from 'internal/blob';
import { CloseEvent, ErrorEvent, Event, EventTarget, MessageEvent, handlers } from 'internal/event-target';
import { URL } from 'internal/url';
import { enumerable } from 'internal/members';

export class WebSocket extends EventTarget {
  static CONNECTING = 0;
  static OPEN = 1;
  static CLOSING = 2;
  static CLOSED = 3;

  #url;
  #state = WebSocket.CONNECTING;
  #handle = null;
  #buffered = 0;
  #sent = Promise.resolve();
  #binaryType = 'blob';
  protocol = '';
  extensions = '';

  constructor(url, options = []) {
    super();
    if (!URL.canParse(`${url}`)) throw new DOMException(`Invalid URL for WebSocket ${url}`, 'SyntaxError');
    const parsed = new URL(`${url}`);
    if (parsed.protocol === 'http:') parsed.protocol = 'ws:';
    if (parsed.protocol === 'https:') parsed.protocol = 'wss:';
    if (parsed.protocol !== 'ws:' && parsed.protocol !== 'wss:') {
      throw new DOMException(`Expected a ws: or wss: protocol, got ${parsed.protocol}`, 'SyntaxError');
    }
    if (parsed.hash) throw new DOMException('Got fragment', 'SyntaxError');
    this.#url = parsed.href;
    const settings =
      typeof options === 'string' || Array.isArray(options) ? { protocols: options } : (options ?? {});
    const protocols = [settings.protocols ?? []].flat().map((protocol) => `${protocol}`);
    if (new Set(protocols).size !== protocols.length)
      throw new DOMException('Invalid Sec-WebSocket-Protocol value', 'SyntaxError');
    const headers = Object.entries(settings.headers ?? {}).map(([name, value]) => [name, `${value}`]);
    void this.#connect(protocols, headers);
  }

  async #connect(protocols, headers) {
    let handle;
    try {
      handle = await native.connect(this.#url, protocols, headers);
    } catch (error) {
      this.#fail(error);
      return;
    }
    this.#handle = handle;
    if (this.#state !== WebSocket.CONNECTING) {
      handle.close(undefined, undefined).catch(() => {});
      this.#end(1006, '', false);
      return;
    }
    this.protocol = handle.protocol;
    this.extensions = handle.extensions;
    this.#state = WebSocket.OPEN;
    this.dispatchEvent(new Event('open'));
    try {
      for (;;) {
        const [kind, value, reason] = await handle.next();
        if (kind === 'close') {
          handle.close(undefined, undefined).catch(() => {});
          this.#end(value, reason, value !== 1006);
          return;
        }
        if (this.#state !== WebSocket.OPEN) continue;
        let data = value;
        if (kind === 'bytes') data = this.#binaryType === 'blob' ? new Blob([value]) : value.buffer;
        this.dispatchEvent(new MessageEvent('message', { data, origin: new URL(this.#url).origin }));
      }
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error) {
    if (this.#state === WebSocket.CLOSED) return;
    this.dispatchEvent(new ErrorEvent('error', { message: error.message, error }));
    this.#end(1006, '', false);
  }

  #end(code, reason, wasClean) {
    if (this.#state === WebSocket.CLOSED) return;
    this.#state = WebSocket.CLOSED;
    this.dispatchEvent(new CloseEvent('close', { code, reason, wasClean }));
  }

  get url() {
    return this.#url;
  }
  get readyState() {
    return this.#state;
  }
  get bufferedAmount() {
    return this.#buffered;
  }
  get binaryType() {
    return this.#binaryType;
  }
  set binaryType(type) {
    if (type === 'blob' || type === 'arraybuffer') this.#binaryType = type;
  }

  send(data) {
    if (this.#state === WebSocket.CONNECTING)
      throw new DOMException('Sent before connected.', 'InvalidStateError');
    if (this.#state !== WebSocket.OPEN) return;
    const value =
      data instanceof Blob
        ? data._bytes
        : ArrayBuffer.isView(data) || data instanceof ArrayBuffer
          ? data
          : `${data}`;
    const length = value.byteLength ?? value.length;
    this.#buffered += length;
    this.#sent = this.#sent
      .then(() => this.#handle.send(value))
      .then(
        () => {
          this.#buffered -= length;
        },
        (error) => this.#fail(error),
      );
  }

  close(code, reason = '') {
    if (code !== undefined && code !== 1000 && !(code >= 3000 && code <= 4999)) {
      throw new DOMException('invalid code', 'InvalidAccessError');
    }
    if (new TextEncoder().encode(reason).length > 123) {
      throw new DOMException(`Reason must be less than 123 bytes; received ${reason.length}`, 'SyntaxError');
    }
    if (this.#state === WebSocket.CLOSING || this.#state === WebSocket.CLOSED) return;
    const connecting = this.#state === WebSocket.CONNECTING;
    this.#state = WebSocket.CLOSING;
    if (connecting) return;
    this.#sent = this.#sent
      .then(() => this.#handle.close(code, code === undefined ? undefined : reason))
      .catch((error) => this.#fail(error));
  }

  get [Symbol.toStringTag]() {
    return 'WebSocket';
  }
}

for (const name of ['CONNECTING', 'OPEN', 'CLOSING', 'CLOSED']) {
  Object.defineProperty(WebSocket.prototype, name, { value: WebSocket[name], enumerable: true });
}
handlers(WebSocket, 'open', 'message', 'error', 'close');
enumerable([WebSocket]);
