// `performance`: the clock, and marks on it.

import native from 'native/process';
import { EventTarget } from 'internal/event-target';

class PerformanceEntry {
  constructor(name, entryType, startTime, duration, detail) {
    Object.assign(this, { name, entryType, startTime, duration, detail: detail ?? null });
  }

  toJSON() {
    return { ...this };
  }
}

class Performance extends EventTarget {
  #entries = [];

  get timeOrigin() {
    return native.timeOrigin;
  }

  now() {
    return native.now();
  }

  mark(name, options) {
    const entry = new PerformanceEntry(
      `${name}`,
      'mark',
      options?.startTime ?? this.now(),
      0,
      options?.detail,
    );
    this.#entries.push(entry);
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
    const entry = new PerformanceEntry(`${name}`, 'measure', start, end - start, options.detail);
    this.#entries.push(entry);
    return entry;
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
    return run;
  }

  eventLoopUtilization() {
    return { idle: 0, active: 0, utilization: 0 };
  }

  toJSON() {
    return { timeOrigin: this.timeOrigin };
  }
}

Object.defineProperty(Performance.prototype, '_Entry', { value: PerformanceEntry });

export const performance = new Performance();
