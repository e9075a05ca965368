//! Reading of JSON with lone surrogates (D-017): `"\ud800"` without its second half, as `JSON.stringify` writes an
//! emoji that was cut in two. This is not Unicode text; it is read like JavaScript's `toWellFormed` does: each lone
//! surrogate becomes U+FFFD.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// `\uXXXX`
const ESCAPE: usize = 6;
const REPLACED: &[u8; ESCAPE] = br"\ufffd";

/// Parses JSON. Only text that does not parse is searched for lone surrogates.
///
/// # Errors
/// Text that is not JSON, or does not fit.
pub fn read_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(text).or_else(|error| match well_formed(text) {
        Some(text) => serde_json::from_slice(&text),
        None => Err(error),
    })
}

/// The levels of lists and objects within each other that a text can have.
pub const MOST_LEVELS: usize = 127;

/// Returns what a text is that [`read_json`] did not read, after "The body is": where it was to be an object, it can be
/// JSON of another kind.
pub fn what_it_is(error: &serde_json::Error) -> String {
    match is_too_deep(error) {
        true => format!("JSON with more than {MOST_LEVELS} levels of lists and objects"),
        false if error.is_data() => "not a JSON object".to_owned(),
        false => "not JSON".to_owned(),
    }
}

/// Returns whether a text has more levels than [`MOST_LEVELS`].
pub fn is_too_deep(error: &serde_json::Error) -> bool {
    // The kind of an error is only in its text.
    error.is_syntax() && error.to_string().starts_with("recursion limit exceeded")
}

/// Replaces each escape of a lone surrogate; `None` if there is none.
pub fn well_formed(text: &[u8]) -> Option<Vec<u8>> {
    let mut mended: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(next) = text.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\\')) {
        at += next;
        at += match (half_at(text, at), half_at(text, at + ESCAPE)) {
            (Some(Half::High), Some(Half::Low)) => 2 * ESCAPE,
            (Some(_), _) => {
                // It has the length of what it replaces, so that positions after it do not change.
                let mended = mended.get_or_insert_with(|| text.to_vec());
                mended.iter_mut().skip(at).zip(REPLACED).for_each(|(byte, replaced)| *byte = *replaced);
                ESCAPE
            }
            // The backslash and the escaped character, which can be a backslash.
            (None, _) => 2,
        };
    }
    mended
}

/// A JSON string that is used as a key: lone surrogates in it are told apart ([`distinct`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyText(pub String);

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = raw.get().as_bytes();
        if let Some(text) = distinct(text) {
            return Ok(Self(text));
        }
        let text: String = serde_json::from_slice(text).map_err(Error::custom)?;
        Ok(Self(if text.contains(char::REPLACEMENT_CHARACTER) { told_from_halves(&text) } else { text }))
    }
}

/// Returns a text that tells lone surrogates apart, for a JSON string that has any: each becomes U+FFFD and its four digits.
/// [`read_json`] reads them all as the same character, so that keys of such texts would be equal.
pub fn distinct(string: &[u8]) -> Option<String> {
    let inner = string.strip_prefix(b"\"")?;
    if !inner.contains(&b'\\') {
        return None;
    }
    let inner = inner.strip_suffix(b"\"").unwrap_or(inner);
    let mended = well_formed(inner)?;
    let (mut text, mut begin, mut at) = (String::with_capacity(string.len()), 0, 0);
    while at < inner.len() {
        if mended[at..].starts_with(REPLACED) && !inner[at..].starts_with(REPLACED) {
            text.push_str(&told_from_halves(&unescaped(&inner[begin..at])?));
            text.push(char::REPLACEMENT_CHARACTER);
            text.extend(
                inner[at + 2..at + ESCAPE].iter().map(|digit| char::from(digit.to_ascii_lowercase())),
            );
            at += ESCAPE;
            begin = at;
        } else {
            at += if inner[at] == b'\\' { 2 } else { 1 };
        }
    }
    text.push_str(&told_from_halves(&unescaped(&inner[begin..])?));
    Some(text)
}

/// Returns the text of a part of a JSON string.
fn unescaped(part: &[u8]) -> Option<String> {
    serde_json::from_slice(&[b"\"", part, b"\""].concat()).ok()
}

/// Returns a text in which no U+FFFD is followed by the digits of a surrogate: `fffd` is inserted after such a one, and
/// after one that is followed by `fffd`.
fn told_from_halves(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    for (at, part) in text.split(char::REPLACEMENT_CHARACTER).enumerate() {
        if at > 0 {
            told.push(char::REPLACEMENT_CHARACTER);
            let digits = part.get(..4).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
            let code = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
            if matches!(code, Some(0xd800..=0xdfff | 0xfffd)) {
                told.push_str("fffd");
            }
        }
        told.push_str(part);
    }
    told
}

#[derive(PartialEq)]
enum Half {
    High,
    Low,
}

