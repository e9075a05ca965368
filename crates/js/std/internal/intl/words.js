// The order of words, their plurals, and what is put together from them.

import { NumberFormat } from 'internal/intl/numbers';
import { getCanonicalLocales, pick, supports } from 'internal/intl/locales';

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

export const Collator = supports(
  class Collator {
    #options;
    #locale;
    compare;

    constructor(locales, options = {}) {
      this.#locale = pick(locales);
      this.#options = {
        usage: 'sort',
        sensitivity: 'variant',
        ignorePunctuation: false,
        numeric: false,
        caseFirst: 'false',
        ...options,
      };
      const { sensitivity, numeric, ignorePunctuation } = this.#options;
      const prepare = (text) =>
        simplified(ignorePunctuation ? text.replace(/[\p{P}\s]/gu, '') : text, sensitivity);
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
  },
  true,
);

export const PluralRules = supports(
  class PluralRules {
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
      return {
        locale: this.#locale,
        type: this.#type,
        pluralCategories: this.#type === 'cardinal' ? ['one', 'other'] : ['few', 'one', 'two', 'other'],
      };
    }
  },
);

export const RelativeTimeFormat = supports(
  class RelativeTimeFormat {
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
        const near = words?.[value] ?? { '-1': `last ${unit}`, 0: `this ${unit}`, 1: `next ${unit}` }[value];
        if (
          near &&
          (words?.[value] !== undefined || !['second', 'minute', 'hour', 'day'].includes(unit) || value === 0)
        )
          return near;
      }
      const many = Math.abs(value);
      const names = {
        second: 'sec.',
        minute: 'min.',
        hour: 'hr.',
        month: 'mo.',
        week: 'wk.',
        year: 'yr.',
        quarter: 'qtr.',
      };
      const name =
        this.#options.style === 'long' || !names[unit] ? `${unit}${many === 1 ? '' : 's'}` : names[unit];
      const amount = `${new NumberFormat(this.#locale).format(many)} ${name}`;
      return value < 0 || Object.is(value, -0) ? `${amount} ago` : `in ${amount}`;
    }

    formatToParts(value, unit) {
      return [{ type: 'literal', value: this.format(value, unit) }];
    }

    resolvedOptions() {
      return { locale: this.#locale, numberingSystem: 'latn', ...this.#options };
    }
  },
);

export const ListFormat = supports(
  class ListFormat {
    #options;
    #locale;

    constructor(locales, options = {}) {
      this.#locale = pick(locales);
      this.#options = { type: 'conjunction', style: 'long', ...options };
    }

    format(list) {
      return this.formatToParts(list)
        .map(({ value }) => value)
        .join('');
    }

    formatToParts(list) {
      const items = [...list];
      const word = { conjunction: 'and ', disjunction: 'or ', unit: '' }[this.#options.type];
      const joint = (at) => {
        if (at < items.length - 1) return ', ';
        return items.length === 2 && word !== '' ? ` ${word}` : `, ${word}`;
      };
      return items.flatMap((value, at) => [
        ...(at > 0 ? [{ type: 'literal', value: joint(at) }] : []),
        { type: 'element', value },
      ]);
    }

    resolvedOptions() {
      return { locale: this.#locale, ...this.#options };
    }
  },
);

export const Segmenter = supports(
  class Segmenter {
    #options;
    #locale;

    constructor(locales, options = {}) {
      this.#locale = pick(locales);
      this.#options = { granularity: 'grapheme', ...options };
    }

    segment(input) {
      const text = `${input}`;
      const pattern = {
        grapheme:
          /\r\n|\p{RI}\p{RI}|\p{Emoji}(?:\p{EMod}|\ufe0f\u20e3?|[\u{E0020}-\u{E007E}]+\u{E007F})?(?:\u200d\p{Emoji}(?:\p{EMod}|\ufe0f)?)*\p{M}*|[\s\S]\p{M}*/gu,
        word: /[\p{L}\p{N}\p{M}_]+(?:['’.][\p{L}\p{N}]+)*|\s+|[\s\S]/gu,
        sentence: /[^.!?]+[.!?]*\s*|[.!?]+\s*/gu,
      }[this.#options.granularity];
      const word = this.#options.granularity === 'word';
      const segments = () =>
        [...text.matchAll(pattern)].map(({ 0: segment, index }) => ({
          segment,
          index,
          input: text,
          ...(word ? { isWordLike: /[\p{L}\p{N}]/u.test(segment) } : {}),
        }));
      return {
        [Symbol.iterator]: () => segments()[Symbol.iterator](),
        containing: (at = 0) =>
          segments().find(({ segment, index }) => at >= index && at < index + segment.length),
      };
    }

    resolvedOptions() {
      return { locale: this.#locale, ...this.#options };
    }
  },
);

export const DisplayNames = supports(
  class DisplayNames {
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
  },
  false,
  // There are no names.
  [],
);

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
