//! Masks for text of agents that the plugin repeats, because an agent can print its credentials. Everything in errors,
//! notices, reports and the log passes [`Masks`] where it is read from the agent.

use std::sync::Arc;

use ostler_contract::secret::SET;
use ostler_contract::{Secret, Value};

/// A shorter value of a variable is usually a word; masking it would make messages unreadable.
pub const SHORTEST: usize = 8;
/// The same limit for known secrets: from the vault, or from a client.
const SHORTEST_SECRET: usize = 4;
/// The length of a partial secret that is recognized at the edge of truncated text: this, or half of a short one.
const CUT: usize = 8;
/// The maximum length of an escape sequence without its backslashes: `u00e9` or `u{1f600}`.
const ESCAPE: usize = 8;

/// The masked texts, in the form of [`Plain`].
#[derive(Debug, Clone, Default)]
pub struct Masks(Arc<Secret<Vec<Mask>>>);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Mask {
    text: String,
    /// Whether it is a known secret, and not only a value that can be one.
    secret: bool,
}

impl Masks {
    /// Creates masks of possible and known secrets.
    pub fn new<'a>(
        values: impl IntoIterator<Item = &'a String>,
        secrets: impl IntoIterator<Item = &'a String>,
    ) -> Self {
        Self::default().with_values(values).with(secrets)
    }

    /// Adds secrets.
    pub fn with<'a>(&self, secrets: impl IntoIterator<Item = &'a String>) -> Self {
        self.and(secrets.into_iter().flat_map(|secret| forms(secret, SHORTEST_SECRET)), true)
    }

    /// Adds possible secrets.
    pub fn with_values<'a>(&self, values: impl IntoIterator<Item = &'a String>) -> Self {
        self.and(values.into_iter().flat_map(|value| forms(value, SHORTEST)), false)
    }

    /// Returns only the masks of known secrets, for texts that are not only from an agent.
    pub fn secrets(&self) -> Self {
        Self(Arc::new(Secret::new(self.0.reveal().iter().filter(|mask| mask.secret).cloned().collect())))
    }

    fn and(&self, texts: impl Iterator<Item = String>, secret: bool) -> Self {
        let more = texts.map(|text| Mask { text, secret });
        let mut all: Vec<Mask> = self.0.reveal().iter().cloned().chain(more).collect();
        all.sort();
        all.dedup();
        Self(Arc::new(Secret::new(all)))
    }

    /// Masks a text.
    pub fn hide(&self, text: &str) -> String {
        self.hide_with(text, |_| None, |_, _| None)
    }

    /// Masks the beginning of a text, whose end can contain the beginning of a secret.
    pub fn hide_in_beginning(&self, text: &str) -> String {
        self.hide_with(text, |_| None, |plain, mask| plain.ends_within(mask))
    }

    /// Masks a part of a text, whose beginning can contain the end of a secret, and whose end the beginning of one.
    pub fn hide_in_part(&self, text: &str) -> String {
        let rests = |plain: &Plain<'_>| {
            self.0.reveal().iter().filter_map(|mask| plain.begins_within(&mask.text)).max()
        };
        self.hide_with(text, rests, |plain, mask| plain.ends_within(mask))
    }

    /// Masks a text, its beginning up to a position, and its end from a position.
    fn hide_with(
        &self,
        text: &str,
        begins: impl Fn(&Plain<'_>) -> Option<usize>,
        ends: impl Fn(&Plain<'_>, &str) -> Option<usize>,
    ) -> String {
        let plain = Plain::of(text);
        let mut found: Vec<(usize, usize)> = begins(&plain).map(|end| (0, end)).into_iter().collect();
        for Mask { text: mask, .. } in self.0.reveal() {
            found.extend(plain.places(mask));
            found.extend(ends(&plain, mask).map(|from| (from, text.len())));
        }
        found.sort_unstable();
        let (mut shown, mut at, mut hidden) = (String::with_capacity(text.len()), 0, 0);
        for (from, to) in found {
            if from >= hidden {
                shown.push_str(&text[at..from]);
                shown.push_str(SET);
            }
            hidden = hidden.max(to);
            at = hidden;
        }
        shown.push_str(&text[at..]);
        shown
    }

    /// Masks every text in a value.
    pub fn hide_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => self.hide(&text).into(),
            Value::Array(items) => items.into_iter().map(|item| self.hide_value(item)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(name, value)| (self.hide(&name), self.hide_value(value))).collect()
            }
            other => other,
        }
    }
}

/// Returns the searched parts of a value: the whole value, and each line of a value with several lines, such as a PEM
/// key.
fn forms(value: &str, shortest: usize) -> Vec<String> {
    // A short line is not masked alone.
    let lines = value.lines().map(|line| (line, shortest.max(SHORTEST)));
    let texts =
        std::iter::once((value, shortest)).chain(lines).map(|(text, shortest)| (text.trim(), shortest));
    let long = texts.filter(|(text, shortest)| text.chars().count() >= *shortest);
    long.map(|(text, _)| Plain::of(text).text).filter(|text| !text.is_empty()).collect()
}

