// What is formatted for a locale, and that what is not says so: `resolvedOptions().locale` names the one that is used.
import { Random, attempt } from './lib.mjs';

const ENGLISH = ['en', 'en-US'];
const DATED =
  'en-GB en-CA en-AU de de-DE fr-FR es es-ES it-IT nl nl-NL pt-BR sv-SE pl pl-PL ja-JP zh-CN af az be bs ca cs cs-CZ cy da da-DK et fi ga gl he hi hi-IN hr hu hy id is ka kk ky lt mn nb nn no ro ru ru-RU sk sl sw ta tr tr-TR uk uk-UA uz zu en-IE en-ZA de-AT de-CH fr-CH fr-BE pt-PT nl-BE de-LI'.split(' ');
const NUMBERED =
  'en-GB en-CA en-AU de de-DE fr fr-FR es-ES it it-IT nl-NL pt-BR sv sv-SE pl-PL ja-JP zh-CN ko-KR af az be bg bs ca cs cs-CZ cy da da-DK el et eu fi fil ga gl hi hi-IN hr hu hy id is ka kk ko ky lt lv mk mn ms nb nn no ro ru ru-RU sk sl sq sr sw ta te tr tr-TR uk uk-UA uz vi zu en-IN en-IE en-NZ en-ZA en-SG en-HK de-AT de-CH fr-CA fr-CH fr-BE es-MX es-AR es-CO es-CL es-US es-PE pt-PT nl-BE it-CH zh-TW zh-HK sr-Latn de-LI'.split(' ');
const NO_EURO =
  'en-AU nl nl-NL pt-BR hu is mn ro sw uk de-AT de-CH fr-CH es-MX es-AR es-CO es-CL es-US es-PE nl-BE it-CH de-LI'.split(' ');
const EURO = NUMBERED.filter((locale) => !NO_EURO.includes(locale) && !NO_EURO.includes(locale.replace(/-[A-Z]+$/, '')) || /^(de|fr|it|es)-(DE|FR|IT|ES)$/.test(locale));
/** Whose percent sign is not after the number. */
const OTHER_PERCENT = ['tr', 'tr-TR', 'eu', 'te'];
const OTHERS = ['de-AT', 'de-CH', 'en-IN', 'en-ZA', 'es-MX', 'fr-CA', 'pt-PT', 'zh-TW', 'ar-EG', 'hi-IN', 'th-TH', 'cs', 'ko-KR'];
const ALL = [...new Set([...ENGLISH, ...DATED, ...NUMBERED, ...OTHERS])];

const pad = ['numeric', '2-digit'];

/** Options that only need the order of a date. */
function numeric(random) {
  const options = {};
  if (random.chance(70)) {
    options.month = options.day = random.one(pad);
    options.year = 'numeric';
  }
  if (!options.year || random.chance(50)) {
    options.hour = random.one(pad);
    options.minute = '2-digit';
    if (random.chance(50)) options.second = '2-digit';
  }
  return options;
}

function worded(random) {
  const options = {};
  if (random.chance(30)) {
    options.dateStyle = random.one(['full', 'long', 'medium', 'short']);
    if (random.chance(50)) options.timeStyle = random.one(['short', 'medium']);
    return options;
  }
  options.month = random.one(['long', 'short']);
  if (random.chance(70)) options.day = 'numeric';
  if (random.chance(60)) options.year = 'numeric';
  if (options.day && random.chance(40)) options.weekday = random.one(['long', 'short']);
  return options;
}

const simple = (random) => ({
  ...(random.chance(40) ? { style: 'percent' } : {}),
  ...(random.chance(40) ? { maximumFractionDigits: random.below(4) } : {}),
  ...(random.chance(20) ? { minimumFractionDigits: random.below(3) } : {}),
  ...(random.chance(20) ? { useGrouping: false } : {}),
});

const rich = (random) =>
  random.one([
    { style: 'unit', unit: random.one(['kilometer', 'hour', 'liter']), unitDisplay: random.one(['long', 'short']) },
    { notation: 'compact' },
    { notation: 'compact', compactDisplay: 'long' },
    { style: 'currency', currency: 'USD', currencyDisplay: random.one(['name', 'symbol', 'code']) },
  ]);

const amount = (random) => random.one([0, 7, 0.256, 1.5, 999, 1234.5, -1234.5, 12345.678, -0.004, 1234567.89, 9876543210, Infinity, NaN]);

