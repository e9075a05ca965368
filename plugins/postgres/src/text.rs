//! Texts with U+0000, which the database cannot store, and JSON with it, which its type `jsonb` refuses.
//!
//! U+0000 is stored as U+FFFF and `0`, and U+FFFF in JSON as two of them. U+FFFF is assigned to no character, so other texts are
//! stored as they are. What an earlier version stored has `\u0000`, and is read as before.

use std::borrow::Cow;
use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::database::Param;

/// What U+0000 begins with where it is stored.
const MARK: &str = "\u{ffff}";
/// U+0000 in JSON text as the host writes it.
const ESCAPED: &str = "\\u0000";
/// The bytes that are stored in place of U+0000.
const STORED: &[u8] = "\u{ffff}0".as_bytes();

/// Returns JSON text as it is stored.
pub fn storable(json: String) -> String {
    if !json.contains(ESCAPED) && !json.contains(MARK) {
        return json;
    }
    let mut stored = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(at) = rest.find(['\\', '\u{ffff}']) {
        stored.push_str(&rest[..at]);
        rest = &rest[at..];
        // Every backslash in JSON begins an escape sequence of at least two characters.
        let (taken, instead) = if rest.starts_with(MARK) {
            (MARK.len(), "\u{ffff}\u{ffff}")
        } else if rest.starts_with(ESCAPED) {
            (ESCAPED.len(), "\u{ffff}0")
        } else {
            let two = rest.char_indices().nth(2).map_or(rest.len(), |(at, _)| at);
            (two, &rest[..two])
        };
        stored.push_str(instead);
        rest = &rest[taken..];
    }
    stored.push_str(rest);
    stored
}

/// Returns stored JSON text as the host wrote it.
pub fn original(stored: &str) -> Cow<'_, str> {
    if !stored.contains(MARK) {
        return stored.into();
    }
    let mut json = String::with_capacity(stored.len());
    let mut rest = stored;
    while let Some(at) = rest.find(MARK) {
        json.push_str(&rest[..at]);
        rest = &rest[at + MARK.len()..];
        if let Some(after) = rest.strip_prefix('0') {
            json.push_str(ESCAPED);
            rest = after;
        } else {
            json.push_str(MARK);
            rest = rest.strip_prefix(MARK).unwrap_or(rest);
        }
    }
    json.push_str(rest);
    json.into()
}

/// Returns the values of a statement so that the database accepts every text in them.
pub fn accepted(params: Vec<Param>) -> Vec<Param> {
    params.into_iter().map(|param| Box::new(Accepted(param)) as Param).collect()
}

/// A value whose text the database accepts.
#[derive(Debug)]
struct Accepted(Param);

impl ToSql for Accepted {
    fn to_sql(&self, of: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let begin = out.len();
        let is_null = self.0.to_sql_checked(of, out)?;
        if matches!(is_null, IsNull::No) {
            let written = &out[begin..];
            let instead = match *of {
                Type::TEXT if written.contains(&0) => Some(without_nul(written)),
                Type::TEXT_ARRAY => elements_without_nul(written),
                _ => None,
            };
            if let Some(instead) = instead {
                out.truncate(begin);
                out.extend_from_slice(&instead);
            }
        }
        Ok(is_null)
    }

    fn accepts(_: &Type) -> bool {
        // The value itself is checked when it is written.
        true
    }

    to_sql_checked!();
}

fn without_nul(text: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(text.len() + STORED.len());
    for (at, part) in text.split(|byte| *byte == 0).enumerate() {
        if at > 0 {
            stored.extend_from_slice(STORED);
        }
        stored.extend_from_slice(part);
    }
    stored
}

/// Returns an array with other elements, if one of its elements has U+0000. An array is written with 20 bytes about its one
/// dimension, then with the length and the bytes of each element; the length of null is -1.
fn elements_without_nul(array: &[u8]) -> Option<Vec<u8>> {
    let (mut stored, mut rest) = array.split_at_checked(20).map(|(about, rest)| (about.to_vec(), rest))?;
    let mut is_changed = false;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let taken = usize::try_from(i32::from_be_bytes(*length)).unwrap_or_default();
        let (element, after) = after.split_at_checked(taken)?;
        if element.contains(&0) {
            let element = without_nul(element);
            stored.extend_from_slice(&i32::try_from(element.len()).ok()?.to_be_bytes());
            stored.extend_from_slice(&element);
            is_changed = true;
        } else {
            stored.extend_from_slice(length);
            stored.extend_from_slice(element);
        }
        rest = after;
    }
    is_changed.then_some(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_read_as_it_was_stored_and_has_no_u0000() {
        for value in [
            "plain",
            "a\0b",
            "\0",
            "\0\0",
            "\\u0000",
            "\\\0",
            "\u{ffff}",
            "\u{ffff}0",
            "\u{ffff}\0",
            "\u{ffff}\u{ffff}0",
            "\"\0\"",
            "\\\\u0000",
            "ü\0ü",
        ] {
            let json = serde_json::to_string(&[value]).unwrap_or_default();
            let stored = storable(json.clone());
            let read: Result<[String; 1], _> = serde_json::from_str(&stored);
            assert!(read.is_ok_and(|read| !read[0].contains('\0')), "{value:?} is stored as {stored}");
            assert_eq!(original(&stored), json, "{value:?}");
        }
        assert_eq!(original("[\"\\u0000\"]"), "[\"\\u0000\"]", "as an earlier version stored it");
    }

    #[test]
    fn values_have_no_nul() {
        let written = |param: Param, of: &Type| {
            let mut out = BytesMut::new();
            let [value] = accepted(vec![param]).try_into().unwrap_or_else(|_| panic!("one value"));
            assert!(value.to_sql_checked(of, &mut out).is_ok());
            out.to_vec()
        };
        let alone = written(Box::new("a\0\0b".to_owned()), &Type::TEXT);
        assert_eq!(alone, "a\u{ffff}0\u{ffff}0b".as_bytes());
        let given: Vec<Option<String>> =
            vec![Some("a\0".to_owned()), None, Some(String::new()), Some("b".to_owned())];
        let stored: Vec<Option<String>> =
            vec![Some("a\u{ffff}0".to_owned()), None, Some(String::new()), Some("b".to_owned())];
        let mut wanted = BytesMut::new();
        assert!(stored.to_sql_checked(&Type::TEXT_ARRAY, &mut wanted).is_ok());
        assert_eq!(written(Box::new(given), &Type::TEXT_ARRAY), wanted.to_vec());
        assert_eq!(written(Box::new(vec![0_u8, 1]), &Type::BYTEA), [0, 1]);
    }
}
