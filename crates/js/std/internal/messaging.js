// `MessageChannel` and `BroadcastChannel`, between parts of one plugin.

import { setImmediate } from 'internal/timers';
import { EventTarget, MessageEvent } from 'internal/event-target';
import { follow } from 'internal/context';
import { structuredClone } from 'internal/structured-clone';
import native from 'native/ports';
import { Deserializer, Serializer } from 'internal/serialize';
import { wrongType } from 'internal/errors';
import { enumerable } from 'internal/members';

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

/** What a port sends, as bytes and the ends of channels that go along. */
class Writer extends Serializer {
  #ports;

  constructor(ports) {
    super();
    this.#ports = ports;
  }

  _getDataCloneError(message) {
    return new DOMException(message, 'DataCloneError');
  }

  _otherNumber(value) {
    if (!(value instanceof MessagePort)) {
      if (uncloneable.has(value)) throw this._getDataCloneError('#<Object> could not be cloned.');
      return undefined;
    }
    const at = this.#ports.indexOf(value);
    if (at >= 0) return at;
    throw this._getDataCloneError(
      'Object that needs transfer was found in message but not listed in transferList',
    );
  }
}

class Reader extends Deserializer {
  #ports;

  constructor(bytes, ports) {
    super(bytes);
    this.#ports = ports;
  }

  _readOther(at) {
    return this.#ports[at];
  }
}

/** An event whose data may be `undefined`, which the class takes for nothing given. */
function messageEvent(init) {
  const event = new MessageEvent('message', init);
  if (init.data === undefined) Object.defineProperty(event, 'data', { value: undefined });
  return event;
}

const uncloneable = new WeakSet();
/** Keeps an object from being sent. */
export const refuse = (object) => uncloneable.add(object);

/** A value for another engine. What is transferred is detached here. */
export function encode(value, transfer = []) {
  for (const each of transfer) {
    if (!(each instanceof MessagePort || each instanceof ArrayBuffer)) {
      throw new DOMException('Value not transferable', 'DataCloneError');
    }
  }
  const ports = transfer.filter((each) => each instanceof MessagePort);
  const writer = new Writer(ports);
  writer.writeHeader();
  writer.writeValue(value);
  const data = writer.releaseBuffer();
  for (const each of transfer) if (each instanceof ArrayBuffer) each.transfer();
  return { data, ports: ports.map((port) => port._detach()) };
}

/** A value from another engine, with the ports that came along. */
export function decode({ data, ports: handles }) {
  const ports = handles.map((handle) => new MessagePort(inside, handle));
  const reader = new Reader(data, ports);
  reader.readHeader();
  return { data: reader.readValue(), ports };
}

/** The port at the end of a channel to another engine. */
export const portOf = (handle) => new MessagePort(inside, handle);

export class MessagePort extends Port {
  #other = null;
  #waiting = [];
  #started = false;
  #closed = false;
  #listeners = 0;
  #held = false;
  /** The end of a channel to another engine, where the other port is there. */
  #handle = null;
  #listening;

  constructor(key, handle = null) {
    super();
    if (key !== inside) throw new TypeError('Illegal constructor');
    this.#handle = handle;
  }

  _join(other) {
    this.#other = other;
  }

  /** From here on the other port is on another engine. */
  #attach(handle) {
    this.#other = null;
    this.#handle = handle;
    if (this.#started) this.#listen();
  }

