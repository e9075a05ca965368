// Plurals, the order of words and their boundaries, in many languages.
import { Random } from './lib.mjs';

const LOCALES = ['en', 'en-GB', 'de', 'de-AT', 'de-u-co-phonebk', 'fr', 'fr-CA', 'es', 'pt', 'pt-PT', 'it', 'nl', 'sv', 'da', 'nb', 'fi', 'pl', 'cs', 'hr', 'ru', 'uk', 'lt', 'lv', 'ro', 'hu', 'tr', 'el', 'he', 'iw', 'ar', 'fa', 'hi', 'bn', 'th', 'vi', 'id', 'ja', 'ko', 'zh', 'zh-TW', 'cy', 'ga', 'mt', 'sl', 'tlh'];
/** Without those whose plurals differ between the versions of the Unicode data that are in use. */
const COUNTED = LOCALES.filter((locale) => !['es', 'vi'].includes(locale));
const WORDS = ['', 'a', 'A', 'á', 'Á', 'aa', 'ab', 'a b', 'a-b', 'a_b', 'ä', 'ae', 'æ', 'å', 'b', 'ch', 'ci', 'cz', 'č', 'd', 'ð', 'é', 'e', 'lodz', 'Łódź', 'll', 'lz', 'ñ', 'n', 'nz', 'ø', 'o', 'ö', 'oz', 'resume', 'résumé', 'Resume', 's', 'ß', 'ss', 'š', 'z', 'ž', '1', '2', '10', '9a', '.5', '#1', '(a)', 'я', 'б', 'Ё', 'е', 'ж', 'α', 'β', 'א', 'ب', 'あ', 'ア', 'か', 'が', '中', '文', '日本', '\u{1f600}', 'ﬁ', 'Ａ'];
const TEXTS = ['Hello, world! How are you? Fine.', 'can’t won\'t 3.14 1,000 foo_bar a.b', 'Mr. Smith went to Washington. He said "Hi!" Then he left.', 'é e\u0301 ü u\u0308', '\u{1f468}\u200d\u{1f469}\u200d\u{1f467}\u{1f1e9}\u{1f1ea}\u{1f1eb}\u{1f1f7}\u{1f44d}\u{1f3fd}', '你好世界。我是中国人。', '日本語の文章です。テスト', 'สวัสดีชาวโลก', '한국어 문장', 'नमस्ते दुनिया', 'مرحبا بالعالم', 'a\r\nb\tc\u2028d', 'https://example.com/a?b=c user@example.com'];
const AMOUNTS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 19, 20, 21, 22, 23, 25, 100, 101, 102, 111, 112, 121, 1000, 1000000, 0.5, 1.5, 2.1, 1.25, -1, -2, NaN, Infinity];

export default (seed) => {
  const random = new Random(seed);
  const rows = [];
  for (let at = 0; at < 12; at += 1) {
    const locale = random.one(LOCALES);
    const type = random.one(['cardinal', 'ordinal']);
    const digits = random.one([{}, {}, { minimumFractionDigits: 1 }, { maximumFractionDigits: 0 }, { minimumSignificantDigits: 3 }]);
    const counted = random.one(COUNTED);
    const rules = new Intl.PluralRules(counted, { type, ...digits });
    rows.push(['plural rules', [counted, type, digits], rules.resolvedOptions()]);
    rows.push(['plurals', [counted, type, digits], AMOUNTS.map((amount) => rules.select(amount))]);
    const options = {
      ...(random.chance(30) ? { numeric: random.chance(50) } : {}),
      ...(random.chance(30) ? { sensitivity: random.one(['base', 'accent', 'case', 'variant']) } : {}),
      ...(random.chance(20) ? { ignorePunctuation: random.chance(50) } : {}),
      ...(random.chance(20) ? { caseFirst: random.one(['upper', 'lower', 'false']) } : {}),
    };
    const collator = new Intl.Collator(locale, options);
    // Which regions have an order of their own is not told.
    const { locale: used, ...resolved } = collator.resolvedOptions();
    rows.push(['collator', [locale, options], [used.split('-')[0], resolved]]);
    const words = random.some(WORDS, 24);
    rows.push(['order', [locale, options, words], [...words].sort(collator.compare)]);
    const [left, right] = [random.one(WORDS), random.one(WORDS)];
    rows.push(['localeCompare', [left, right, locale], [left.localeCompare(right), left.localeCompare(right, locale, options)]]);
    const granularity = random.one(['grapheme', 'word', 'sentence']);
    const text = random.one(TEXTS);
    const segmenter = new Intl.Segmenter(locale, { granularity });
    rows.push(['segmenter', [locale, granularity], segmenter.resolvedOptions().granularity]);
    rows.push(['segments', [granularity, text], [...segmenter.segment(text)]]);
    const position = random.below(text.length + 2);
    rows.push(['containing', [granularity, text, position], segmenter.segment(text).containing(position) ?? null]);
  }
  const invalid = [
    () => new Intl.PluralRules('en', { type: 'x' }),
    () => new Intl.Collator('en', { sensitivity: 'x' }),
    () => new Intl.Segmenter('en', { granularity: 'x' }),
  ];
  for (const run of invalid) {
    try {
      rows.push(['invalid', null, String(run())]);
    } catch (error) {
      rows.push(['invalid', null, [error.name, error.message]]);
    }
  }
  for (const Class of [Intl.PluralRules, Intl.Collator, Intl.Segmenter])
    rows.push(['supportedLocalesOf', Class.name, Class.supportedLocalesOf(['de', 'de-AT', 'zh-Hant', 'tlh', 'pl'])]);
  return rows;
};