/** What a locale is formatted as where that is promised; elsewhere, that it is either right or English, and says which. */
function row(Class, promised, locale, options, value) {
  const format = new Class(locale, options);
  const [used, text] = [format.resolvedOptions().locale, format.format(value)];
  if (promised) return [used, text];
  return used === locale || (used === 'en-US' && text === new Class('en-US', options).format(value));
}

export default (seed) => {
  const random = new Random(seed);
  const rows = [];
  const samples = [Intl.DateTimeFormat, Intl.NumberFormat, Intl.RelativeTimeFormat, Intl.ListFormat, Intl.PluralRules, Intl.Collator, Intl.Segmenter];
  for (const Class of samples) {
    const asked = random.some(ALL, 4);
    rows.push(['supportedLocalesOf', [Class.name, asked], Class.supportedLocalesOf(asked).filter((locale) => ENGLISH.includes(locale))]);
  }
  const months = { month: 'long', timeZone: 'UTC' };
  const foreign = Intl.DateTimeFormat.supportedLocalesOf(['de', 'de-DE', 'fr', 'ja-JP', 'pt-BR', 'pl', 'qqq']);
  rows.push(['supported locales are not English', null, foreign.every((locale) => new Intl.DateTimeFormat(locale, months).format(0) !== 'January')]);
  const lists = Intl.ListFormat.supportedLocalesOf(['de', 'fr', 'es', 'pl']);
  rows.push(['supported locales are not English', null, lists.every((locale) => !new Intl.ListFormat(locale).format(['a', 'b']).includes('and'))]);
  const names = Intl.DisplayNames.supportedLocalesOf(['en', 'de']);
  rows.push(['supported names are names', null, names.every((locale) => new Intl.DisplayNames(locale, { type: 'region' }).of('US').length > 2)]);
  for (let at = 0; at < 12; at += 1) {
    const when = new Date(Date.UTC(2024, random.below(12), 1 + random.below(28), random.below(24), random.below(60), random.below(60)));
    const english = random.one(ENGLISH);
    const dates = (locale, options, promised) =>
      rows.push(['date', [locale, options, when.toJSON()], attempt(() => row(Intl.DateTimeFormat, promised, locale, { timeZone: 'UTC', ...options }, when))]);
    dates(english, numeric(random), true);
    dates(english, worded(random), true);
    dates(random.one(DATED), numeric(random), true);
    dates(random.one(DATED), worded(random), false);
    dates(random.one(OTHERS), random.chance(50) ? numeric(random) : worded(random), false);
    const later = new Date(when.getTime() + random.one([0, 20 * 60e3, 5 * 3600e3, 3 * 864e5, 40 * 864e5, 400 * 864e5]));
    const ranged = { timeZone: 'UTC', ...(random.chance(40) ? numeric(random) : worded(random)) };
    const range = () => new Intl.DateTimeFormat(english, ranged);
    rows.push(['range', [english, ranged, when.toJSON(), later.toJSON()], attempt(() => range().formatRange(when, later))]);
    const zoned = { timeZone: random.one(['UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Tokyo', 'Asia/Kolkata', 'Australia/Sydney']), timeZoneName: 'long', ...(random.chance(50) ? { hour: 'numeric', minute: '2-digit' } : {}) };
    rows.push(['zone', [english, zoned, when.toJSON()], attempt(() => new Intl.DateTimeFormat(english, zoned).format(when))]);
    const value = amount(random);
    const numbers = (locale, options, promised) =>
      rows.push(['number', [locale, options, value], attempt(() => row(Intl.NumberFormat, promised, locale, options, value))]);
    numbers(english, random.chance(50) ? simple(random) : { style: 'currency', currency: random.one(['USD', 'EUR', 'JPY']) }, true);
    const [numbered, plain] = [random.one(NUMBERED), simple(random)];
    numbers(numbered, plain, !(plain.style === 'percent' && OTHER_PERCENT.includes(numbered)));
    numbers(random.one(EURO), { style: 'currency', currency: 'EUR' }, true);
    numbers(random.one(NUMBERED), rich(random), false);
    numbers(random.one(OTHERS), random.chance(50) ? rich(random) : simple(random), false);
    const locale = random.one(DATED);
    const day = { year: 'numeric', month: '2-digit', day: '2-digit', timeZone: 'UTC' };
    rows.push(['toLocaleDateString', locale, when.toLocaleDateString(locale, random.chance(50) ? day : { timeZone: 'UTC' })]);
    rows.push(['toLocaleString', locale, when.toLocaleString(locale, { timeZone: 'UTC' })]);
  }
  return rows;
};