  /** The end of the channel, which goes to another engine. */
  _detach() {
    if (this.#closed) throw new DOMException('A closed MessagePort cannot be transferred', 'DataCloneError');
    let handle = this.#handle;
    if (!handle) {
      const [own, theirs] = native.pair();
      for (const { data, ports } of this.#waiting) {
        const sent = encode(data, ports);
        own.send(sent.data, sent.ports);
      }
      this.#other?.#attach(own);
      handle = theirs;
    }
    this.#hold(false);
    this.#handle = null;
    this.#other = null;
    this.#closed = true;
    return handle;
  }

  postMessage(value, options) {
    if (arguments.length === 0) throw wrongType('value', 'specified', value);
    const transfer = Array.isArray(options) ? options : (options?.transfer ?? []);
    if (transfer.includes(this)) {
      throw new DOMException('Transfer list contains source port', 'DataCloneError');
    }
    if (this.#handle) {
      const { data, ports } = encode(value, transfer);
      this.#handle.send(data, ports);
      return;
    }
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
        this.dispatchEvent(messageEvent(next));
      }),
    ).unref();
  }

  #listen() {
    this.#listening = this.#handle.listen(() => this.#pull());
  }

  /** Passes on one message, then the next: each is a task of its own. */
  #pull() {
    const next = this.#handle?.take();
    if (next === undefined) return;
    if (next === null) {
      this.#end();
      return;
    }
    this.#dispatch(next);
    if (next.more) setImmediate(() => this.#pull());
  }

  #dispatch(next) {
    let event;
    try {
      event = messageEvent(decode(next));
    } catch (error) {
      event = new MessageEvent('messageerror', { data: error });
    }
    this.dispatchEvent(event);
  }

  /** Passes on everything that was sent before the other side ended. */
  _drain() {
    for (let next = this.#handle?.take(); next; next = this.#handle?.take()) this.#dispatch(next);
  }

  #end() {
    if (this.#closed) return;
    this.#closed = true;
    this.#hold(false);
    this.#handle?.close(this.#listening);
    this.#handle = null;
    this.dispatchEvent(new Event('close'));
  }

  _take() {
    if (!this.#handle) return this.#waiting.shift();
    const next = this.#handle.take();
    return next ? decode(next) : undefined;
  }

  start() {
    if (this.#started) return;
    this.#started = true;
    if (this.#handle) this.#listen();
    for (let left = this.#waiting.length; left > 0; left -= 1) this.#deliver();
  }

  close() {
    if (this.#closed) return;
    const other = this.#other;
    this.#hold(false);
    setImmediate(() => {
      this.#end();
      other?.close();
    });
  }

  #hold(held) {
    if (this.#held === held || (held && this.#closed)) return;
    this.#held = held;
    native.hold(held ? 1 : -1);
  }

  addEventListener(type, ...given) {
    super.addEventListener(type, ...given);
    if (type !== 'message') return;
    this.#listeners += 1;
    this.start();
    this.#hold(true);
  }

  removeEventListener(type, ...given) {
    super.removeEventListener(type, ...given);
    if (type !== 'message') return;
    this.#listeners -= 1;
    if (this.#listeners <= 0) this.#hold(false);
  }

  ref() {
    this.#hold(true);
    return this;
  }

  unref() {
    this.#hold(false);
    return this;
  }

  hasRef() {
    return this.#held;
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
let hearing = false;

/** Gives a message to every channel of a name that is here, but the one it comes from. */
function tell(name, from, data) {
  for (const other of channels.get(name) ?? []) {
    if (other === from) continue;
    const copy = data();
    setImmediate(() => other._receive(copy)).unref();
  }
}

export class BroadcastChannel extends Port {
  #name;
  #closed = false;

  constructor(name) {
    if (arguments.length === 0) throw wrongType('name', 'specified', name);
    super();
    this.#name = `${name}`;
    if (!channels.has(this.#name)) channels.set(this.#name, new Set());
    channels.get(this.#name).add(this);
    if (hearing) return;
    hearing = true;
    native.onBroadcast((from, data) => {
      tell(from, null, () => decode({ data, ports: [] }).data);
    });
  }

  get name() {
    return this.#name;
  }

  postMessage(message) {
    if (this.#closed) throw new DOMException('BroadcastChannel is closed.', 'InvalidStateError');
    tell(this.#name, this, () => structuredClone(message));
    native.broadcast(this.#name, encode(message).data);
  }

  _receive(data) {
    if (!this.#closed) this.dispatchEvent(new MessageEvent('message', { data }));
  }

  close() {
    this.#closed = true;
    const all = channels.get(this.#name);
    all?.delete(this);
    if (all?.size === 0) channels.delete(this.#name);
  }
}
handlers(BroadcastChannel, ['message', 'messageerror']);
enumerable([BroadcastChannel]);
