// `Request` and `Response`. A body is kept as it came, bytes or a stream, and becomes a stream when somebody
// asks for one.

import { Headers } from 'internal/headers';
import { Blob } from 'internal/blob';
import { AbortController, AbortSignal } from 'internal/event-target';
import { isDisturbed } from 'internal/streams/readable';
import { FormData, readForm, writeForm } from 'internal/form-data';
import { TextDecoder, TextEncoder } from 'internal/text';
import { URL, URLSearchParams } from 'internal/url';
import { enumerable, include } from 'internal/members';

const EMPTY = new Uint8Array(0);

/** What a value is as a body: `{ bytes }` or `{ stream }`, and its type. */
function extract(value) {
  if (typeof value === 'string') {
    return { bytes: new TextEncoder().encode(value), type: 'text/plain;charset=UTF-8' };
  }
  if (value instanceof URLSearchParams) {
    const type = 'application/x-www-form-urlencoded;charset=UTF-8';
    return { bytes: new TextEncoder().encode(value.toString()), type };
  }
  if (value instanceof Blob) return { bytes: value._bytes, type: value.type || undefined };
  if (value instanceof FormData) {
    const { blob, type } = writeForm(value);
    return { bytes: blob._bytes, type };
  }
  if (ArrayBuffer.isView(value))
    return {
      bytes: new Uint8Array(value.buffer.slice(value.byteOffset, value.byteOffset + value.byteLength)),
    };
  if (value instanceof ArrayBuffer) return { bytes: new Uint8Array(value.slice(0)) };
  if (value instanceof ReadableStream) {
    if (value.locked) throw new TypeError('The body is a stream that is locked or was read');
    return { stream: value };
  }
  if (typeof value[Symbol.asyncIterator] === 'function') return { stream: ReadableStream.from(value) };
  return extract(`${value}`);
}

/** A stream of what a native function answers, chunk by chunk, and only once it is read. */
function streamOf(next) {
  return new ReadableStream(
    {
      async pull(controller) {
        const bytes = await next();
        if (bytes === null) controller.close();
        else controller.enqueue(bytes);
      },
      cancel() {
        next.cancel?.();
      },
    },
    { highWaterMark: 0 },
  );
}

const CHARGE = Symbol('charge');

/** Reads bytes that the host charges until their buffer is freed. */
async function charged(read) {
  const got = await read();
  if (got === null) return null;
  Object.defineProperty(got.bytes.buffer, CHARGE, { value: got.charge });
  return got.bytes;
}

function fromOutside(body) {
  if (body === null) return null;
  if (typeof body !== 'function') return { bytes: body };
  return body.all ? { next: () => charged(body), all: () => charged(body.all) } : { next: body };
}

/** Puts the fields of a class on an object of another one. */
function Given(object) {
  return object;
}

/** What requests and responses include: its fields are put on them, and its members are theirs. */
class Body extends Given {
  #body = null;
  #used = false;
  #stream = null;

  static addTo(target) {
    return new Body(target);
  }

  _set(body) {
    this.#body = body;
  }

