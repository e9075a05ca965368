// Locales, as far as they are told apart: by their order of dates and their marks in numbers.

export const dates = {
  'en-US': ['M/D/Y', ', ', true],
  'en-GB': ['DD/MM/Y', ', ', false],
  'en-CA': ['Y-MM-DD', ', ', true],
  'en-AU': ['DD/MM/Y', ', ', true],
  'sv-SE': ['Y-MM-DD', ' ', false],
  'de-DE': ['D.M.Y', ', ', false],
  'fr-FR': ['DD/MM/Y', ' ', false],
  'es-ES': ['D/M/Y', ', ', false],
  'it-IT': ['D/M/Y', ', ', false],
  'nl-NL': ['D-M-Y', ', ', false],
  'pt-BR': ['DD/MM/Y', ', ', false],
  'ja-JP': ['Y/M/D', ' ', false],
  'zh-CN': ['Y/M/D', ' ', false],
  'ko-KR': ['Y/M/D', ' ', false],
  'pl-PL': ['D.MM.Y', ', ', false],
};
export const marks = {
  en: [',', '.'],
  de: ['.', ','],
  fr: ['\u202f', ','],
  es: ['.', ','],
  it: ['.', ','],
  nl: ['.', ','],
  pt: ['.', ','],
  sv: ['\u00a0', ','],
  pl: ['\u00a0', ','],
  ja: [',', '.'],
  zh: [',', '.'],
  ko: [',', '.'],
};
export function getCanonicalLocales(locales) {
  return [locales ?? []].flat().map((locale) => {
    const text = `${locale}`;
    if (!/^[a-z]{2,8}([-_][a-z0-9]{1,8})*$/i.test(text))
      throw new RangeError(`Incorrect locale information provided: ${text}`);
    return text
      .split(/[-_]/)
      .map((part, at) => {
        if (at === 0) return part.toLowerCase();
        if (part.length === 4) return part[0].toUpperCase() + part.slice(1).toLowerCase();
        return part.length === 2 || part.length === 3 ? part.toUpperCase() : part.toLowerCase();
      })
      .join('-');
  });
}

/** The nearest locale there is. */
export function pick(locales) {
  for (const wanted of getCanonicalLocales(locales)) {
    if (dates[wanted]) return wanted;
    const language = wanted.split('-')[0];
    const found = Object.keys(dates).find((known) => known.split('-')[0] === language);
    if (found) return found;
  }
  return 'en-US';
}

/** Which locales a class knows; those of the oldest are called without `new` as well. */
export function supports(Class, called = false) {
  Class.supportedLocalesOf = (locales) =>
    getCanonicalLocales(locales).filter((wanted) =>
      Object.keys(dates).some((known) => known.split('-')[0] === wanted.split('-')[0]),
    );
  if (!called) return Class;
  const callable = new Proxy(Class, { apply: (target, _, given) => new target(...given) });
  Object.defineProperty(Class.prototype, 'constructor', {
    value: callable,
    configurable: true,
    writable: true,
  });
  return callable;
}