/// A text with resolved escape sequences, also those of JSON within JSON. Programs print a value in many forms, which
/// all have the same plain text.
struct Plain<'a> {
    whole: &'a str,
    text: String,
    /// The origin of each byte of the plain text, and the end; `None` if it is the text itself.
    from: Option<Vec<usize>>,
}

impl<'a> Plain<'a> {
    fn of(whole: &'a str) -> Self {
        if !whole.contains('\\') {
            return Self { whole, text: whole.to_owned(), from: None };
        }
        let (mut text, mut from) = (String::with_capacity(whole.len()), Vec::with_capacity(whole.len() + 1));
        let mut at = 0;
        while let Some((c, length)) = next(&whole[at..]) {
            text.push(c);
            from.resize(text.len(), at);
            at += length;
        }
        from.push(whole.len());
        Self { whole, text, from: Some(from) }
    }

    /// Converts to a position in the whole text.
    fn place(&self, at: usize) -> usize {
        self.from.as_ref().map_or(at, |from| from[at])
    }

    /// Finds a text.
    fn places(&self, mask: &str) -> impl Iterator<Item = (usize, usize)> {
        self.text
            .match_indices(mask)
            .map(|(at, found)| (self.place(at), self.place(at + found.len())))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Returns up to where it begins with the end of a text. It can begin with the rest of an escape sequence.
    fn begins_within(&self, mask: &str) -> Option<usize> {
        let rest_of_escape =
            self.text.bytes().take(ESCAPE).take_while(|b| b.is_ascii_hexdigit() || b"u{}".contains(b));
        let least = least(mask);
        let skipped = |skip: usize| {
            let begun = &self.text[skip..];
            let rests = mask.char_indices().skip(1).map(|(at, _)| &mask[at..]);
            let mut rests = rests.take_while(|rest| rest.chars().count() >= least);
            rests.find(|rest| begun.starts_with(rest)).map(|rest| self.place(skip + rest.len()))
        };
        (0..=rest_of_escape.count()).find_map(skipped)
    }

    /// Returns from where on it ends with the beginning of a text. It can end with the beginning of an escape sequence.
    fn ends_within(&self, mask: &str) -> Option<usize> {
        let begun = |plain: &Plain<'_>| {
            let least = least(mask);
            let ends = mask.char_indices().enumerate().skip(least).map(|(_, (at, _))| &mask[..at]);
            let longest = ends.filter(|begin| plain.text.ends_with(begin)).last()?;
            Some(plain.place(plain.text.len() - longest.len()))
        };
        let escape = self.whole.rfind('\\').filter(|at| self.whole.len() - at <= ESCAPE);
        let complete = escape.map(|at| Plain::of(self.whole[..at].trim_end_matches('\\')));
        begun(self).into_iter().chain(complete.and_then(|plain| begun(&plain))).min()
    }
}

/// Returns how many characters of a truncated text are recognized.
fn least(mask: &str) -> usize {
    mask.chars().count().div_ceil(2).clamp(SHORTEST_SECRET, CUT)
}

/// Returns the first character of a text after its backslashes, and the length of both.
fn next(text: &str) -> Option<(char, usize)> {
    let rest = text.trim_start_matches('\\');
    let slashes = text.len() - rest.len();
    let first = rest.chars().next()?;
    let plain = Some((first, slashes + first.len_utf8()));
    if slashes == 0 {
        return plain;
    }
    let short = |c| Some((c, slashes + 1));
    match first {
        'n' => short('\n'),
        'r' => short('\r'),
        't' => short('\t'),
        'b' => short('\u{8}'),
        'f' => short('\u{c}'),
        'x' => code(rest.get(1..3)).and_then(char::from_u32).map(|c| (c, slashes + 3)).or(plain),
        'u' => numbered(rest).map(|(c, length)| (c, slashes + length)).or(plain),
        _ => plain,
    }
}

/// Returns the character of `u00e9`, `ud83d\ude00` or `u{e9}`, and the length of the sequence.
fn numbered(text: &str) -> Option<(char, usize)> {
    if let Some(rest) = text.strip_prefix("u{") {
        let end = rest.find('}')?;
        return Some((char::from_u32(code(rest.get(..end))?)?, end + 3));
    }
    let high = code(text.get(1..5))?;
    if let Some(c) = char::from_u32(high) {
        return Some((c, 5));
    }
    let after = &text[5..];
    let low = after.trim_start_matches('\\');
    let units = [u16::try_from(high).ok()?, u16::try_from(code(low.strip_prefix('u')?.get(..4))?).ok()?];
    let c = char::decode_utf16(units).next()?.ok()?;
    Some((c, 5 + after.len() - low.len() + 5))
}

