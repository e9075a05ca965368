// The `Intl` that common code calls, in English. What depends on a locale is its order of dates and its marks
// in numbers; names of months and units are English whatever is asked.

import native from 'native/zones';

const dates = {
  'en-US': ['M/D/Y', ', ', true], 'en-GB': ['DD/MM/Y', ', ', false], 'en-CA': ['Y-MM-DD', ', ', true],
  'en-AU': ['DD/MM/Y', ', ', true], 'sv-SE': ['Y-MM-DD', ' ', false], 'de-DE': ['D.M.Y', ', ', false],
  'fr-FR': ['DD/MM/Y', ' ', false], 'es-ES': ['D/M/Y', ', ', false], 'it-IT': ['D/M/Y', ', ', false],
  'nl-NL': ['D-M-Y', ', ', false], 'pt-BR': ['DD/MM/Y', ', ', false], 'ja-JP': ['Y/M/D', ' ', false],
  'zh-CN': ['Y/M/D', ' ', false], 'ko-KR': ['Y/M/D', ' ', false], 'pl-PL': ['D.MM.Y', ', ', false],
};
const marks = {
  en: [',', '.'], de: ['.', ','], fr: ['\u202f', ','], es: ['.', ','], it: ['.', ','], nl: ['.', ','],
  pt: ['.', ','], sv: ['\u00a0', ','], pl: ['\u00a0', ','], ja: [',', '.'], zh: [',', '.'], ko: [',', '.'],
};
const months = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December'];
const weekdays = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

export function getCanonicalLocales(locales) {
  return [locales ?? []].flat().map((locale) => {
    const text = `${locale}`;
    if (!/^[a-z]{2,8}([-_][a-z0-9]{1,8})*$/i.test(text)) throw new RangeError(`Incorrect locale information provided: ${text}`);
    return text.split(/[-_]/).map((part, at) => {
      if (at === 0) return part.toLowerCase();
      if (part.length === 4) return part[0].toUpperCase() + part.slice(1).toLowerCase();
      return part.length === 2 || part.length === 3 ? part.toUpperCase() : part.toLowerCase();
    }).join('-');
  });
}

function pick(locales) {
  for (const wanted of getCanonicalLocales(locales)) {
    if (dates[wanted]) return wanted;
    const language = wanted.split('-')[0];
    const found = Object.keys(dates).find((known) => known.split('-')[0] === language);
    if (found) return found;
  }
  return 'en-US';
}

function supports(Class) {
  Class.supportedLocalesOf = (locales) => getCanonicalLocales(locales).filter((wanted) => Object.keys(dates).some((known) => known.split('-')[0] === wanted.split('-')[0]));
  return Class;
}

const two = (number) => String(number).padStart(2, '0');

function zoneOf(name) {
  if (name === undefined) return native.own();
  const offset = /^([+-])(\d{2}):?(\d{2})$/.exec(name);
  if (offset) return `${offset[1]}${offset[2]}:${offset[3]}`;
  const found = /^(utc|gmt)$/i.test(name) ? 'UTC' : native.name(name);
  if (!found) throw new RangeError(`Invalid time zone specified: ${name}`);
  return found;
}

function offsetOf(zone, time) {
  const fixed = /^([+-])(\d{2}):(\d{2})$/.exec(zone);
  if (fixed) return [(fixed[1] === '-' ? -1 : 1) * (Number(fixed[2]) * 60 + Number(fixed[3])), zone];
  return native.offset(zone, time) ?? [0, 'UTC'];
}

