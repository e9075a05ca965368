// `performance`: the clock, and marks on it.

import native from 'native/process';
import { EventTarget } from 'internal/event-target';
import { checkFunction, coded, wrongType } from 'internal/errors';
import { eventLoopUtilization } from 'internal/histogram';
import { setImmediate } from 'internal/timers';
import { enumerable } from 'internal/members';

export class PerformanceEntry {
  constructor(name, entryType, startTime, duration, detail) {
    Object.assign(this, { name, entryType, startTime, duration, detail: detail ?? null });
  }

  toJSON() {
    return { ...this };
  }
}
export class PerformanceMark extends PerformanceEntry {
  constructor(name, options) {
    super(`${name}`, 'mark', options?.startTime ?? native.now(), 0, options?.detail);
  }
}
export class PerformanceMeasure extends PerformanceEntry {}

/** How long a request of a package's own `fetch` took. */
export class PerformanceResourceTiming extends PerformanceEntry {
  constructor(url, timing, more) {
    super(url, 'resource', timing.startTime, timing.endTime - timing.startTime);
    delete this.detail;
    const connection = timing.finalConnectionTimingInfo;
    Object.assign(this, {
      initiatorType: more.initiatorType,
      nextHopProtocol: connection?.ALPNNegotiatedProtocol,
      workerStart: timing.finalServiceWorkerStartTime,
      redirectStart: timing.redirectStartTime,
      redirectEnd: timing.redirectEndTime,
      fetchStart: timing.postRedirectStartTime,
      domainLookupStart: connection?.domainLookupStartTime,
      domainLookupEnd: connection?.domainLookupEndTime,
      connectStart: connection?.connectionStartTime,
      connectEnd: connection?.connectionEndTime,
      secureConnectionStart: connection?.secureConnectionStartTime,
      requestStart: timing.finalNetworkRequestStartTime,
      responseStart: timing.finalNetworkResponseStartTime,
      responseEnd: timing.endTime,
      transferSize: more.cacheMode === 'local' ? 0 : timing.encodedBodySize + 300,
      encodedBodySize: timing.encodedBodySize,
      decodedBodySize: timing.decodedBodySize,
      deliveryType: more.deliveryType,
      responseStatus: more.responseStatus,
    });
  }
}

const observers = new Set();

/** Hands an entry to those who observe its type. */
function tell(entry) {
  for (const observer of observers) observer._queue(entry);
}

export class PerformanceObserverEntryList {
  #entries;

  constructor(entries) {
    this.#entries = entries.toSorted((a, b) => a.startTime - b.startTime);
  }

  getEntries() {
    return [...this.#entries];
  }

  getEntriesByName(name, type) {
    return this.#entries.filter(
      (entry) => entry.name === name && (type === undefined || entry.entryType === type),
    );
  }

  getEntriesByType(type) {
    return this.#entries.filter((entry) => entry.entryType === type);
  }
}

export class PerformanceObserver {
  static get supportedEntryTypes() {
    return Object.freeze(['function', 'mark', 'measure', 'resource']);
  }

  #callback;
  #types = new Set();
  #waiting = [];

  constructor(callback) {
    checkFunction(callback, 'callback');
    this.#callback = callback;
  }

  observe(options) {
    if (options === null || typeof options !== 'object')
      throw wrongType('options', 'of type object', options);
    const { entryTypes, type, buffered } = options;
    if (entryTypes === undefined && type === undefined) {
      throw coded(
        TypeError,
        'ERR_MISSING_ARGS',
        'The "options.entryTypes" or "options.type" argument must be specified',
      );
    }
    if (entryTypes) this.#types = new Set(entryTypes);
    else this.#types.add(type);
    observers.add(this);
    if (buffered && type) for (const entry of performance.getEntriesByType(type)) this._queue(entry);
  }

  disconnect() {
    observers.delete(this);
    this.#types.clear();
    this.#waiting = [];
  }

  takeRecords() {
    return this.#waiting.splice(0);
  }

