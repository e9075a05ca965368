// Locales. Only English is formatted completely. Of others there are plain numbers and numeric dates, and what asks them for
// more is formatted in English, as `resolvedOptions` tells.

const COMPLETE = ['en', 'en-US'];

export function getCanonicalLocales(locales) {
  const tags = [locales ?? []].flat().map((locale) => {
    const text = `${locale}`;
    if (!/^[a-z]{2,8}([-_][a-z0-9]{1,8})*$/i.test(text))
      throw new RangeError(`Incorrect locale information provided: ${text}`);
    const parts = text.split(/[-_]/);
    const extensions = parts.findIndex((part) => part.length === 1);
    return parts
      .map((part, at) => {
        if (at === 0 || (extensions > 0 && at >= extensions)) return part.toLowerCase();
        if (part.length === 4) return part[0].toUpperCase() + part.slice(1).toLowerCase();
        return part.length === 2 || part.length === 3 ? part.toUpperCase() : part.toLowerCase();
      })
      .join('-');
  });
  return [...new Set(tags)];
}

/** What a locale says of a key after `-u-`, such as `hc` (hour cycle); nothing where the key alone is there. */
export function keyword(locales, key) {
  const [, words = ''] = getCanonicalLocales(locales)[0]?.split('-u-') ?? [];
  const found = new RegExp(`(?:^|-)${key}(?:-(\\w{3,8}))?(?=-|$)`).exec(words);
  return found ? (found[1] ?? '') : undefined;
}

/** The first locale that is formatted completely, or whose part `works` finds to be enough. */
export function pick(locales, works = () => false) {
  for (const tag of getCanonicalLocales(locales)) {
    const locale = tag.replace(/-u-.*$/, '');
    if (COMPLETE.includes(locale) || works(locale)) return locale;
  }
  return 'en-US';
}

/** The language of a locale, by the name that is in use today. */
function languageOf(locale) {
  const [language] = locale.split('-');
  return { iw: 'he', in: 'id', ji: 'yi', tl: 'fil', mo: 'ro' }[language] ?? language;
}

/**
 * The first locale whose language is one of a list: as it was asked for, without what follows `-u-`, its language, and the name
 * of a class that only distinguishes languages.
 */
export function pickLanguage(locales, languages) {
  for (const asked of getCanonicalLocales(locales)) {
    const language = languageOf(asked);
    if (!hasLanguage(languages, language)) continue;
    const [, ...rest] = asked.replace(/-u-.*$/, '').split('-');
    return { asked, locale: [language, ...rest].join('-'), language, name: language };
  }
  return { asked: 'en-US', locale: 'en-US', language: 'en', name: 'en-US' };
}

const hasLanguage = (languages, language) => ` ${languages} `.includes(` ${language} `);

/**
 * Which locales a class formats completely: a list of them, or the text of languages whose locales all are; those of the oldest
 * classes are called without `new` as well.
 */
export function supports(Class, called = false, complete = COMPLETE) {
  const isComplete = (tag) =>
    typeof complete === 'string'
      ? hasLanguage(complete, languageOf(tag))
      : complete.includes(tag.replace(/-u-.*$/, ''));
  Class.supportedLocalesOf = (locales) => getCanonicalLocales(locales).filter(isComplete);
  Object.defineProperty(Class.prototype, Symbol.toStringTag, {
    value: `Intl.${Class.name}`,
    configurable: true,
  });
  if (!called) return Class;
  const callable = new Proxy(Class, { apply: (target, _, given) => new target(...given) });
  Object.defineProperty(Class.prototype, 'constructor', {
    value: callable,
    configurable: true,
    writable: true,
  });
  return callable;
}
