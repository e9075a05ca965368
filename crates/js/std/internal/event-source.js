// `EventSource`, on `fetch`.

import { Event, EventTarget, MessageEvent, handlers } from 'internal/event-target';
import { clearTimeout, setTimeout } from 'internal/timers';
import { fetch } from 'internal/fetch';
import { URL } from 'internal/url';

const RETRY = 3000;

/** Reads events from the text of a stream. */
class Reader {
  #rest = '';
  #data = [];
  #type = '';
  #id;
  #isFirst = true;
  #endedInCr = false;

  constructor(id, tell, retry) {
    this.#id = id;
    this.tell = tell;
    this.retry = retry;
  }

  push(text) {
    if (text === '') return;
    if (this.#isFirst && text.startsWith('\ufeff')) text = text.slice(1);
    this.#isFirst = false;
    if (this.#endedInCr && text.startsWith('\n')) text = text.slice(1);
    this.#endedInCr = text.endsWith('\r') || (text === '' && this.#endedInCr);
    const lines = text.split(/\r\n|\n|\r/);
    lines[0] = this.#rest + lines[0];
    this.#rest = lines.pop();
    for (const line of lines) this.#read(line);
  }

  #read(line) {
    if (line === '') {
      this.#end();
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + (line[colon + 1] === ' ' ? 2 : 1));
    if (name === 'data') this.#data.push(value);
    else if (name === 'event') this.#type = value;
    else if (name === 'id' && !value.includes('\0')) this.#id = value;
    else if (name === 'retry' && /^[0-9]+$/.test(value)) this.retry(Number(value));
  }

  #end() {
    const [data, type] = [this.#data, this.#type];
    this.#data = [];
    this.#type = '';
    this.tell(this.#id, type || 'message', data.length > 0 ? data.join('\n') : undefined);
  }
}

export class EventSource extends EventTarget {
  static CONNECTING = 0;
  static OPEN = 1;
  static CLOSED = 2;

  #url;
  #withCredentials;
  #state = EventSource.CONNECTING;
  #id = '';
  #retry = RETRY;
  #timer;
  #stop;

  constructor(url, options = {}) {
    super();
    if (arguments.length === 0)
      throw new TypeError('EventSource constructor: 1 argument required, but only 0 present.');
    if (!URL.canParse(`${url}`)) throw new DOMException(`Invalid URL for EventSource ${url}`, 'SyntaxError');
    this.#url = new URL(`${url}`).href;
    this.#withCredentials = !!options?.withCredentials;
    void this.#connect();
  }

  async #connect() {
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    const headers = { accept: 'text/event-stream', 'cache-control': 'no-cache' };
    if (this.#id !== '') headers['last-event-id'] = this.#id;
    try {
      const response = await fetch(this.#url, { headers, signal });
      const type = (response.headers.get('content-type') ?? '').split(';')[0].trim().toLowerCase();
      if (response.status !== 200 || type !== 'text/event-stream') {
        await response.body?.cancel();
        this.#fail();
        return;
      }
      if (this.#state === EventSource.CLOSED) return;
      this.#state = EventSource.OPEN;
      this.dispatchEvent(new Event('open'));
      await this.#read(response);
    } catch {
      // What ended the connection is no reason not to connect again.
    }
    this.#again();
  }

  async #read(response) {
    const { origin } = new URL(response.url);
    const tell = (id, type, data) => {
      this.#id = id;
      if (data === undefined || this.#state === EventSource.CLOSED) return;
      this.dispatchEvent(new MessageEvent(type, { data, origin, lastEventId: id }));
    };
    const reader = new Reader(this.#id, tell, (milliseconds) => {
      this.#retry = milliseconds;
    });
    const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
    for await (const bytes of response.body ?? []) reader.push(decoder.decode(bytes, { stream: true }));
  }

  #fail() {
    if (this.#state === EventSource.CLOSED) return;
    this.#state = EventSource.CLOSED;
    this.dispatchEvent(new Event('error'));
  }

  #again() {
    if (this.#state === EventSource.CLOSED) return;
    this.#state = EventSource.CONNECTING;
    this.dispatchEvent(new Event('error'));
    if (this.#state !== EventSource.CONNECTING) return;
    this.#timer = setTimeout(() => void this.#connect(), this.#retry);
  }

  close() {
    this.#state = EventSource.CLOSED;
    clearTimeout(this.#timer);
    this.#stop?.abort();
  }

  get url() {
    return this.#url;
  }
  get readyState() {
    return this.#state;
  }
  get withCredentials() {
    return this.#withCredentials;
  }
  get [Symbol.toStringTag]() {
    return 'EventSource';
  }
}

for (const name of ['CONNECTING', 'OPEN', 'CLOSED']) {
  Object.defineProperty(EventSource.prototype, name, { value: EventSource[name], enumerable: true });
}
handlers(EventSource, 'open', 'message', 'error');
