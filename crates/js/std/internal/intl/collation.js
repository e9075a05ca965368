// `Intl.Collator`: the order of words.

import native from 'native/languages';
import { choice, chosen } from 'internal/intl/choices';
import { keyword, pickLanguage, supports } from 'internal/intl/locales';

const LANGUAGES =
  'af am ar as az be bg bn bs ca ceb chr cs cy da de el en eo es et fa ff fi fil fo fr fy ga gl gu ha haw he hi hr hsb hu hy id ig is it ja ka kk kl km kn ko kok ku ky lb lkt ln lt lv mk ml mn mr ms mt my nb ne nl nn no nso om or pa pl ps pt ro ru se si sk sl smn sq sr st sv sw ta te th tk tn to tr ug uk ur uz vi wae wo xh yi yo zh zu';

/** The languages that put upper case first. */
const UPPER_FIRST = ['da', 'mt'];

export const Collator = supports(
  class Collator {
    #resolved;
    #compare;

    constructor(locales, options) {
      const { asked, locale, language } = pickLanguage(locales, LANGUAGES);
      const given = chosen(options);
      const usage = choice('Collator', given, 'usage', ['sort', 'search'], 'sort');
      const numeric = given.numeric === undefined ? isSet(keyword(asked, 'kn')) : Boolean(given.numeric);
      const caseFirst = choice(
        'Collator',
        given,
        'caseFirst',
        ['upper', 'lower', 'false'],
        keyword(asked, 'kf') || (UPPER_FIRST.includes(language) ? 'upper' : 'false'),
      );
      const sensitivity = choice(
        'Collator',
        given,
        'sensitivity',
        ['base', 'accent', 'case', 'variant'],
        'variant',
      );
      const ignorePunctuation =
        given.ignorePunctuation === undefined ? language === 'th' : Boolean(given.ignorePunctuation);
      const collation = given.collation ?? (keyword(asked, 'co') || undefined);
      const kept = [
        ['co', given.collation, collation],
        ['kf', given.caseFirst, caseFirst],
        ['kn', given.numeric, numeric ? '' : 'false'],
      ]
        .filter(([key, option]) => option === undefined && keyword(asked, key) !== undefined)
        .map(([key, , value]) => (value ? `-${key}-${value}` : `-${key}`));
      this.#resolved = {
        locale: kept.length > 0 ? `${locale}-u${kept.join('')}` : locale,
        usage,
        sensitivity,
        ignorePunctuation,
        collation: collation ?? 'default',
        numeric,
        caseFirst,
      };
      const tag = collation && usage === 'sort' ? `${locale}-u-co-${collation}` : locale;
      const compare = native.collator(tag, usage, sensitivity, ignorePunctuation, numeric, caseFirst);
      this.#compare = (a, b) => compare(`${a}`.toWellFormed(), `${b}`.toWellFormed());
    }

    get compare() {
      return this.#compare;
    }

    resolvedOptions() {
      return { ...this.#resolved };
    }
  },
  true,
  LANGUAGES,
);

const isSet = (word) => word !== undefined && word !== 'false';