export const DateTimeFormat = supports(class DateTimeFormat {
  #locale;
  #options;
  format;

  constructor(locales, options = {}) {
    this.#locale = pick(locales);
    const given = { ...options };
    const date = ['weekday', 'year', 'month', 'day', 'era'];
    const time = ['hour', 'minute', 'second', 'fractionalSecondDigits', 'dayPeriod'];
    const styled = given.dateStyle !== undefined || given.timeStyle !== undefined;
    if (!styled && ![...date, ...time].some((name) => given[name] !== undefined)) {
      const defaults = given._defaults ?? 'date';
      if (defaults !== 'time') given.year = given.month = given.day = 'numeric';
      if (defaults !== 'date') given.hour = given.minute = given.second = 'numeric';
    }
    delete given._defaults;
    given.timeZone = zoneOf(given.timeZone);
    if (given.hourCycle && given.hour12 === undefined) given.hour12 = given.hourCycle === 'h11' || given.hourCycle === 'h12';
    given.hour12 ??= dates[this.#locale][2];
    this.#options = given;
    this.format = (when) => this.formatToParts(when).map(({ value }) => value).join('');
  }

  resolvedOptions() {
    const { timeZone, hour12, ...rest } = this.#options;
    const hours = rest.hour !== undefined || rest.timeStyle !== undefined ? { hourCycle: hour12 ? 'h12' : 'h23', hour12 } : {};
    return { locale: this.#locale, calendar: 'gregory', numberingSystem: 'latn', timeZone, ...hours, ...rest };
  }

  formatToParts(when = Date.now()) {
    const time = typeof when === 'object' && when !== null ? when.getTime() : Number(when);
    if (!Number.isFinite(time)) throw new RangeError('Invalid time value');
    const options = this.#expanded();
    const [minutes, abbreviation] = offsetOf(options.timeZone, time);
    const local = new Date(time + minutes * 60_000);
    const parts = [];
    const put = (type, value) => parts.push({ type, value: `${value}` });
    this.#date(options, local, put);
    this.#time(options, local, put, parts.length > 0);
    if (options.timeZoneName) {
      const told = options.timeZone === 'UTC' ? 'UTC' : /^[A-Z]/.test(abbreviation) && options.timeZoneName === 'short' ? abbreviation : gmt(minutes);
      put('literal', ' ');
      put('timeZoneName', told);
    }
    return parts;
  }

  #expanded() {
    const { dateStyle, timeStyle, ...options } = this.#options;
    if (dateStyle) {
      Object.assign(options, {
        full: { weekday: 'long', year: 'numeric', month: 'long', day: 'numeric' },
        long: { year: 'numeric', month: 'long', day: 'numeric' },
        medium: { year: 'numeric', month: 'short', day: 'numeric' },
        short: { year: '2-digit', month: 'numeric', day: 'numeric' },
      }[dateStyle]);
    }
    if (timeStyle) {
      Object.assign(options, { hour: 'numeric', minute: '2-digit' }, timeStyle === 'short' ? {} : { second: '2-digit' });
      if (timeStyle === 'full' || timeStyle === 'long') options.timeZoneName ??= 'short';
    }
    return { ...options, styled: dateStyle };
  }

  #date({ weekday, year, month, day }, local, put) {
    const name = (list, at, width) => (width === 'long' ? list[at] : width === 'short' ? list[at].slice(0, 3) : list[at][0]);
    const values = {
      year: year && (year === '2-digit' ? two(local.getUTCFullYear() % 100) : local.getUTCFullYear()),
      day: day && (day === '2-digit' ? two(local.getUTCDate()) : local.getUTCDate()),
    };
    const worded = month === 'long' || month === 'short' || month === 'narrow';
    if (weekday) {
      put('weekday', name(weekdays, local.getUTCDay(), weekday));
      if (year || month || day) put('literal', ', ');
    }
    if (worded) {
      put('month', name(months, local.getUTCMonth(), month));
      if (day) {
        put('literal', ' ');
        put('day', values.day);
      }
      if (year) {
        put('literal', day ? ', ' : ' ');
        put('year', values.year);
      }
      return;
    }
    const [pattern] = dates[this.#locale];
    const separator = /[^MDY]/.exec(pattern)[0];
    const fields = pattern.split(separator).filter((field) => ({ M: month, D: day, Y: year })[field[0]]);
    fields.forEach((field, at) => {
      if (at > 0) put('literal', separator);
      if (field[0] === 'Y') put('year', values.year);
      else if (field[0] === 'M') put('month', month === '2-digit' || field.length === 2 ? two(local.getUTCMonth() + 1) : local.getUTCMonth() + 1);
      else put('day', field.length === 2 ? two(local.getUTCDate()) : values.day);
    });
  }

  #time({ hour, minute, second, hour12, hourCycle, fractionalSecondDigits, styled, month }, local, put, after) {
    if (!hour && !minute && !second && !fractionalSecondDigits) return;
    if (after) put('literal', styled === 'full' || styled === 'long' ? ' at ' : month === 'long' && !styled ? ' at ' : dates[this.#locale][1]);
    let joined = false;
    const join = (mark) => {
      if (joined) put('literal', mark);
      joined = true;
    };
    const hours = local.getUTCHours();
    if (hour) {
      const shown = hour12 ? hours % 12 || (hourCycle === 'h11' ? 0 : 12) : hourCycle === 'h24' && hours === 0 ? 24 : hours;
      join('');
      put('hour', hour === '2-digit' || (!hour12 && (minute || second)) ? two(shown) : shown);
    }
    if (minute) {
      join(':');
      put('minute', hour || minute === '2-digit' || second ? two(local.getUTCMinutes()) : local.getUTCMinutes());
    }
    if (second) {
      join(':');
      put('second', minute || second === '2-digit' ? two(local.getUTCSeconds()) : local.getUTCSeconds());
    }
    if (fractionalSecondDigits) {
      join('.');
      put('fractionalSecond', String(local.getUTCMilliseconds()).padStart(3, '0').slice(0, fractionalSecondDigits));
    }
    if (hour && hour12) {
      put('literal', ' ');
      put('dayPeriod', hours < 12 ? 'AM' : 'PM');
    }
  }

  formatRange(from, to) {
    return `${this.format(from)} – ${this.format(to)}`;
  }

  formatRangeToParts(from, to) {
    return [
      ...this.formatToParts(from).map((part) => ({ ...part, source: 'startRange' })),
      { type: 'literal', value: ' – ', source: 'shared' },
      ...this.formatToParts(to).map((part) => ({ ...part, source: 'endRange' })),
    ];
  }
});

function gmt(minutes) {
  if (minutes === 0) return 'GMT';
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `GMT${minutes < 0 ? '-' : '+'}${hours}${rest ? `:${two(rest)}` : ''}`;
}

const symbols = { USD: '$', EUR: '€', GBP: '£', JPY: '¥', CNY: 'CN¥', INR: '₹', KRW: '₩', BRL: 'R$', CAD: 'CA$', AUD: 'A$', MXN: 'MX$' };
const whole = ['JPY', 'KRW', 'VND', 'CLP', 'ISK', 'HUF'];
const units = {
  kilobyte: ['kB', 'kilobyte'], megabyte: ['MB', 'megabyte'], gigabyte: ['GB', 'gigabyte'], terabyte: ['TB', 'terabyte'],
  byte: ['byte', 'byte'], bit: ['bit', 'bit'], second: ['sec', 'second'], minute: ['min', 'minute'], hour: ['hr', 'hour'],
  day: ['day', 'day'], week: ['wk', 'week'], month: ['mth', 'month'], year: ['yr', 'year'], millisecond: ['ms', 'millisecond'],
  percent: ['%', 'percent'], celsius: ['°C', 'degree Celsius'], meter: ['m', 'meter'], kilometer: ['km', 'kilometer'],
  kilogram: ['kg', 'kilogram'], gram: ['g', 'gram'], liter: ['L', 'liter'],
};

export const NumberFormat = supports(class NumberFormat {
  #locale;
  #options;
  format;

  constructor(locales, options = {}) {
    this.#locale = pick(locales);
    const style = options.style ?? 'decimal';
    if (style === 'currency' && options.currency === undefined) throw new TypeError('Currency code is required with currency style.');
    const currency = options.currency?.toUpperCase();
    const compact = options.notation === 'compact';
    const least = options.minimumFractionDigits ?? (style === 'currency' && !compact ? (whole.includes(currency) ? 0 : 2) : 0);
    const most = options.maximumFractionDigits ?? Math.max(least, style === 'currency' && !compact ? least : style === 'percent' || compact ? 0 : 3);
    if (least > 100 || most > 100 || least < 0 || most < 0) throw new RangeError('maximumFractionDigits value is out of range.');
    this.#options = { ...options, style, currency, minimumFractionDigits: Math.min(least, most), maximumFractionDigits: most, useGrouping: options.useGrouping ?? true };
    this.format = (value) => this.formatToParts(value).map((part) => part.value).join('');
  }

  resolvedOptions() {
    return { locale: this.#locale, numberingSystem: 'latn', minimumIntegerDigits: 1, notation: 'standard', signDisplay: 'auto', ...this.#options };
  }

  formatToParts(value) {
    const options = this.#options;
    const big = typeof value === 'bigint';
    let number = big ? value : Number(value);
    const negative = big ? number < 0n : number < 0 || Object.is(number, -0);
    if (negative) number = -number;
    let suffix = '';
    if (options.style === 'percent') number = big ? number * 100n : number * 100;
    if (options.notation === 'compact') [number, suffix] = shorten(Number(number), options.compactDisplay === 'long');
    const [group, point] = marks[this.#locale.split('-')[0]];
    const parts = [];
    const put = (type, text) => parts.push({ type, value: text });
    if (!big && Number.isNaN(number)) put('nan', 'NaN');
    else if (number === Infinity) put('infinity', '∞');
    else this.#digits(number, big, suffix !== '' && options.maximumFractionDigits === 0, put, group, point);
    if (suffix) put('compact', suffix);
    return this.#dressed(parts, negative, Number(number));
  }

  #digits(number, big, short, put, group, point) {
    const { minimumFractionDigits: least, maximumFractionDigits: most, maximumSignificantDigits: significant, minimumSignificantDigits: atLeast, minimumIntegerDigits: integers = 1, useGrouping } = this.#options;
    let text;
    if (big) text = `${number}`;
    else if (significant !== undefined || atLeast !== undefined) {
      const precise = number === 0 ? '0' : plain(Number(number.toPrecision(Math.min(significant ?? 21, 100))));
      text = precise;
      const digits = precise.replace('.', '').replace(/^0+/, '').length;
      if (atLeast !== undefined && digits < atLeast) text = `${precise}${precise.includes('.') ? '' : '.'}${'0'.repeat(atLeast - digits)}`;
    } else if (short) {
      // Compact numbers keep two digits.
      text = plain(number < 100 ? Number(number.toPrecision(2)) : Math.round(number));
    } else {
      text = fixed(number, most);
    }
    let [whole, fraction = ''] = text.split('.');
    if (significant === undefined && atLeast === undefined && !big) {
      while (fraction.length > least && fraction.endsWith('0')) fraction = fraction.slice(0, -1);
    }
    whole = whole.padStart(integers, '0');
    const pieces = useGrouping === false || useGrouping === 'false' ? [whole] : whole.replace(/\B(?=(\d{3})+$)/g, ' ').split(' ');
    pieces.forEach((piece, at) => {
      if (at > 0) put('group', group);
      put('integer', piece);
    });
    if (fraction) {
      put('decimal', point);
      put('fraction', fraction);
    }
  }

  #dressed(parts, negative, number) {
    const { style, currency, currencyDisplay = 'symbol', unit, unitDisplay = 'short', signDisplay = 'auto' } = this.#options;
    const english = this.#locale.startsWith('en') || ['ja-JP', 'zh-CN', 'ko-KR'].includes(this.#locale);
    if (style === 'currency') {
      const name = currencyDisplay === 'code' ? currency : currencyDisplay === 'name' ? currency : (symbols[currency] ?? currency);
      if (english && currencyDisplay !== 'name') {
        parts.unshift({ type: 'currency', value: name }, ...(name.length === 3 ? [{ type: 'literal', value: '\u00a0' }] : []));
      } else parts.push({ type: 'literal', value: '\u00a0' }, { type: 'currency', value: name });
    } else if (style === 'percent') {
      if (!english) parts.push({ type: 'literal', value: '\u00a0' });
      parts.push({ type: 'percentSign', value: '%' });
    } else if (style === 'unit') {
      const [short, long] = units[unit] ?? [unit, unit];
      const many = number === 1 ? '' : 's';
      if (unitDisplay === 'long') parts.push({ type: 'literal', value: ' ' }, { type: 'unit', value: `${long}${many}` });
      else {
        if (unit !== 'percent' && unit !== 'celsius' && unitDisplay !== 'narrow') parts.push({ type: 'literal', value: ' ' });
        parts.push({ type: 'unit', value: ['day', 'week', 'byte', 'bit', 'month', 'year'].includes(unit) && unitDisplay === 'short' ? `${short}${many}` : short });
      }
    }
    const zero = number === 0;
    if (negative && signDisplay !== 'never' && !(zero && (signDisplay === 'exceptZero' || signDisplay === 'negative'))) parts.unshift({ type: 'minusSign', value: '-' });
    else if (!negative && (signDisplay === 'always' || (signDisplay === 'exceptZero' && !zero))) parts.unshift({ type: 'plusSign', value: '+' });
    return parts;
  }

  formatRange(from, to) {
    return `${this.format(from)}–${this.format(to)}`;
  }
});

/** Without an exponent. */
function plain(number) {
  const text = `${number}`;
  return text.includes('e') ? BigInt(Math.round(number)).toString() : text;
}

function fixed(number, most) {
  if (number >= 1e21) return BigInt(number).toString();
  // Half goes up, as written: 1.005 is a little less than it looks.
  const text = plain(number);
  const [whole, fraction = ''] = text.split('.');
  if (fraction.length <= most || text.includes('e')) return number.toFixed(Math.min(most, Math.max(fraction.length, 0)));
  const scaled = BigInt(whole + fraction.slice(0, most)) + (fraction[most] >= '5' ? 1n : 0n);
  const digits = scaled.toString().padStart(most + 1, '0');
  return most === 0 ? digits : `${digits.slice(0, -most)}.${digits.slice(-most)}`;
}

function shorten(number, long) {
  for (const [size, short, word] of [[1e12, 'T', ' trillion'], [1e9, 'B', ' billion'], [1e6, 'M', ' million'], [1e3, 'K', ' thousand']]) {
    if (number >= size) return [number / size, long ? word : short];
  }
  return [number, ''];
}

function simplified(text, sensitivity) {
  let kept = text;
  if (sensitivity === 'base' || sensitivity === 'case') kept = kept.normalize('NFD').replace(/\p{M}/gu, '');
  if (sensitivity === 'base' || sensitivity === 'accent') kept = kept.toLowerCase();
  return kept;
}

/** Letters before their case, marks before case, lower before upper. */
function collate(a, b) {
  const [left, right] = [a, b].map((text) => text.normalize('NFD').replace(/\p{M}/gu, '').toLowerCase());
  if (left !== right) {
    const rank = (c) => (/\p{L}/u.test(c) ? 2 : /\p{N}/u.test(c) ? 1 : 0);
    const [one, other] = [[...left], [...right]];
    for (let at = 0; at < Math.min(one.length, other.length); at += 1) {
      if (one[at] !== other[at]) return rank(one[at]) - rank(other[at]) || (one[at] < other[at] ? -1 : 1);
    }
    return Math.sign(one.length - other.length);
  }
  const [low, high] = [a, b].map((text) => text.normalize('NFD').toLowerCase());
  if (low !== high) return low < high ? -1 : 1;
  return a === b ? 0 : a > b ? -1 : 1;
}

export const Collator = supports(class Collator {
  #options;
  #locale;
  compare;

  constructor(locales, options = {}) {
    this.#locale = pick(locales);
    this.#options = { usage: 'sort', sensitivity: 'variant', ignorePunctuation: false, numeric: false, caseFirst: 'false', ...options };
    const { sensitivity, numeric, ignorePunctuation } = this.#options;
    const prepare = (text) => simplified(ignorePunctuation ? text.replace(/[\p{P}\s]/gu, '') : text, sensitivity);
    this.compare = (a, b) => {
      const [left, right] = [prepare(`${a}`), prepare(`${b}`)];
      if (!numeric) return collate(left, right);
      const [one, other] = [left, right].map((text) => text.match(/\d+|\D+/g) ?? []);
      for (let at = 0; at < Math.min(one.length, other.length); at += 1) {
        const digits = /^\d/.test(one[at]) && /^\d/.test(other[at]);
        const order = digits ? Number(one[at]) - Number(other[at]) : collate(one[at], other[at]);
        if (order !== 0) return Math.sign(order);
      }
      return Math.sign(one.length - other.length);
    };
  }

  resolvedOptions() {
    return { locale: this.#locale, collation: 'default', ...this.#options };
  }
});

export const PluralRules = supports(class PluralRules {
  #type;
  #locale;

  constructor(locales, options = {}) {
    this.#locale = pick(locales);
    this.#type = options.type ?? 'cardinal';
  }

  select(number) {
    if (this.#type === 'cardinal') return number === 1 ? 'one' : 'other';
    const [ones, tens] = [number % 10, number % 100];
    if (ones === 1 && tens !== 11) return 'one';
    if (ones === 2 && tens !== 12) return 'two';
    return ones === 3 && tens !== 13 ? 'few' : 'other';
  }

  resolvedOptions() {
    return { locale: this.#locale, type: this.#type, pluralCategories: this.#type === 'cardinal' ? ['one', 'other'] : ['few', 'one', 'two', 'other'] };
  }
});

export const RelativeTimeFormat = supports(class RelativeTimeFormat {
  #options;
  #locale;

  constructor(locales, options = {}) {
    this.#locale = pick(locales);
    this.#options = { numeric: 'always', style: 'long', ...options };
  }

  format(value, given) {
    const unit = `${given}`.replace(/s$/, '');
    if (!['second', 'minute', 'hour', 'day', 'week', 'month', 'quarter', 'year'].includes(unit)) {
      throw new RangeError(`Invalid unit argument for format() '${given}'`);
    }
    if (this.#options.numeric === 'auto') {
      const words = { day: { '-1': 'yesterday', 0: 'today', 1: 'tomorrow' }, second: { 0: 'now' } }[unit];
      const near = words?.[value] ?? ({ '-1': `last ${unit}`, 0: `this ${unit}`, 1: `next ${unit}` })[value];
      if (near && (words?.[value] !== undefined || !['second', 'minute', 'hour', 'day'].includes(unit) || value === 0)) return near;
    }
    const many = Math.abs(value);
    const names = { second: 'sec.', minute: 'min.', hour: 'hr.', month: 'mo.', week: 'wk.', year: 'yr.', quarter: 'qtr.' };
    const name = this.#options.style === 'long' || !names[unit] ? `${unit}${many === 1 ? '' : 's'}` : names[unit];
    const amount = `${new NumberFormat(this.#locale).format(many)} ${name}`;
    return value < 0 || Object.is(value, -0) ? `${amount} ago` : `in ${amount}`;
  }

  formatToParts(value, unit) {
    return [{ type: 'literal', value: this.format(value, unit) }];
  }

  resolvedOptions() {
    return { locale: this.#locale, numberingSystem: 'latn', ...this.#options };
  }
});

export const ListFormat = supports(class ListFormat {
  #options;
  #locale;

  constructor(locales, options = {}) {
    this.#locale = pick(locales);
    this.#options = { type: 'conjunction', style: 'long', ...options };
  }

  format(list) {
    const items = [...list];
    const word = { conjunction: 'and', disjunction: 'or', unit: '' }[this.#options.type];
    if (items.length <= 1) return items.join('');
    const last = items.pop();
    if (word === '') return [...items, last].join(', ');
    return items.length === 1 ? `${items[0]} ${word} ${last}` : `${items.join(', ')}, ${word} ${last}`;
  }

  resolvedOptions() {
    return { locale: this.#locale, ...this.#options };
  }
});

export const Segmenter = supports(class Segmenter {
  #options;
  #locale;

  constructor(locales, options = {}) {
    this.#locale = pick(locales);
    this.#options = { granularity: 'grapheme', ...options };
  }

  segment(input) {
    const text = `${input}`;
    const pattern = {
      grapheme: /\r\n|\p{RI}\p{RI}|\p{Emoji}(?:\p{EMod}|\ufe0f\u20e3?|[\u{E0020}-\u{E007E}]+\u{E007F})?(?:\u200d\p{Emoji}(?:\p{EMod}|\ufe0f)?)*\p{M}*|[\s\S]\p{M}*/gu,
      word: /[\p{L}\p{N}\p{M}_]+(?:['’.][\p{L}\p{N}]+)*|\s+|[\s\S]/gu,
      sentence: /[^.!?]+[.!?]*\s*|[.!?]+\s*/gu,
    }[this.#options.granularity];
    const word = this.#options.granularity === 'word';
    const segments = () => [...text.matchAll(pattern)].map(({ 0: segment, index }) => ({
      segment, index, input: text, ...(word ? { isWordLike: /[\p{L}\p{N}]/u.test(segment) } : {}),
    }));
    return {
      [Symbol.iterator]: () => segments()[Symbol.iterator](),
      containing: (at = 0) => segments().find(({ segment, index }) => at >= index && at < index + segment.length),
    };
  }

  resolvedOptions() {
    return { locale: this.#locale, ...this.#options };
  }
});

export const DisplayNames = supports(class DisplayNames {
  #options;

  constructor(locales, options) {
    if (options?.type === undefined) throw new TypeError('Required option "type" must not be undefined');
    this.#options = { locale: pick(locales), style: 'long', fallback: 'code', ...options };
  }

  of(code) {
    return this.#options.fallback === 'none' ? undefined : `${code}`;
  }

  resolvedOptions() {
    return { ...this.#options };
  }
});

export class Locale {
  #tag;

  constructor(tag, options = {}) {
    [this.#tag] = getCanonicalLocales(tag);
    Object.assign(this, options);
  }

  get baseName() {
    return this.#tag;
  }
  get language() {
    return this.#tag.split('-')[0];
  }
  get region() {
    return this.#tag.split('-').find((part, at) => at > 0 && (part.length === 2 || /^\d{3}$/.test(part)));
  }
  get script() {
    return this.#tag.split('-').find((part, at) => at > 0 && part.length === 4);
  }
  maximize() {
    return this;
  }
  minimize() {
    return this;
  }
  toString() {
    return this.#tag;
  }
}

function supportedValuesOf(key) {
  if (key === 'currency') return Object.keys(symbols).sort();
  if (key === 'unit') return Object.keys(units).sort();
  if (key === 'calendar') return ['gregory'];
  if (key === 'numberingSystem') return ['latn'];
  return [];
}

export const Intl = Object.defineProperty({}, Symbol.toStringTag, { value: 'Intl' });
for (const [name, value] of Object.entries({
  Collator, DateTimeFormat, DisplayNames, ListFormat, Locale, NumberFormat, PluralRules, RelativeTimeFormat, Segmenter,
  getCanonicalLocales, supportedValuesOf,
})) {
  Object.defineProperty(Intl, name, { value, configurable: true, writable: true });
}

/** `toLocaleString` and its like. */
export const local = {
  number: (value, locales, options) => new NumberFormat(locales, options).format(value),
  date: (value, locales, options, defaults) => {
    if (Number.isNaN(value.getTime())) return 'Invalid Date';
    return new DateTimeFormat(locales, { ...options, _defaults: defaults }).format(value);
  },
  compare: (a, b, locales, options) => new Collator(locales, options).compare(a, b),
};
