// `Intl.DateTimeFormat`.

import native from 'native/zones';
import { dates } from 'internal/intl/conventions';
import { keyword, pick, supports } from 'internal/intl/locales';
import { rangeParts } from 'internal/intl/ranges';
import { longName } from 'internal/zone-names';

const months = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const weekdays = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** Whether hours count in halves of a day. */
const HALVES = { h11: true, h12: true, h23: false, h24: false };
const ERAS = { short: ['AD', 'BC'], long: ['Anno Domini', 'Before Christ'], narrow: ['A', 'B'] };

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

const WORDED = [
  'calendar',
  'dateStyle',
  'dayPeriod',
  'era',
  'formatMatcher',
  'fractionalSecondDigits',
  'hour12',
  'hourCycle',
  'numberingSystem',
  'timeStyle',
  'timeZoneName',
  'weekday',
];

/** Whether it is a whole date in numbers, a time, or both: then the order of a locale is all there is to know of it. */
function isNumeric(locale, options) {
  if (!dates(locale) || WORDED.some((name) => options[name] !== undefined)) return false;
  const { year, month, day, hour, minute } = options;
  const dated = year === 'numeric' && month === day && (month === 'numeric' || month === '2-digit');
  const timed = hour !== undefined && minute !== undefined;
  if (year ?? month ?? day) return dated && (timed || (hour ?? minute ?? options.second) === undefined);
  return timed;
}

/** English in America knows the short names of its own time zones only. */
const hasAbbreviation = (zone, short) =>
  short === 'GMT'
    ? !zone.startsWith('Europe/')
    : /^(?:[AECMP]|AK)[SD]T$|^HST$/.test(short) && /^(?:America|Canada|Pacific|US)\/(?!Havana)/.test(zone);