/// Returns the surrogate whose escape begins here.
fn half_at(text: &[u8], at: usize) -> Option<Half> {
    let digits = text.get(at..at + ESCAPE)?.strip_prefix(br"\u")?;
    let code = digits.iter().try_fold(0, |code, digit| Some(code << 4 | char::from(*digit).to_digit(16)?))?;
    match code {
        0xd800..=0xdbff => Some(Half::High),
        0xdc00..=0xdfff => Some(Half::Low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn mended(text: &str) -> Option<String> {
        well_formed(text.as_bytes()).map(|text| String::from_utf8(text).expect("text stays text"))
    }

    #[test]
    fn a_text_of_too_many_levels_is_told_from_one_that_is_not_json() {
        let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        let read = |text: &str| read_json::<Value>(text.as_bytes()).map_err(|error| what_it_is(&error));
        assert!(read(&deep(MOST_LEVELS)).is_ok());
        let why = read(&deep(MOST_LEVELS + 1)).unwrap_err();
        assert_eq!(why, "JSON with more than 127 levels of lists and objects");
        assert_eq!(read("[").unwrap_err(), "not JSON");
        let error = read_json::<crate::JsonObject>(b"[1]").unwrap_err();
        assert_eq!(what_it_is(&error), "not a JSON object");
    }

    #[test]
    fn a_lone_half_is_replaced_and_nothing_else() {
        for (text, becomes) in [
            (r#""\ud800""#, r#""\ufffd""#),
            (r#""\uDFFF x""#, r#""\ufffd x""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud800\u0041""#, r#""\ufffd\u0041""#),
            (r#""\\\ud800\\ud800""#, r#""\\\ufffd\\ud800""#),
            (r#"{"\ud800":1}"#, r#"{"\ufffd":1}"#),
        ] {
            assert_eq!(mended(text).as_deref(), Some(becomes), "{text}");
            assert!(read_json::<Value>(text.as_bytes()).is_ok(), "{text}");
        }
        for text in [
            r#""\ud83d\ude00""#,
            r#""\\ud800""#,
            r#""\\\\ud800""#,
            r#""\u00e9""#,
            r#""\ud8""#,
            r"\",
            r"\u",
            "😀",
        ] {
            assert_eq!(mended(text), None, "{text}");
        }
        assert!(read_json::<Value>(br#"{"a":"\ud800""#).is_err(), "what else is wrong stays wrong");
    }

    #[test]
    fn lone_halves_are_told_apart() {
        for (text, expected) in [
            (r#""\ud800""#, Some("\u{fffd}d800")),
            (r#""a\uDFFFb\ud801""#, Some("a\u{fffd}dfffb\u{fffd}d801")),
            (r#""\ufffd\ud83d""#, Some("\u{fffd}\u{fffd}d83d")),
            (r#""\ud83d\ude00""#, None),
            (r#""plain""#, None),
        ] {
            assert_eq!(distinct(text.as_bytes()).as_deref(), expected, "{text}");
        }
        assert_eq!(distinct(br#""\\\ud800""#).as_deref(), Some("\\\u{fffd}d800"));
        assert_eq!(distinct(br#""\\ud800""#), None, "an escaped backslash");
        assert_eq!(distinct(r#""�fffd\ud800""#.as_bytes()).as_deref(), Some("�fffdfffd\u{fffd}d800"));
        let key = |text: &str| serde_json::from_str::<KeyText>(text).map(|KeyText(text)| text).ok();
        assert_eq!(key(r#""\ufffd d800""#).as_deref(), Some("\u{fffd} d800"));
        assert_eq!(key(r#""a\ud800""#).as_deref(), Some("a\u{fffd}d800"));
        assert_eq!(key(r#" "a\u00e9" "#).as_deref(), Some("aé"));
        assert_eq!([key("5"), key("null"), key("[\"\\ud800\"]")], [None, None, None]);
    }

    /// What a JSON encoder may write for a code unit.
    fn written(unit: u16, way: u8) -> String {
        match (char::from_u32(unit.into()), way) {
            (Some(character), 0) => {
                let quoted = json!(character.to_string()).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
            (_, 1) => format!("\\u{unit:04X}"),
            _ => format!("\\u{unit:04x}"),
        }
    }

    proptest! {
        #[test]
        fn text_is_read_as_javascript_has_it(
            units in proptest::collection::vec(
                (
                    prop_oneof![
                        any::<u16>(), 0xd7f0..0xe010u16, Just(u16::from(b'\\')), Just(u16::from(b'u')), Just(u16::from(b'"')),
                    ],
                    0..3u8,
                ),
                0..20,
            )
        ) {
            let text: String = units.iter().map(|(unit, way)| written(*unit, *way)).collect();
            let units: Vec<u16> = units.into_iter().map(|(unit, _)| unit).collect();
            let read: Value = read_json(format!("[\"{text}\"]").as_bytes()).expect("JSON");
            prop_assert_eq!(read, json!([String::from_utf16_lossy(&units)]));
        }

        #[test]
        fn keys_of_different_texts_differ(texts in proptest::array::uniform2(proptest::collection::vec(
            prop_oneof![Just("\\ud800"), Just("\\udfff"), Just("�"), Just("\\ufffd"), Just("fffd"), Just("d800"), Just("dfff"), Just("x")],
            0..6,
        ))) {
            let texts = texts.map(|parts| format!("\"{}\"", parts.concat()));
            let keys = texts.each_ref().map(|text| serde_json::from_str::<KeyText>(text).map(|key| key.0).ok());
            // The spellings of one text.
            let same = texts[0].replace("\\ufffd", "�") == texts[1].replace("\\ufffd", "�");
            prop_assert_eq!(keys[0] == keys[1], same, "{:?} {:?}", texts, keys);
        }

        #[test]
        fn json_is_never_changed(texts in proptest::collection::vec("(\\\\|\\\\u|ud800|😀|.){0,12}", 0..6)) {
            let plain = json!(texts).to_string();
            let escaped: String = plain.encode_utf16().map(|unit| match unit {
                0x20..0x7f => char::from(unit as u8).to_string(),
                _ => format!("\\u{unit:04x}"),
            }).collect();
            for text in [plain, escaped] {
                prop_assert_eq!(well_formed(text.as_bytes()), None);
                prop_assert_eq!(read_json::<Value>(text.as_bytes()).expect("JSON"), json!(texts));
            }
        }

        #[test]
        fn nothing_panics(text in proptest::collection::vec(any::<u8>(), 0..60), at in 0..60usize) {
            let mut text = text;
            text.splice(at.min(text.len())..at.min(text.len()), *br"\uDc00");
            let _ = well_formed(&text);
        }
    }
}
