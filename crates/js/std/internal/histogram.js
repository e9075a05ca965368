// Histograms of `node:perf_hooks`: counts of values in buckets that keep a number of digits (High Dynamic Range).

import native from 'native/process';
import { coded, outOfRange, wrongType } from 'internal/errors';
import { clearInterval, setInterval } from 'internal/timers';

const LARGEST = Number.MAX_SAFE_INTEGER;
/** The least of a histogram that has no values. */
const NO_LEAST = 9223372036854775807n;

/** The counts of values between `lowest` and `highest`, to `figures` significant digits. */
class Counts {
  #unit;
  #size;
  #highestCounted;
  #buckets = new Map();
  #least = Infinity;
  #most = 0;
  total = 0;
  exceeds = 0;

  constructor(lowest, highest, figures) {
    const bits = Math.ceil(Math.log2(2 * 10 ** figures));
    this.#unit = Math.floor(Math.log2(lowest));
    this.#size = 2 ** Math.max(bits, 1);
    this.#highestCounted = highest;
  }

  /** The width of the bucket of a value. */
  #width(value) {
    let width = 2 ** this.#unit;
    while (value >= this.#size * width) width *= 2;
    return width;
  }

  #lowest(value) {
    const width = this.#width(value);
    return Math.floor(value / width) * width;
  }

  #highest(value) {
    return this.#lowest(value) + this.#width(value) - 1;
  }

  add(value, many = 1) {
    if (value > this.#highestCounted) {
      this.exceeds += many;
      return;
    }
    const at = this.#lowest(value);
    this.#buckets.set(at, (this.#buckets.get(at) ?? 0) + many);
    this.total += many;
    if (value !== 0) this.#least = Math.min(this.#least, value);
    this.#most = Math.max(this.#most, value);
  }

  addAll(other) {
    for (const [value, many] of other.#buckets) this.add(value, many);
    if (other.total > 0) {
      this.#least = Math.min(this.#least, other.#least);
      this.#most = Math.max(this.#most, other.#most);
    }
    this.exceeds += other.exceeds;
  }

  reset() {
    this.#buckets.clear();
    this.#least = Infinity;
    this.#most = 0;
    this.total = 0;
    this.exceeds = 0;
  }

  get least() {
    if (this.total === 0) return Number(NO_LEAST);
    return this.#buckets.has(0) ? 0 : this.#lowest(this.#least);
  }

  get most() {
    return this.total === 0 ? 0 : this.#highest(this.#most);
  }

  #sum(of) {
    let sum = 0;
    for (const [value, many] of this.#buckets) sum += of(value + Math.floor(this.#width(value) / 2)) * many;
    return sum / this.total;
  }

  get mean() {
    return this.#sum((value) => value);
  }

  get deviation() {
    return Math.sqrt(this.#moment(2));
  }

  #moment(power) {
    const { mean } = this;
    return this.#sum((value) => (value - mean) ** power);
  }

  get skewness() {
    const { deviation } = this;
    return this.total > 2 && deviation > 0 ? this.#moment(3) / deviation ** 3 : 0;
  }

  get kurtosis() {
    const { deviation } = this;
    return this.total > 3 && deviation > 0 ? this.#moment(4) / deviation ** 4 - 3 : 0;
  }

  #ordered() {
    return [...this.#buckets].sort(([one], [other]) => one - other);
  }

  percentile(percent) {
    if (this.total === 0) return 0;
    const wanted = Math.max(1, Math.floor((percent / 100) * this.total + 0.5));
    let passed = 0;
    for (const [value, many] of this.#ordered()) {
      passed += many;
      if (passed >= wanted) return this.#highest(value);
    }
    return 0;
  }

  /** Percentiles at half distances to 100, with their values. */
  percentiles() {
    const rows = new Map();
    const ordered = this.#ordered();
    let at = 0;
    let percent = 0;
    let passed = ordered.length > 0 ? ordered[0][1] : 0;
    while (at < ordered.length) {
      if (percent <= (100 * passed) / this.total) {
        rows.set(percent, ordered[at][0]);
        if (passed === this.total) break;
        percent += 100 / 2 ** (Math.floor(Math.log2(100 / (100 - percent))) + 1);
      } else {
        at += 1;
        passed += ordered[at]?.[1] ?? 0;
      }
    }
    rows.set(100, ordered.at(-1)?.[0] ?? 0);
    return rows;
  }
}

const OWN = Symbol('histogram');
const counted = new WeakMap();

function countsOf(histogram) {
  const counts = counted.get(histogram);
  if (!counts) throw coded(TypeError, 'ERR_INVALID_THIS', 'Value of "this" must be of type Histogram');
  return counts;
}

function checkPercent(percent) {
  if (typeof percent !== 'number') throw wrongType('percentile', 'of type number', percent);
  if (!(percent > 0 && percent <= 100)) throw outOfRange('percentile', '> 0 && <= 100', percent);
}

export class Histogram {
  constructor(own, counts) {
    if (own !== OWN) throw coded(TypeError, 'ERR_ILLEGAL_CONSTRUCTOR', 'Illegal constructor');
    counted.set(this, counts);
  }