  _queue(entry) {
    if (!this.#types.has(entry.entryType)) return;
    if (this.#waiting.push(entry) > 1) return;
    setImmediate(() => {
      if (this.#waiting.length > 0)
        this.#callback.call(this, new PerformanceObserverEntryList(this.takeRecords()), this);
    });
  }
}

export class Performance extends EventTarget {
  #entries = [];
  #resources = 250;

  get timeOrigin() {
    return native.timeOrigin;
  }

  now() {
    return native.now();
  }

  mark(name, options) {
    const entry = new PerformanceMark(name, options);
    this.#entries.push(entry);
    tell(entry);
    return entry;
  }

  measure(name, from, to) {
    const options = typeof from === 'object' && from !== null ? from : { start: from, end: to };
    const at = (mark, fallback) => {
      if (mark === undefined) return fallback;
      if (typeof mark === 'number') return mark;
      const found = this.#entries.findLast((entry) => entry.entryType === 'mark' && entry.name === mark);
      if (!found) throw new DOMException(`The "${mark}" performance mark has not been set`, 'SyntaxError');
      return found.startTime;
    };
    const start = at(options.start, 0);
    const end = options.duration === undefined ? at(options.end, this.now()) : start + options.duration;
    const entry = new PerformanceMeasure(`${name}`, 'measure', start, end - start, options.detail);
    this.#entries.push(entry);
    tell(entry);
    return entry;
  }

  markResourceTiming(timing, url, initiatorType, global, cacheMode, body, responseStatus, deliveryType = '') {
    const entry = new PerformanceResourceTiming(url, timing, {
      initiatorType,
      cacheMode,
      responseStatus,
      deliveryType,
    });
    // Packages take the function from the object.
    if (performance.getEntriesByType('resource').length < performance.#resources)
      performance.#entries.push(entry);
    tell(entry);
    return entry;
  }

  setResourceTimingBufferSize(size) {
    this.#resources = size;
  }

  clearResourceTimings(name) {
    this.#entries = this.#entries.filter(
      (entry) => entry.entryType !== 'resource' || (name !== undefined && entry.name !== name),
    );
  }

  clearMarks(name) {
    this.#entries = this.#entries.filter(
      (entry) => entry.entryType !== 'mark' || (name !== undefined && entry.name !== name),
    );
  }

  clearMeasures(name) {
    this.#entries = this.#entries.filter(
      (entry) => entry.entryType !== 'measure' || (name !== undefined && entry.name !== name),
    );
  }

  getEntries() {
    return [...this.#entries];
  }

  getEntriesByName(name, type) {
    return this.#entries.filter(
      (entry) => entry.name === name && (type === undefined || entry.entryType === type),
    );
  }

  getEntriesByType(type) {
    return this.#entries.filter((entry) => entry.entryType === type);
  }

  timerify(run) {
    checkFunction(run, 'fn');
    const done = (start, given) => {
      const entry = new PerformanceEntry(run.name, 'function', start, performance.now() - start, given);
      given.forEach((value, at) => {
        entry[at] = value;
      });
      tell(entry);
    };
    const timed = function (...given) {
      const start = performance.now();
      const result = new.target ? Reflect.construct(run, given, run) : Reflect.apply(run, this, given);
      if (typeof result?.finally === 'function') return result.finally(() => done(start, given));
      done(start, given);
      return result;
    };
    Object.defineProperties(timed, {
      name: { value: `timerified ${run.name}`, configurable: true },
      length: { value: run.length, configurable: true },
    });
    return timed;
  }

  eventLoopUtilization(current, before) {
    return eventLoopUtilization(current, before);
  }

  toJSON() {
    return { timeOrigin: this.timeOrigin };
  }
}

export const performance = new Performance();

enumerable(
  [Performance, PerformanceEntry, PerformanceObserver, PerformanceObserverEntryList],
  ['eventLoopUtilization', 'markResourceTiming', 'supportedEntryTypes', 'timerify'],
);
