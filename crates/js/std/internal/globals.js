// Globals. Most are another module's exports, and made when they are first used.

import native from 'native/globals';
import 'internal/profile';
import { prepareStackTrace } from 'internal/stack';

/** Modules, and the globals each exports. */
const PLACES = `internal/blob Blob File
internal/compression CompressionStream DecompressionStream
internal/console console
internal/event-source EventSource
internal/event-target AbortController AbortSignal CloseEvent CustomEvent ErrorEvent Event EventTarget MessageEvent
internal/fetch fetch
internal/form-data FormData
internal/headers Headers
internal/http Request Response
internal/intl Intl
internal/messaging BroadcastChannel MessageChannel MessagePort
internal/performance Performance PerformanceEntry PerformanceMark PerformanceMeasure PerformanceObserver PerformanceObserverEntryList performance
internal/streams/bytes ReadableByteStreamController ReadableStreamBYOBReader ReadableStreamBYOBRequest
internal/streams/common ByteLengthQueuingStrategy CountQueuingStrategy
internal/streams/readable ReadableStream ReadableStreamDefaultController ReadableStreamDefaultReader
internal/streams/transform TextDecoderStream TextEncoderStream TransformStream TransformStreamDefaultController
internal/streams/writable WritableStream WritableStreamDefaultController WritableStreamDefaultWriter
internal/structured-clone structuredClone
internal/text TextDecoder TextEncoder
internal/timers clearImmediate clearInterval clearTimeout setImmediate setInterval setTimeout
internal/url URL URLSearchParams
internal/url-pattern URLPattern
internal/weak-ref WeakRef
internal/webassembly WebAssembly
internal/webcrypto Crypto CryptoKey SubtleCrypto crypto
internal/websocket WebSocket
node:buffer Buffer atob btoa
node:process process`;

/** As the engine has it. */
export const NativeWeakRef = WeakRef;

function define(target, name, value) {
  Object.defineProperty(target, name, { value, configurable: true, writable: true, enumerable: false });
}

// As elsewhere, whatever is put there: libraries clear a stack with `undefined`.
const stack = Object.getOwnPropertyDescriptor(Error.prototype, 'stack');
Object.defineProperty(Error.prototype, 'stack', {
  ...stack,
  set(value) {
    if (typeof value === 'string') stack.set.call(this, value);
    else define(this, 'stack', value);
  },
});

// As Node writes it: packages compare the text.
const { toString: source } = Function.prototype;
define(Function.prototype, 'toString', function toString() {
  const text = Reflect.apply(source, this, []);
  return text.endsWith('{\n    [native code]\n}')
    ? text.replace(/\{\s*\[native code\]\s*\}$/, '{ [native code] }')
    : text;
});

let pinned;
/** Lets `transfer` refuse a buffer, whose memory stays where it is: that of a WebAssembly.Memory. */
export const pin = (buffer) => (pinned ??= new WeakSet()).add(buffer);
const guard = (transfer) =>
  function (...given) {
    if (pinned?.has(this)) throw new TypeError('the buffer of a WebAssembly.Memory cannot be transferred');
    return Reflect.apply(transfer, this, given);
  };
const buffers = ArrayBuffer.prototype;
for (const name of ['transfer', 'transferToFixedLength', 'transferToImmutable']) {
  if (buffers[name]) define(buffers, name, guard(buffers[name]));
}

// A closure for each global would be most of what an engine takes: these hold nothing but the name.
function defineLater(name) {
  Object.defineProperty(globalThis, name, {
    configurable: true,
    enumerable: false,
    get() {
      const line = PLACES.split('\n').find((each) => each.split(' ').includes(name, 1));
      const value = native.load(line.slice(0, line.indexOf(' ')))[name === 'process' ? 'default' : name];
      define(globalThis, name, value);
      return value;
    },
    set(value) {
      define(globalThis, name, value);
    },
  });
}

for (const line of PLACES.split('\n')) {
  for (const name of line.split(' ').slice(1)) defineLater(name);
}
define(globalThis, 'global', globalThis);
define(
  globalThis,
  'navigator',
  Object.freeze({
    get userAgent() {
      return `ostler/${native.version}`;
    },
    get hardwareConcurrency() {
      return native.load('node:os').availableParallelism();
    },
    language: 'en-US',
    languages: Object.freeze(['en-US']),
    get platform() {
      return native.load('node:process').default.platform;
    },
  }),
);

for (const name of ['dispose', 'asyncDispose']) {
  if (!Symbol[name]) Object.defineProperty(Symbol, name, { value: Symbol(`Symbol.${name}`) });
}

const local = () => native.load('internal/intl').local;
define(Number.prototype, 'toLocaleString', function toLocaleString(locales, options) {
  return local().number(Number(this), locales, options);
});
define(BigInt.prototype, 'toLocaleString', function toLocaleString(locales, options) {
  return local().number(BigInt(this), locales, options);
});
define(String.prototype, 'localeCompare', function localeCompare(other, locales, options) {
  return local().compare(`${this}`, `${other}`, locales, options);
});
for (const [name, defaults] of [
  ['toLocaleString', 'both'],
  ['toLocaleDateString', 'date'],
  ['toLocaleTimeString', 'time'],
]) {
  const format = {
    [name](locales, options) {
      return local().date(this, locales, options, defaults);
    },
  };
  define(Date.prototype, name, format[name]);
}

const zones = new Map();

/** The name of the local time zone, which packages search for in the text of a date. */
function zoneOf(date) {
  const offset = date.getTimezoneOffset();
  if (!zones.has(offset)) {
    // Not those of `Intl`, whose tables take more memory than all of a small plugin.
    const { own, offset: at } = native.load('native/zones').default;
    const [zone, time] = [own(), date.getTime()];
    const [minutes, abbreviation] = at(zone, time) ?? [0, 'UTC'];
    zones.set(offset, native.load('internal/zone-names').longName(zone, abbreviation, minutes));
  }
  return zones.get(offset);
}
for (const name of ['toString', 'toTimeString']) {
  const text = Date.prototype[name];
  const format = {
    [name]() {
      const shown = Reflect.apply(text, this, []);
      return shown.endsWith(')') || shown === 'Invalid Date' ? shown : `${shown} (${zoneOf(this)})`;
    },
  };
  define(Date.prototype, name, format[name]);
}

Error.prepareStackTrace = prepareStackTrace;
const prepared = Object.getOwnPropertyDescriptor(Error, 'prepareStackTrace');
if (prepared.set) {
  Object.defineProperty(Error, 'prepareStackTrace', {
    ...prepared,
    configurable: true,
    set(value) {
      native.load('internal/call-sites').complete((prepare) => prepared.set.call(Error, prepare));
      prepared.set.call(Error, value);
    },
  });
}
