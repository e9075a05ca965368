// The `Intl` that common code calls, in English. What depends on a locale is its order of dates and its marks
// in numbers; names of months and units are English whatever is asked.

import { DateTimeFormat } from 'internal/intl/dates';
import { getCanonicalLocales } from 'internal/intl/locales';
import { NumberFormat, symbols, units } from 'internal/intl/numbers';
import {
  Collator,
  DisplayNames,
  ListFormat,
  Locale,
  PluralRules,
  RelativeTimeFormat,
  Segmenter,
} from 'internal/intl/words';

function supportedValuesOf(key) {
  if (key === 'currency') return Object.keys(symbols).sort();
  if (key === 'unit') return Object.keys(units).sort();
  if (key === 'calendar') return ['gregory'];
  if (key === 'numberingSystem') return ['latn'];
  return [];
}

export const Intl = Object.defineProperty({}, Symbol.toStringTag, { value: 'Intl' });
for (const [name, value] of Object.entries({
  Collator,
  DateTimeFormat,
  DisplayNames,
  ListFormat,
  Locale,
  NumberFormat,
  PluralRules,
  RelativeTimeFormat,
  Segmenter,
  getCanonicalLocales,
  supportedValuesOf,
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
