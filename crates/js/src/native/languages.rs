//! What depends on a language in `Intl`: the category of a number, the order of words, and where text may be divided.

use std::cmp::Ordering;

use fixed_decimal::Decimal;
use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering, CollationType};
use icu_collator::{Collator, CollatorPreferences};
use icu_locale_core::Locale;
use icu_plurals::{PluralCategory, PluralRuleType, PluralRules, PluralRulesOptions};
use icu_segmenter::options::{SentenceBreakInvariantOptions, WordBreakInvariantOptions};
use icu_segmenter::{GraphemeClusterSegmenter, SentenceSegmenter, WordSegmenter};
use rquickjs::{Ctx, Exception, Function, Object, Result};

use super::natives;

pub(crate) fn native<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    natives! { ctx;
        "category": category,
        "categories": categories,
        "collator": collator,
        "boundaries": boundaries,
    }
}

/// Returns the plural category of a number, given as decimal digits, in a locale.
fn category(ctx: Ctx<'_>, locale: String, is_ordinal: bool, digits: String) -> Result<&'static str> {
    let number = Decimal::try_from_str(&digits)
        .map_err(|error| Exception::throw_range(&ctx, &format!("the number {digits}: {error}")))?;
    Ok(name(rules(&ctx, &locale, is_ordinal)?.category_for(&number)))
}

/// Returns the plural categories that a locale distinguishes.
fn categories(ctx: Ctx<'_>, locale: String, is_ordinal: bool) -> Result<Vec<&'static str>> {
    Ok(rules(&ctx, &locale, is_ordinal)?.categories().map(name).collect())
}

fn rules(ctx: &Ctx<'_>, locale: &str, is_ordinal: bool) -> Result<PluralRules> {
    let rule_type = if is_ordinal { PluralRuleType::Ordinal } else { PluralRuleType::Cardinal };
    let options = PluralRulesOptions::default().with_type(rule_type);
    PluralRules::try_new(parse(ctx, locale)?.into(), options)
        .map_err(|error| Exception::throw_range(ctx, &format!("plural rules of {locale}: {error}")))
}

fn name(category: PluralCategory) -> &'static str {
    match category {
        PluralCategory::Zero => "zero",
        PluralCategory::One => "one",
        PluralCategory::Two => "two",
        PluralCategory::Few => "few",
        PluralCategory::Many => "many",
        PluralCategory::Other => "other",
    }
}

/// Returns a function that compares two strings as an `Intl.Collator` with the given options does.
fn collator<'js>(
    ctx: Ctx<'js>,
    locale: String,
    usage: String,
    sensitivity: String,
    ignores_punctuation: bool,
    is_numeric: bool,
    case_first: String,
) -> Result<Function<'js>> {
    let mut preferences = CollatorPreferences::from(&parse(&ctx, &locale)?);
    preferences.numeric_ordering =
        Some(if is_numeric { CollationNumericOrdering::True } else { CollationNumericOrdering::False });
    preferences.case_first = Some(match case_first.as_str() {
        "upper" => CollationCaseFirst::Upper,
        "lower" => CollationCaseFirst::Lower,
        _ => CollationCaseFirst::False,
    });
    if usage == "search" {
        preferences.collation_type = Some(CollationType::Search);
    }
    let mut options = CollatorOptions::default();
    let (strength, case_level) = match sensitivity.as_str() {
        "base" => (Strength::Primary, CaseLevel::Off),
        "accent" => (Strength::Secondary, CaseLevel::Off),
        "case" => (Strength::Primary, CaseLevel::On),
        _ => (Strength::Tertiary, CaseLevel::Off),
    };
    options.strength = Some(strength);
    options.case_level = Some(case_level);
    options.alternate_handling =
        Some(if ignores_punctuation { AlternateHandling::Shifted } else { AlternateHandling::NonIgnorable });
    let collator = Collator::try_new(preferences, options)
        .map_err(|error| Exception::throw_range(&ctx, &format!("collation of {locale}: {error}")))?;
    Function::new(ctx, move |left: String, right: String| match collator.compare(&left, &right) {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    })
}

/// Returns where a text may be divided, as offsets in UTF-16 code units that begin with 0.
///
/// Whether a part is a word is left to the caller: the word types of `icu_segmenter` are those of the part's last character, so
/// a word that ends with a combining mark has none.
fn boundaries(text: String, granularity: String) -> Vec<usize> {
    let ends: Vec<usize> = match granularity.as_str() {
        "word" => WordSegmenter::new_auto(WordBreakInvariantOptions::default()).segment_str(&text).collect(),
        "sentence" => {
            SentenceSegmenter::new(SentenceBreakInvariantOptions::default()).segment_str(&text).collect()
        }
        _ => GraphemeClusterSegmenter::new().segment_str(&text).collect(),
    };
    let (mut from, mut units) = (0, 0);
    ends.into_iter()
        .map(|end| {
            units += text[from..end].encode_utf16().count();
            from = end;
            units
        })
        .collect()
}

fn parse(ctx: &Ctx<'_>, locale: &str) -> Result<Locale> {
    Locale::try_from_str(locale)
        .map_err(|_| Exception::throw_range(ctx, &format!("Incorrect locale information provided: {locale}")))
}
