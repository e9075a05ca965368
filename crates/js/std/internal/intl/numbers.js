// `Intl.NumberFormat`.

import { marks, noNumber } from 'internal/intl/conventions';
import { pick, supports } from 'internal/intl/locales';
import { fixed, isMode, plain, precise } from 'internal/intl/rounding';

export const symbols = {
  USD: '$',
  EUR: '€',
  GBP: '£',
  JPY: '¥',
  CNY: 'CN¥',
  INR: '₹',
  KRW: '₩',
  BRL: 'R$',
  CAD: 'CA$',
  AUD: 'A$',
  MXN: 'MX$',
};
const whole = ['JPY', 'KRW', 'VND', 'CLP', 'ISK', 'HUF'];
export const units = {
  kilobyte: ['kB', 'kilobyte'],
  megabyte: ['MB', 'megabyte'],
  gigabyte: ['GB', 'gigabyte'],
  terabyte: ['TB', 'terabyte'],
  byte: ['byte', 'byte'],
  bit: ['bit', 'bit'],
  second: ['sec', 'second'],
  minute: ['min', 'minute'],
  hour: ['hr', 'hour'],
  day: ['day', 'day'],
  week: ['wk', 'week'],
  month: ['mth', 'month'],
  year: ['yr', 'year'],
  millisecond: ['ms', 'millisecond'],
  percent: ['%', 'percent'],
  celsius: ['°C', 'degree Celsius'],
  meter: ['m', 'meter'],
  kilometer: ['km', 'kilometer'],
  centimeter: ['cm', 'centimeter'],
  millimeter: ['mm', 'millimeter'],
  mile: ['mi', 'mile'],
  foot: ['ft', 'foot'],
  inch: ['in', 'inch'],
  kilogram: ['kg', 'kilogram'],
  gram: ['g', 'gram'],
  pound: ['lb', 'pound'],
  liter: ['L', 'liter'],
  kilobit: ['kb', 'kilobit'],
  megabit: ['Mb', 'megabit'],
  gigabit: ['Gb', 'gigabit'],
  fahrenheit: ['°F', 'degree Fahrenheit'],
};

/** Whether the marks of a locale are all there is to know of it. */
function isPlain(locale, options) {
  const known = marks(locale);
  if (!known || !['standard', undefined].includes(options.notation)) return false;
  if (![undefined, false].includes(options.useGrouping) || options.numberingSystem !== undefined)
    return false;
  if (options.style === 'currency') {
    const { currency, currencyDisplay = 'symbol', currencySign = 'standard' } = options;
    const shown = currencyDisplay === 'symbol' && currencySign === 'standard';
    return known[5] !== undefined && `${currency}`.toUpperCase() === 'EUR' && shown;
  }
  if (options.style === 'percent') return known[4] !== undefined;
  return ['decimal', undefined].includes(options.style);
}

