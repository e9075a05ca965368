// `Intl.Segmenter`: the characters, words and sentences of a text.

import native from 'native/languages';
import { choice, chosen } from 'internal/intl/choices';
import { pickLanguage, supports } from 'internal/intl/locales';
import { LANGUAGES } from 'internal/intl/plurals';

class Segments {
  #text;
  #granularity;
  #found;

  constructor(text, granularity) {
    this.#text = text;
    this.#granularity = granularity;
  }

  get #all() {
    this.#found ??= [...this];
    return this.#found;
  }

  *[Symbol.iterator]() {
    const input = this.#text;
    let index = 0;
    for (const end of native.boundaries(input.toWellFormed(), this.#granularity)) {
      if (end === index) continue;
      const segment = { segment: input.slice(index, end), index, input };
      if (this.#granularity === 'word') segment.isWordLike = /[\p{Alphabetic}\p{N}]/u.test(segment.segment);
      index = end;
      yield segment;
    }
  }

  containing(position) {
    const at = Math.trunc(Number(position)) || 0;
    return this.#all.find(({ segment, index }) => at >= index && at < index + segment.length);
  }
}

export const Segmenter = supports(
  class Segmenter {
    #locale;
    #granularity;

    constructor(locales, options) {
      this.#locale = pickLanguage(locales, LANGUAGES).locale;
      const offered = ['grapheme', 'word', 'sentence'];
      this.#granularity = choice('Segmenter', chosen(options), 'granularity', offered, 'grapheme');
    }

    segment(input) {
      return new Segments(`${input}`, this.#granularity);
    }

    resolvedOptions() {
      return { locale: this.#locale, granularity: this.#granularity };
    }
  },
  false,
  LANGUAGES,
);