export const DateTimeFormat = supports(
  class DateTimeFormat {
    #locale;
    #options;
    #keyword = '';
    format;

    constructor(locales, options = {}) {
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
      this.#locale = pick(locales, (locale) => isNumeric(locale, given));
      given.timeZone = zoneOf(given.timeZone);
      const cycle = keyword(locales, 'hc');
      if (Object.hasOwn(HALVES, cycle ?? '')) {
        const asked =
          given.hour12 === undefined ? given.hourCycle : HALVES[cycle] === given.hour12 ? cycle : '';
        if (asked === undefined || asked === cycle) {
          given.hourCycle = cycle;
          this.#keyword = `-u-hc-${cycle}`;
        }
      }
      if (given.hourCycle && given.hour12 === undefined) given.hour12 = HALVES[given.hourCycle];
      given.hour12 ??= dates(this.#locale)[2];
      this.#options = given;
      this.format = (when) =>
        this.formatToParts(when)
          .map(({ value }) => value)
          .join('');
    }

    resolvedOptions() {
      const { timeZone, hour12, hourCycle, ...rest } = this.#options;
      const hours =
        rest.hour !== undefined || rest.timeStyle !== undefined
          ? { hourCycle: hourCycle ?? (hour12 ? 'h12' : 'h23'), hour12 }
          : {};
      return {
        locale: this.#locale + this.#keyword,
        calendar: 'gregory',
        numberingSystem: 'latn',
        timeZone,
        ...hours,
        ...rest,
      };
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
      if (options.era) {
        if (parts.length > 0) put('literal', ' ');
        put('era', ERAS[options.era][local.getUTCFullYear() > 0 ? 0 : 1]);
      }
      this.#time(options, local, put, parts.length > 0);
      if (options.timeZoneName) {
        const short = options.timeZoneName === 'short' && hasAbbreviation(options.timeZone, abbreviation);
        const long = options.timeZoneName === 'long' && !/^[+-]/.test(options.timeZone);
        const told = long
          ? longName(options.timeZone, abbreviation, minutes)
          : options.timeZone === 'UTC'
            ? 'UTC'
            : short
              ? abbreviation
              : gmt(minutes);
        const isTimed = parts.some(({ type }) => ['hour', 'minute', 'second'].includes(type));
        put('literal', isTimed ? ' ' : ', ');
        put('timeZoneName', told);
      }
      return parts;
    }

    #expanded() {
      const { dateStyle, timeStyle, ...options } = this.#options;
      if (dateStyle) {
        Object.assign(
          options,
          {
            full: { weekday: 'long', year: 'numeric', month: 'long', day: 'numeric' },
            long: { year: 'numeric', month: 'long', day: 'numeric' },
            medium: { year: 'numeric', month: 'short', day: 'numeric' },
            short: { year: '2-digit', month: 'numeric', day: 'numeric' },
          }[dateStyle],
        );
      }
      if (timeStyle) {
        Object.assign(
          options,
          { hour: 'numeric', minute: '2-digit' },
          timeStyle === 'short' ? {} : { second: '2-digit' },
        );
        if (timeStyle === 'full' || timeStyle === 'long') options.timeZoneName ??= 'short';
      }
      return { ...options, styled: dateStyle };
    }

    #date({ weekday, year, month, day }, local, put) {
      const since = local.getUTCFullYear();
      const counted = since > 0 ? since : 1 - since;
      const name = (list, at, width) =>
        width === 'long' ? list[at] : width === 'short' ? list[at].slice(0, 3) : list[at][0];
      const values = {
        year: year && (year === '2-digit' ? two(counted % 100) : counted),
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
      const [first, separator, second, , third, end] = dates(this.#locale)[0].match(/[MDY]+|[^MDY]+/g);
      const fields = [first, second, third].filter((field) => ({ M: month, D: day, Y: year })[field[0]]);
      fields.forEach((field, at) => {
        if (at > 0) put('literal', separator);
        if (field[0] === 'Y') put('year', values.year);
        else if (field[0] === 'M')
          put(
            'month',
            month === '2-digit' || field.length === 2
              ? two(local.getUTCMonth() + 1)
              : local.getUTCMonth() + 1,
          );
        else put('day', field.length === 2 ? two(local.getUTCDate()) : values.day);
      });
      if (end && fields.length === 3) put('literal', end);
    }

    #time(
      { hour, minute, second, hour12, hourCycle, fractionalSecondDigits, styled, month },
      local,
      put,
      after,
    ) {
      if (!hour && !minute && !second && !fractionalSecondDigits) return;
      if (after)
        put(
          'literal',
          styled === 'full' || styled === 'long'
            ? ' at '
            : month === 'long' && !styled
              ? ' at '
              : dates(this.#locale)[1],
        );
      const mark = dates(this.#locale)[5] ?? ':';
      let joined = false;
      const join = (mark) => {
        if (joined) put('literal', mark);
        joined = true;
      };
      const hours = local.getUTCHours();
      if (hour) {
        const shown = hour12
          ? hours % 12 || (hourCycle === 'h11' ? 0 : 12)
          : hourCycle === 'h24' && hours === 0
            ? 24
            : hours;
        join('');
        put('hour', this.#pads(hour, minute ?? second, hour12) ? two(shown) : shown);
      }
      if (minute) {
        join(mark);
        put(
          'minute',
          hour || minute === '2-digit' || second ? two(local.getUTCMinutes()) : local.getUTCMinutes(),
        );
      }
      if (second) {
        join(mark);
        put('second', minute || second === '2-digit' ? two(local.getUTCSeconds()) : local.getUTCSeconds());
      }
      if (fractionalSecondDigits) {
        join('.');
        put(
          'fractionalSecond',
          String(local.getUTCMilliseconds()).padStart(3, '0').slice(0, fractionalSecondDigits),
        );
      }
      if (hour && hour12) {
        put('literal', ' ');
        const [morning, evening] = dates(this.#locale)[3] ?? ['AM', 'PM'];
        put('dayPeriod', hours < 12 ? morning : evening);
      }
    }

    /** Whether an hour has two digits. */
    #pads(hour, next, hour12) {
      if (hour === '2-digit') return true;
      const english = this.#locale.startsWith('en') && dates(this.#locale)[2];
      return !hour12 && (english || (next === 'numeric' && dates(this.#locale)[4] !== 'H'));
    }

    formatRange(from, to) {
      return this.formatRangeToParts(from, to)
        .map(({ value }) => value)
        .join('');
    }

    formatRangeToParts(from, to) {
      if (from === undefined || to === undefined) throw new TypeError('Invalid time value');
      const { styled: _styled, timeZone, ...fields } = this.#expanded();
      const made = (chosen) =>
        new DateTimeFormat(this.#locale, { hour12: fields.hour12, ...chosen, timeZone });
      return rangeParts(made, fields, from, to);
    }
  },
  true,
);

function gmt(minutes) {
  if (minutes === 0) return 'GMT';
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return `GMT${minutes < 0 ? '-' : '+'}${hours}${rest ? `:${two(rest)}` : ''}`;
}