  get count() {
    return countsOf(this).total;
  }
  get countBigInt() {
    return BigInt(this.count);
  }
  get exceeds() {
    return countsOf(this).exceeds;
  }
  get exceedsBigInt() {
    return BigInt(this.exceeds);
  }
  get min() {
    return countsOf(this).least;
  }
  get minBigInt() {
    return countsOf(this).total === 0 ? NO_LEAST : BigInt(this.min);
  }
  get max() {
    return countsOf(this).most;
  }
  get maxBigInt() {
    return BigInt(this.max);
  }
  get mean() {
    return countsOf(this).mean;
  }
  get stddev() {
    return countsOf(this).deviation;
  }
  get skewness() {
    return countsOf(this).skewness;
  }
  get kurtosis() {
    return countsOf(this).kurtosis;
  }
  get percentiles() {
    return countsOf(this).percentiles();
  }
  get percentilesBigInt() {
    return new Map([...this.percentiles].map(([percent, value]) => [percent, BigInt(value)]));
  }

  percentile(percent) {
    const counts = countsOf(this);
    checkPercent(percent);
    return counts.percentile(percent);
  }

  percentileBigInt(percent) {
    return BigInt(this.percentile(percent));
  }

  reset() {
    countsOf(this).reset();
  }

  toJSON() {
    const { count, min, max, mean, exceeds, stddev, skewness, kurtosis } = this;
    const percentiles = Object.fromEntries(this.percentiles);
    return { count, min, max, mean, exceeds, stddev, skewness, kurtosis, percentiles };
  }
}

export class RecordableHistogram extends Histogram {
  #since = undefined;

  record(value) {
    const counts = countsOf(this);
    if (typeof value === 'bigint') {
      if (value < 1n || value > BigInt(LARGEST))
        throw coded(RangeError, 'ERR_OUT_OF_RANGE', 'value is out of range');
      counts.add(Number(value));
      return;
    }
    if (typeof value !== 'number') throw wrongType('val', 'of type number', value);
    if (!Number.isInteger(value)) throw outOfRange('val', 'an integer', value);
    if (value < 1 || value > LARGEST) throw outOfRange('val', `>= 1 && <= ${LARGEST}`, value);
    counts.add(value);
  }

  /** Records the nanoseconds since the last call. */
  recordDelta() {
    const now = native.now();
    const before = this.#since;
    this.#since = now;
    if (before !== undefined) countsOf(this).add(Math.max(0, Math.round((now - before) * 1e6)));
  }

  add(other) {
    if (!(other instanceof RecordableHistogram))
      throw wrongType('other', 'an instance of RecordableHistogram', other);
    countsOf(this).addAll(countsOf(other));
  }
}

/** Records how far apart the turns of a timer are, in nanoseconds. */
export class IntervalHistogram extends Histogram {
  #resolution;
  #timer = null;

  constructor(own, counts, resolution) {
    super(own, counts);
    this.#resolution = resolution;
  }

  enable() {
    if (this.#timer !== null) return false;
    const counts = countsOf(this);
    let before = native.now();
    this.#timer = setInterval(() => {
      const now = native.now();
      counts.add(Math.round((now - before) * 1e6));
      before = now;
    }, this.#resolution).unref();
    return true;
  }

  disable() {
    if (this.#timer === null) return false;
    clearInterval(this.#timer);
    this.#timer = null;
    return true;
  }

  [Symbol.dispose]() {
    this.disable();
  }
}

function bound(value, name, least, most) {
  if (typeof value === 'bigint') return Number(value);
  if (typeof value !== 'number') throw wrongType(name, 'of type number', value);
  if (!Number.isInteger(value)) throw outOfRange(name, 'an integer', value);
  if (value < least || value > most) throw outOfRange(name, `>= ${least} && <= ${most}`, value);
  return value;
}

function checkOptions(options) {
  if (options === null || typeof options !== 'object') throw wrongType('options', 'of type object', options);
}

export function createHistogram(options = {}) {
  checkOptions(options);
  const lowest = bound(options.lowest ?? 1, 'options.lowest', 1, LARGEST);
  const highest = bound(options.highest ?? LARGEST, 'options.highest', 2 * lowest, LARGEST);
  const figures = bound(options.figures ?? 3, 'options.figures', 1, 5);
  return new RecordableHistogram(OWN, new Counts(lowest, highest, figures));
}

export function monitorEventLoopDelay(options = {}) {
  checkOptions(options);
  const resolution = bound(options.resolution ?? 10, 'options.resolution', 1, LARGEST);
  return new IntervalHistogram(OWN, new Counts(1, 3.6e12, 3), resolution);
}

/** How long the plugin's thread worked, and how long it waited, in milliseconds. */
export function eventLoopUtilization(current, before) {
  if (current === undefined) {
    const [idle, all] = native.waited();
    return { idle, active: all - idle, utilization: all === 0 ? 0 : (all - idle) / all };
  }
  const { idle, active } = before === undefined ? eventLoopUtilization() : current;
  const [less, more] = before === undefined ? [current, { idle, active }] : [before, current];
  const delta = { idle: more.idle - less.idle, active: more.active - less.active };
  const all = delta.idle + delta.active;
  return { ...delta, utilization: all === 0 ? 0 : delta.active / all };
}
