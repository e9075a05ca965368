// `MessageChannel` and `BroadcastChannel`, between parts of one plugin.

import { setImmediate } from 'internal/timers';
import { EventTarget, MessageEvent } from 'internal/event-target';
import { follow } from 'internal/context';
import { structuredClone } from 'internal/structured-clone';
import { wrongType } from 'internal/errors';

const inside = Symbol('inside');
const kReceive = Symbol('receive');

/** Handlers such as `onmessage`, and listeners as Node's emitters have them. */
class Port extends EventTarget {
  #handlers = new Map();
  #nodes = new Map();

  _handler(type) {
    return this.#handlers.get(type)?.given ?? null;
  }

  _setHandler(type, given) {
    const before = this.#handlers.get(type);
    if (before) this.removeEventListener(type, before.call);
    this.#handlers.delete(type);
    if (typeof given !== 'function') return;
    const call = (event) => given.call(this, event);
    this.#handlers.set(type, { given, call });
    this.addEventListener(type, call);
  }

  on(type, listener) {
    const call = (event) => listener.call(this, type.startsWith('message') ? event.data : event);
    if (!this.#nodes.has(listener)) this.#nodes.set(listener, new Map());
    this.#nodes.get(listener).set(type, call);
    this.addEventListener(type, call);
    if (type === 'message') this.start?.();
    return this;
  }

  once(type, listener) {
    const once = (value) => {
      this.off(type, once);
      listener.call(this, value);
    };
    once.listener = listener;
    return this.on(type, once);
  }

  off(type, listener) {
    const call = this.#nodes.get(listener)?.get(type);
    if (call) this.removeEventListener(type, call);
    this.#nodes.get(listener)?.delete(type);
    return this;
  }

  emit(type, value) {
    return this.dispatchEvent(
      type.startsWith('message') ? new MessageEvent(type, { data: value }) : new Event(type),
    );
  }

  ref() {
    return this;
  }
  unref() {
    return this;
  }
  hasRef() {
    return false;
  }
}
Object.assign(Port.prototype, {
  addListener: Port.prototype.on,
  removeListener: Port.prototype.off,
});

function handlers(Class, types) {
  for (const type of types) {
    Object.defineProperty(Class.prototype, `on${type}`, {
      configurable: true,
      enumerable: true,
      get() {
        return this._handler(type);
      },
      set(given) {
        this._setHandler(type, given);
        if (type === 'message') this.start?.();
      },
    });
  }
}

export class MessagePort extends Port {
  #other = null;
  #waiting = [];
  #started = false;
  #closed = false;

  constructor(key) {
    super();
    if (key !== inside) throw new TypeError('Illegal constructor');
  }

  _join(other) {
    this.#other = other;
  }

  postMessage(value, options) {
    if (arguments.length === 0) throw wrongType('value', 'specified', value);
    const transfer = Array.isArray(options) ? options : (options?.transfer ?? []);
    const ports = transfer.filter((each) => each instanceof MessagePort);
    const copied = clone(value, transfer);
    if (this.#closed) return;
    this.#other?.[kReceive](copied, ports);
  }

  [kReceive](data, ports) {
    if (this.#closed) return;
    this.#waiting.push({ data, ports });
    if (this.#started) this.#deliver();
  }

  #deliver() {
    setImmediate(
      follow(() => {
        const next = this.#waiting.shift();
        if (!next || this.#closed) return;
        this.dispatchEvent(new MessageEvent('message', next));
      }),
    ).unref();
  }

  _take() {
    return this.#waiting.shift();
  }

  start() {
    if (this.#started) return;
    this.#started = true;
    for (let left = this.#waiting.length; left > 0; left -= 1) this.#deliver();
  }

  close() {
    if (this.#closed) return;
    const other = this.#other;
    setImmediate(() => {
      if (this.#closed) return;
      this.#closed = true;
      this.dispatchEvent(new Event('close'));
      other?.close();
    });
  }
}
handlers(MessagePort, ['message', 'messageerror', 'close']);

/** A copy, in which transferred ports stay what they are. */
function clone(value, transfer) {
  const ports = transfer.filter((each) => each instanceof MessagePort);
  const rest = transfer.filter((each) => !(each instanceof MessagePort));
  if (ports.length === 0) return structuredClone(value, { transfer: rest });
  if (ports.includes(value)) return value;
  if (value === null || typeof value !== 'object') return structuredClone(value, { transfer: rest });
  const names = Object.keys(value).filter((name) => ports.includes(value[name]));
  const plain = { ...value };
  for (const name of names) delete plain[name];
  const copied = structuredClone(plain, { transfer: rest });
  for (const name of names) copied[name] = value[name];
  return copied;
}

export class MessageChannel {
  port1 = new MessagePort(inside);
  port2 = new MessagePort(inside);

  constructor() {
    this.port1._join(this.port2);
    this.port2._join(this.port1);
  }
}

export function receiveMessageOnPort(port) {
  if (!(port instanceof MessagePort)) throw wrongType('port', 'a MessagePort instance', port);
  const next = port._take();
  return next && { message: next.data };
}

const channels = new Map();

export class BroadcastChannel extends Port {
  #name;
  #closed = false;

  constructor(name) {
    if (arguments.length === 0) throw wrongType('name', 'specified', name);
    super();
    this.#name = `${name}`;
    if (!channels.has(this.#name)) channels.set(this.#name, new Set());
    channels.get(this.#name).add(this);
  }

  get name() {
    return this.#name;
  }

  postMessage(message) {
    if (this.#closed) throw new DOMException('BroadcastChannel is closed.', 'InvalidStateError');
    for (const other of channels.get(this.#name)) {
      if (other === this) continue;
      const data = structuredClone(message);
      setImmediate(() => {
        if (!other.#closed) other.dispatchEvent(new MessageEvent('message', { data }));
      }).unref();
    }
  }

  close() {
    this.#closed = true;
    const all = channels.get(this.#name);
    all?.delete(this);
    if (all?.size === 0) channels.delete(this.#name);
  }
}
handlers(BroadcastChannel, ['message', 'messageerror']);