fn code(digits: Option<&str>) -> Option<u32> {
    digits
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn no_part_of_a_secret_is_left() {
        let values = own(&["sk-live-1", "sk-live-12", "trace", "-----BEGIN-----\nabcdefgh\n", "with\"quote"]);
        let secrets = own(&["pin4", "abc"]);
        let masks = Masks::new(&values, &secrets);
        assert_eq!(masks.hide("401 for sk-live-12 and sk-live-1, pin4"), "401 for <set> and <set>, <set>");
        assert_eq!(masks.hide("line: abcdefgh; trace abc"), "line: <set>; trace abc");
        assert_eq!(masks.hide(r#"{"key":"with\"quote"}"#), r#"{"key":"<set>"}"#);
        assert_eq!(masks.hide_in_part("-live-12 is wrong"), "<set> is wrong");
        assert_eq!(masks.hide_in_part("live is sk-live-1"), "live is <set>");
        let value = serde_json::json!({ "a": ["sk-live-1", 1], "pin4": null });
        assert_eq!(masks.hide_value(value), serde_json::json!({ "a": ["<set>", 1], "<set>": null }));
        let lent = masks.with(&own(&["tok7"]));
        assert_eq!(
            (lent.hide("tok7 pin4"), masks.hide("tok7")),
            ("<set> <set>".to_owned(), "tok7".to_owned())
        );
        assert_eq!(masks.secrets().hide("pin4 sk-live-1"), "<set> sk-live-1");
        assert!(!format!("{masks:?}").contains("live"));
    }

    #[test]
    fn a_secret_is_recognized_however_it_is_escaped() {
        let secrets = own(&["a&b/c\"d\\n\u{e9}\u{1f600}<end>", "line one\nline two"]);
        let masks = Masks::new(&[], &secrets);
        let json = Value::from(secrets[0].as_str()).to_string();
        let nested = Value::from(json.as_str()).to_string();
        let thrice = Value::from(nested.as_str()).to_string();
        for text in [&secrets[0], &json, &nested, &thrice, &format!("{:?}", secrets[0])] {
            let shown = masks.hide(&format!("no {text}, sorry"));
            assert!(
                shown.contains("<set>") && shown.starts_with("no ") && shown.ends_with(", sorry"),
                "{shown}"
            );
            assert!(!shown.contains("end") && !shown.contains("a&b"), "{shown}");
        }
        for text in [
            r#"{"key":"a\u0026b\/c\"d\\n\u00E9\uD83D\ude00\u003cend\u003e","b":1}"#,
            r#"{"key":"a\\u0026b\\/c\\\"d\\\\n\\u00e9\\ud83d\\ude00\\u003Cend\\u003E","b":1}"#,
            r#"{"key":"a&b/c\"d\\n\u{e9}\u{1f600}<end>","b":1}"#,
        ] {
            let shown = masks.hide(text);
            assert!(shown.starts_with("{\"key\":\"<set>") && shown.ends_with(",\"b\":1}"), "{shown}");
            assert!(!shown.contains("end"), "{shown}");
        }
        assert_eq!(masks.hide(r#"{"t":"line one\nline two"}"#), r#"{"t":"<set>"}"#);
        // What looks like an escape sequence and is none stays as it is.
        for text in [r"C:\new\u12\x", r"\", r"a\u{zz}b", r"\ud800 \ud83dx", "\\\u{e9}"] {
            assert_eq!(masks.hide(text), text);
        }
    }

    #[test]
    fn a_text_that_was_cut_has_no_part_of_a_secret_at_its_ends() {
        let secrets = own(&["sk-ant-0123456789", "pass&words", "tok7"]);
        let masks = Masks::new(&[], &secrets);
        for (text, shown) in [
            ("wrong: sk-ant-01", "wrong: <set>"),
            ("wrong: sk-ant-012345678", "wrong: <set>"),
            ("wrong: sk-ant-0123456789", "wrong: <set>"),
            ("wrong: sk-ant-", "wrong: sk-ant-"),
            ("pass&", "<set>"),
            (r#"{"key":"pass\u0026w"#, r#"{"key":"<set>"#),
            (r#"{"key":"pass\u0026w\u00"#, r#"{"key":"<set>"#),
            ("tok", "tok"),
        ] {
            assert_eq!(masks.hide_in_beginning(text), shown);
            assert_eq!(masks.hide_in_part(text), shown);
        }
        assert_eq!(masks.hide("wrong: sk-ant-01"), "wrong: sk-ant-01");
        assert_eq!(masks.hide_in_part("23456789 and sk-ant-0123"), "<set> and <set>");
        assert_eq!(masks.hide_in_part("u0026words is wrong"), "<set> is wrong");
        assert_eq!(masks.hide_in_part("0026words is wrong"), "<set> is wrong");
    }
}