export const NumberFormat = supports(
  class NumberFormat {
    #locale;
    #options;
    format;

    constructor(locales, options = {}) {
      this.#locale = pick(locales, (locale) => isPlain(locale, options));
      const style = options.style ?? 'decimal';
      if (style === 'currency' && options.currency === undefined)
        throw new TypeError('Currency code is required with currency style.');
      const currency = options.currency?.toUpperCase();
      const compact = options.notation === 'compact';
      const least =
        options.minimumFractionDigits ??
        (style === 'currency' && !compact ? (whole.includes(currency) ? 0 : 2) : 0);
      const most =
        options.maximumFractionDigits ??
        Math.max(least, style === 'currency' && !compact ? least : style === 'percent' || compact ? 0 : 3);
      if (least > 100 || most > 100 || least < 0 || most < 0 || options.minimumFractionDigits > most)
        throw new RangeError('maximumFractionDigits value is out of range.');
      if (options.roundingMode !== undefined && !isMode(options.roundingMode))
        throw new RangeError(
          `Value ${options.roundingMode} out of range for Intl.NumberFormat options property roundingMode`,
        );
      this.#options = {
        ...options,
        style,
        currency,
        minimumFractionDigits: Math.min(least, most),
        maximumFractionDigits: most,
        useGrouping: options.useGrouping ?? true,
      };
      this.format = (value) =>
        this.formatToParts(value)
          .map((part) => part.value)
          .join('');
    }

    resolvedOptions() {
      return {
        locale: this.#locale,
        numberingSystem: 'latn',
        minimumIntegerDigits: 1,
        notation: 'standard',
        signDisplay: 'auto',
        ...this.#options,
      };
    }

    formatToParts(value) {
      const options = this.#options;
      const big = typeof value === 'bigint';
      let number = big ? value : Number(value);
      const negative = big ? number < 0n : number < 0 || Object.is(number, -0);
      if (negative) number = -number;
      let suffix = '';
      if (options.style === 'percent') number = big ? number * 100n : number * 100;
      if (options.notation === 'compact')
        [number, suffix] = shorten(Number(number), options.compactDisplay === 'long');
      const [group, point] = marks(this.#locale);
      const parts = [];
      const put = (type, text) => parts.push({ type, value: text });
      if (!big && Number.isNaN(number)) put('nan', noNumber(this.#locale));
      else if (number === Infinity) put('infinity', '∞');
      else
        this.#digits(
          number,
          negative,
          big,
          suffix !== '' && options.maximumFractionDigits === 0,
          put,
          group,
          point,
        );
      if (suffix) put('compact', suffix);
      return this.#dressed(parts, negative, Number(number));
    }

    #digits(number, negative, big, short, put, group, point) {
      const {
        minimumFractionDigits: least,
        maximumFractionDigits: most,
        maximumSignificantDigits: significant,
        minimumSignificantDigits: atLeast,
        minimumIntegerDigits: integers = 1,
        useGrouping,
        roundingMode: mode = 'halfExpand',
        roundingIncrement: increment,
        trailingZeroDisplay,
      } = this.#options;
      const how = { negative, mode, increment };
      let text;
      if (big) text = significant === undefined ? `${number}` : `${significantOf(number, significant)}`;
      else if (significant !== undefined || atLeast !== undefined) {
        text = precise(number, significant ?? 21, how);
        const digits = text.replace('.', '').replace(/^0+(?=.)/, '').length;
        if (atLeast !== undefined && digits < atLeast)
          text = `${text}${text.includes('.') ? '' : '.'}${'0'.repeat(atLeast - digits)}`;
      } else if (short) {
        // Compact numbers keep two digits.
        text = plain(number < 100 ? Number(number.toPrecision(2)) : Math.round(number));
      } else {
        text = fixed(number, most, how);
      }
      let [whole, fraction = ''] = text.split('.');
      if (significant === undefined && atLeast === undefined && !big) {
        while (fraction.length > least && fraction.endsWith('0')) fraction = fraction.slice(0, -1);
      }
      if (significant === undefined && atLeast === undefined && !short)
        fraction = fraction.padEnd(least, '0');
      if (trailingZeroDisplay === 'stripIfInteger' && /^0+$/.test(fraction)) fraction = '';
      whole = whole.padStart(integers, '0');
      const [, , before, , , , lakh] = marks(this.#locale);
      const grouped = lakh ? /\B(?=(\d{2})*\d{3}$)/g : /\B(?=(\d{3})+$)/g;
      const pieces =
        useGrouping === false || useGrouping === 'false' || whole.length < 3 + before
          ? [whole]
          : whole.replace(grouped, ' ').split(' ');
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
      const {
        style,
        currency,
        currencyDisplay = 'symbol',
        unit,
        unitDisplay = 'short',
        signDisplay = 'auto',
      } = this.#options;
      const [, , , minus, space, side] = marks(this.#locale);
      if (style === 'currency') {
        const name =
          currencyDisplay === 'code'
            ? currency
            : currencyDisplay === 'name'
              ? currency
              : (symbols[currency] ?? currency);
        if (side === 'before' && currencyDisplay !== 'name') {
          parts.unshift(
            { type: 'currency', value: name },
            ...(name.length === 3 ? [{ type: 'literal', value: '\u00a0' }] : []),
          );
        } else parts.push({ type: 'literal', value: '\u00a0' }, { type: 'currency', value: name });
      } else if (style === 'percent') {
        if (space) parts.push({ type: 'literal', value: space });
        parts.push({ type: 'percentSign', value: '%' });
      } else if (style === 'unit') {
        const [short, long] = unitNames(unit);
        const many = number === 1 ? '' : 's';
        if (unitDisplay === 'long')
          parts.push({ type: 'literal', value: ' ' }, { type: 'unit', value: `${long}${many}` });
        else {
          if (unit !== 'percent' && unit !== 'celsius' && unit !== 'fahrenheit' && unitDisplay !== 'narrow')
            parts.push({ type: 'literal', value: ' ' });
          parts.push({
            type: 'unit',
            value:
              ['day', 'week', 'byte', 'bit', 'month', 'year'].includes(unit) && unitDisplay === 'short'
                ? `${short}${many}`
                : short,
          });
        }
      }
      const zero = number === 0;
      if (
        negative &&
        signDisplay !== 'never' &&
        !(zero && (signDisplay === 'exceptZero' || signDisplay === 'negative'))
      )
        parts.unshift({ type: 'minusSign', value: minus });
      else if (!negative && (signDisplay === 'always' || (signDisplay === 'exceptZero' && !zero)))
        parts.unshift({ type: 'plusSign', value: '+' });
      return parts;
    }

    formatRange(from, to) {
      return `${this.format(from)}–${this.format(to)}`;
    }
  },
  true,
);

/** Rounds a number above zero to as many digits. */
function significantOf(big, digits) {
  const beyond = `${big}`.length - digits;
  if (beyond <= 0) return big;
  const unit = 10n ** BigInt(beyond);
  return ((big + unit / 2n) / unit) * unit;
}

/** The short name of a unit, and the long. */
function unitNames(unit) {
  const [one, other] = unit.split('-per-');
  const [short, long] = units[one] ?? [one, one];
  if (other === undefined) return [short, long];
  const per = { second: 's', minute: 'min', hour: 'h', day: 'd' }[other] ?? units[other]?.[0] ?? other;
  return [`${short}/${per}`, `${long} per ${other}`];
}

function shorten(number, long) {
  for (const [size, short, word] of [
    [1e12, 'T', ' trillion'],
    [1e9, 'B', ' billion'],
    [1e6, 'M', ' million'],
    [1e3, 'K', ' thousand'],
  ]) {
    if (number >= size) return [number / size, long ? word : short];
  }
  return [number, ''];
}