  #open() {
    if (this.#stream) return this.#stream;
    const { bytes, stream, next } = this.#body;
    if (stream) this.#stream = stream;
    else if (next) this.#stream = streamOf(next);
    else {
      let given = false;
      this.#stream = new ReadableStream(
        {
          pull(controller) {
            if (!given && bytes.length > 0) controller.enqueue(bytes.slice());
            given = true;
            controller.close();
          },
        },
        { highWaterMark: 0 },
      );
    }
    return this.#stream;
  }

  get body() {
    return this.#body === null ? null : this.#open();
  }

  get bodyUsed() {
    return this.#used || (this.#stream !== null && isDisturbed(this.#stream));
  }

  async #take() {
    if (this.#body === null) return EMPTY;
    if (this.bodyUsed || this.#stream?.locked)
      throw new TypeError('Body is unusable: Body has already been read');
    this.#used = true;
    const { bytes, next, all: whole } = this.#body;
    if (bytes && !this.#stream) return bytes;
    if (whole && !this.#stream) return whole();
    const pieces = [];
    let length = 0;
    const add = (piece) => {
      if (!(piece instanceof Uint8Array)) throw new TypeError('Received non-Uint8Array chunk');
      pieces.push(piece);
      length += piece.length;
    };
    if (next && !this.#stream) {
      for (let piece = await next(); piece !== null; piece = await next()) add(piece);
    } else {
      const reader = this.#open().getReader();
      for (let { value, done } = await reader.read(); !done; { value, done } = await reader.read())
        add(value);
    }
    if (pieces.length === 1) return pieces[0];
    const all = new Uint8Array(length);
    let at = 0;
    for (const piece of pieces) {
      all.set(piece, at);
      at += piece.length;
    }
    return all;
  }

  async text() {
    return new TextDecoder().decode(await this.#take());
  }

  async json() {
    return JSON.parse(await this.text());
  }

  async arrayBuffer() {
    const bytes = await this.#take();
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  }

  async bytes() {
    return (await this.#take()).slice();
  }

  async blob() {
    return new Blob([await this.#take()], { type: this.headers.get('content-type') ?? '' });
  }

  async formData() {
    return readForm(await this.#take(), this.headers.get('content-type') ?? '');
  }

  /** The same body for a copy. */
  _share() {
    if (this.#body === null) return null;
    if (this.bodyUsed || this.#stream?.locked)
      throw new TypeError('Body is unusable: it was read or is locked');
    if (this.#body.bytes && !this.#stream) return { bytes: this.#body.bytes };
    const [one, other] = this.#open().tee();
    this.#body = { stream: one };
    this.#stream = null;
    return { stream: other };
  }

  /** For the native side: nothing, bytes, or `{ next, cancel }`. */
  _parts() {
    if (this.#body === null) return null;
    if (this.bodyUsed || this.#stream?.locked)
      throw new TypeError('Body is unusable: Body has already been read');
    this.#used = true;
    if (this.#body.bytes && !this.#stream) return this.#body.bytes;
    const reader = this.#open().getReader();
    return {
      async next() {
        const { value, done } = await reader.read();
        if (done) return undefined;
        if (typeof value === 'string') return new TextEncoder().encode(value);
        if (!ArrayBuffer.isView(value)) throw new TypeError('A body is made of Uint8Arrays');
        return value;
      },
      async cancel() {
        await reader.cancel().catch(() => {});
      },
    };
  }

  get _isStream() {
    return this.#body !== null && !this.#body.bytes;
  }
}

const METHODS = ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'POST', 'PUT'];

function methodOf(method) {
  const text = `${method}`;
  if (!/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(text))
    throw new TypeError(`'${text}' is not a valid HTTP method.`);
  const upper = text.toUpperCase();
  if (['CONNECT', 'TRACE', 'TRACK'].includes(upper))
    throw new TypeError(`'${text}' HTTP method is unsupported.`);
  return METHODS.includes(upper) ? upper : text;
}

function parseUrl(text) {
  try {
    return new URL(text);
  } catch (cause) {
    throw new TypeError(`Failed to parse URL from ${text}`, { cause });
  }
}

const inside = Symbol('inside');

export class Request {
  #url;
  #method = 'GET';
  #headers;
  #signal;
  #settings = {
    cache: 'default',
    credentials: 'same-origin',
    integrity: '',
    keepalive: false,
    mode: 'cors',
    redirect: 'follow',
    referrer: 'about:client',
    referrerPolicy: '',
  };

  constructor(input, init = {}) {
    Body.addTo(this);
    if (input === inside) {
      this.#url = init.url;
      this.#method = init.method;
      this.#headers = Headers._of(init.headers);
      this._set(fromOutside(init.body));
      return;
    }
    init ??= {};
    let follows;
    let shared = null;
    if (input instanceof Request) {
      this.#url = input.#url;
      this.#method = input.#method;
      this.#headers = new Headers(input.#headers);
      this.#settings = { ...input.#settings };
      follows = input.#signal;
      if (init.body === undefined || init.body === null) shared = input;
    } else {
      const url = parseUrl(`${input}`);
      if (url.username || url.password) {
        throw new TypeError(`Request cannot be constructed from a URL that includes credentials: ${input}`);
      }
      this.#url = url.href;
      this.#headers = new Headers();
    }
    if (init.method !== undefined) this.#method = methodOf(init.method);
    if (init.headers !== undefined) this.#headers = new Headers(init.headers);
    for (const name in this.#settings) if (init[name] !== undefined) this.#settings[name] = init[name];
    if (init.signal !== undefined) {
      if (init.signal !== null && !(init.signal instanceof AbortSignal)) {
        throw new TypeError('Request: the signal is not an AbortSignal');
      }
      follows = init.signal ?? undefined;
    }
    if (follows) this.#signal = AbortSignal.any([follows]);
    const given = init.body !== undefined && init.body !== null;
    if ((given || (shared && shared._isStream)) && (this.#method === 'GET' || this.#method === 'HEAD')) {
      throw new TypeError('Request with GET/HEAD method cannot have body.');
    }
    if (given) {
      const { type, ...body } = extract(init.body);
      if (body.stream && init.duplex === undefined) {
        throw new TypeError('RequestInit: duplex option is required when sending a body.');
      }
      this._set(body);
      if (type && !this.#headers.has('content-type')) this.#headers.set('content-type', type);
    } else if (shared) {
      this._set(shared._share());
    }
  }

  get url() {
    return this.#url;
  }
  get method() {
    return this.#method;
  }
  get headers() {
    return this.#headers;
  }
  get signal() {
    this.#signal ??= new AbortController().signal;
    return this.#signal;
  }
  get duplex() {
    return 'half';
  }
  get destination() {
    return '';
  }

  _setting(name) {
    return this.#settings[name];
  }

  clone() {
    const copy = new Request(inside, {
      url: this.#url,
      method: this.#method,
      headers: this.#headers._pairs(),
      body: null,
    });
    copy.#settings = { ...this.#settings };
    copy.#signal = this.#signal && AbortSignal.any([this.#signal]);
    copy._set(this._share());
    return copy;
  }

  get [Symbol.toStringTag]() {
    return 'Request';
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return `Request ${inspect({ method: this.#method, url: this.#url, headers: this.#headers }, options)}`;
  }
}

for (const name of [
  'cache',
  'credentials',
  'integrity',
  'keepalive',
  'mode',
  'redirect',
  'referrer',
  'referrerPolicy',
]) {
  Object.defineProperty(Request.prototype, name, {
    configurable: true,
    enumerable: true,
    get() {
      return this._setting(name);
    },
  });
}

export class Response {
  #status;
  #statusText;
  #headers;
  #type = 'default';
  #url = '';
  #redirected = false;

  constructor(body, init = {}) {
    Body.addTo(this);
    if (body === inside) {
      this.#status = init.status;
      this.#statusText = init.statusText;
      this.#headers = Headers._of(init.headers);
      this.#type = init.type ?? 'basic';
      this.#url = init.url ?? '';
      this.#redirected = !!init.redirected;
      this._set(fromOutside(init.body));
      return;
    }
    init ??= {};
    this.#status = init.status === undefined ? 200 : Math.trunc(Number(init.status));
    if (!(this.#status >= 200 && this.#status <= 599)) {
      throw new RangeError('init["status"] must be in the range of 200 to 599, inclusive.');
    }
    this.#statusText = `${init.statusText ?? ''}`;
    if (!/^[\t\u0020-\u007e\u0080-\u00ff]*$/.test(this.#statusText))
      throw new TypeError('Invalid statusText');
    this.#headers = new Headers(init.headers);
    if (body === undefined || body === null) return;
    if ([204, 205, 304].includes(this.#status)) {
      throw new TypeError(`Response constructor: Invalid response status code ${this.#status}`);
    }
    const { type, ...extracted } = extract(body);
    this._set(extracted);
    if (type && !this.#headers.has('content-type')) this.#headers.set('content-type', type);
  }

  get status() {
    return this.#status;
  }
  get statusText() {
    return this.#statusText;
  }
  get ok() {
    return this.#status >= 200 && this.#status <= 299;
  }
  get headers() {
    return this.#headers;
  }
  get type() {
    return this.#type;
  }
  get url() {
    return this.#url;
  }
  get redirected() {
    return this.#redirected;
  }

  clone() {
    const copy = new Response(inside, {
      status: this.#status,
      statusText: this.#statusText,
      headers: this.#headers._pairs(),
      type: this.#type,
      url: this.#url,
      redirected: this.#redirected,
      body: null,
    });
    copy._set(this._share());
    return copy;
  }

  static error() {
    return new Response(inside, { status: 0, statusText: '', headers: [], type: 'error', body: null });
  }

  static json(data, init = {}) {
    const text = JSON.stringify(data);
    if (text === undefined) throw new TypeError('Response.json: the value is not JSON serializable');
    const headers = new Headers(init?.headers);
    if (!headers.has('content-type')) headers.set('content-type', 'application/json');
    return new Response(text, { ...init, headers });
  }

  static redirect(url, status = 302) {
    if (![301, 302, 303, 307, 308].includes(status)) throw new RangeError(`Invalid status code ${status}`);
    const location = URL.canParse(`${url}`) ? new URL(`${url}`).href : encodeURI(`${url}`);
    return new Response(null, { status, headers: { location } });
  }

  get [Symbol.toStringTag]() {
    return 'Response';
  }

  [Symbol.for('nodejs.util.inspect.custom')](depth, options, inspect) {
    return `Response ${inspect({ status: this.#status, statusText: this.#statusText, headers: this.#headers, url: this.#url }, options)}`;
  }
}

for (const [Class, names] of [
  [Body, ['_set', '_share', '_parts', '_isStream']],
  [Request, ['_setting']],
]) {
  for (const name of names) Object.defineProperty(Class.prototype, name, { enumerable: false });
}

include(Request, Body);
include(Response, Body);
enumerable([Request, Response]);

/** A request that came to the host. */
export function requestFrom(parts) {
  return new Request(inside, parts);
}

/** A response that came to the host, or to `fetch`. */
export function responseFrom(parts) {
  return new Response(inside, parts);
}

export function partsOf(Class, value) {
  if (!(value instanceof Class)) return undefined;
  const { method, url, status } = value;
  return { method, url, status, headers: value.headers._pairs(), body: value._parts() };
}
