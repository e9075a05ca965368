// What is put together from words: times, lists, names.

import { NumberFormat } from 'internal/intl/numbers';
import { getCanonicalLocales, pick, supports } from 'internal/intl/locales';

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
