// `Intl.PluralRules`: the grammatical category of a number.

import native from 'native/languages';
import { choice, chosen } from 'internal/intl/choices';
import { pickLanguage, supports } from 'internal/intl/locales';
import { NumberFormat } from 'internal/intl/numbers';

export const LANGUAGES =
  'af ak am an ar ars as asa ast az bal be bem bez bg bho blo bm bn bo br brx bs ca ce ceb cgg chr ckb cs csw cv cy da de doi dsb dv dz ee el en eo es et eu fa ff fi fil fo fr fur fy ga gd gl gsw gu guw gv ha haw he hi hnj hr hsb hu hy ia id ie ig ii io is it iu ja jbo jgo jmc jv ka kab kaj kcg kde kea kk kkj kl km kn ko kok ks ksb ksh ku kw ky lag lb lg lij lkt lld ln lo lt lv mas mg mgo mk ml mn mr ms mt my nah naq nb nd ne nl nn nnh no nqo nr nso ny nyn om or os osa pa pap pcm pl prg ps pt rm ro rof ru rwk sah saq sat sc scn sd sdh se seh ses sg sgs shi si sk sl sma smi smj smn sms sn so sq sr ss ssy st su sv sw syr ta te teo th ti tig tk tn to tpi tr ts tzm ug uk ur uz ve vec vi vo vun wa wae wo xh xog yi yo yue zh zu';

/** The locales whose plurals are not those of their language. */
const OTHERS = ['fa-AF', 'pt-PT', 'sr-Latn', 'sr-ME', 'sw-CD'];

const ROUNDING = ['roundingIncrement', 'roundingMode', 'roundingPriority', 'trailingZeroDisplay'];
const DIGITS = [
  'minimumIntegerDigits',
  'minimumFractionDigits',
  'maximumFractionDigits',
  'minimumSignificantDigits',
  'maximumSignificantDigits',
];

export const PluralRules = supports(
  class PluralRules {
    #locale;
    #type;
    #digits;

    constructor(locales, options) {
      const given = chosen(options);
      const { locale, name } = pickLanguage(locales, LANGUAGES);
      this.#locale = OTHERS.includes(locale) ? locale : name;
      this.#type = choice('PluralRules', given, 'type', ['cardinal', 'ordinal'], 'cardinal');
      const wanted = [...DIGITS, ...ROUNDING].filter((name) => given[name] !== undefined);
      this.#digits = new NumberFormat('en', {
        ...Object.fromEntries(wanted.map((name) => [name, given[name]])),
        useGrouping: false,
        signDisplay: 'never',
      });
    }

    select(value) {
      const number = Number(value);
      if (!Number.isFinite(number)) return 'other';
      return native.category(this.#locale, this.#type === 'ordinal', this.#digits.format(number));
    }

    resolvedOptions() {
      const digits = this.#digits.resolvedOptions();
      const bySignificance =
        digits.minimumSignificantDigits !== undefined || digits.maximumSignificantDigits !== undefined;
      return {
        locale: this.#locale,
        type: this.#type,
        minimumIntegerDigits: digits.minimumIntegerDigits,
        ...(bySignificance
          ? {
              minimumSignificantDigits: digits.minimumSignificantDigits ?? 1,
              maximumSignificantDigits: digits.maximumSignificantDigits ?? 21,
            }
          : {
              minimumFractionDigits: digits.minimumFractionDigits,
              maximumFractionDigits: digits.maximumFractionDigits,
            }),
        pluralCategories: native.categories(this.#locale, this.#type === 'ordinal'),
        roundingIncrement: digits.roundingIncrement ?? 1,
        roundingMode: digits.roundingMode ?? 'halfExpand',
        roundingPriority: digits.roundingPriority ?? 'auto',
        trailingZeroDisplay: digits.trailingZeroDisplay ?? 'auto',
      };
    }
  },
  false,
  LANGUAGES,
);
