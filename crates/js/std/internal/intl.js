// The `Intl` that common code calls. Plurals, the order of words and their boundaries are those of the language; what else
// depends on a locale is its order of dates and its marks in numbers; names of months and units are English whatever is asked.

import { Collator } from 'internal/intl/collation';
import { DateTimeFormat } from 'internal/intl/dates';
import { getCanonicalLocales } from 'internal/intl/locales';
import { NumberFormat, symbols, units } from 'internal/intl/numbers';
import { PluralRules } from 'internal/intl/plurals';
import { Segmenter } from 'internal/intl/segments';
import { DisplayNames, ListFormat, Locale, RelativeTimeFormat } from 'internal/intl/words';

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

/** The collators of `localeCompare`, which sorting calls for each pair with the same arguments. */
const collators = new Map();

function collatorOf(locales, options) {
  if (locales !== undefined && typeof locales !== 'string') return new Collator(locales, options);
  const key = `${locales} ${JSON.stringify(options)}`;
  let collator = collators.get(key);
  if (!collator) {
    collator = new Collator(locales, options);
    if (collators.size >= 8) collators.clear();
    collators.set(key, collator);
  }
  return collator;
}

/** `toLocaleString` and its like. */
export const local = {
  number: (value, locales, options) => new NumberFormat(locales, options).format(value),
  date: (value, locales, options, defaults) => {
    if (Number.isNaN(value.getTime())) return 'Invalid Date';
    return new DateTimeFormat(locales, { ...options, _defaults: defaults }).format(value);
  },
  compare: (a, b, locales, options) => collatorOf(locales, options).compare(a, b),
};
