//! Bodies of JSON that are no objects, which some senders send: the fields of a list are its positions, `{{event.0.type}}`, and
//! any other value is the field `value`. The text of the values stays as it was sent. A text that is no JSON, such as XML, is the
//! field `text`.

use std::fmt::{self, Write as _};

use ostler_contract::json;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The maximum number of entries of a list.
pub(crate) const MOST: usize = 10_000;
/// The memory that an entry uses beside its text: its place, its name and what separates them.
const ENTRY: usize = 48;
/// The number of characters of JSON for a byte of text.
const LONGEST_ESCAPE: usize = 6;

/// Returns whether a body can be something else than a JSON object, judged by its first byte.
pub(crate) fn is_other(body: &[u8]) -> bool {
    body.trim_ascii_start().first().is_some_and(|first| *first != b'{')
}

/// Returns the memory that [`as_object`] uses for a body, in bytes.
pub(crate) fn measured(body: &[u8], is_text: bool) -> usize {
    let most = body.iter().filter(|byte| **byte == b',').take(MOST).count() + 1;
    let text = if is_text { LONGEST_ESCAPE * body.len() } else { body.len() };
    // A text grows by doubling.
    2 * (text + most * ENTRY)
}

/// Returns the text of an object with the value of a body, or with the body itself if it may be text.
///
/// # Errors
/// What the body is, after "The body is".
pub(crate) fn as_object(body: &[u8], is_text: bool) -> Result<String, String> {
    let object = match body.trim_ascii_start().first() {
        Some(b'[') => match serde_json::from_slice(body) {
            Ok(List(Some(object))) => Some(object),
            Ok(List(None)) => return Err(format!("a list of more than {MOST} entries")),
            Err(_) => None,
        },
        Some(b'{') => serde_json::from_slice::<&RawValue>(body).ok().map(|object| object.get().to_owned()),
        _ => serde_json::from_slice::<&RawValue>(body).ok().map(|value| format!("{{\"value\":{value}}}")),
    };
    match object {
        Some(object) => Ok(object),
        None if is_text => {
            let text = std::str::from_utf8(body).map_err(|_| "not UTF-8 text".to_owned())?;
            Ok(json!({ "text": text }).to_string())
        }
        None => Err("not JSON".to_owned()),
    }
}

/// The entries of a list as an object; `None` if they are too many, which is known without keeping them.
struct List(Option<String>);

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor)
    }
}

struct ListVisitor;

impl<'de> Visitor<'de> for ListVisitor {
    type Value = List;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<List, A::Error> {
        let mut object = String::from("{");
        for at in 0..MOST {
            let Some(entry) = entries.next_element::<&RawValue>()? else {
                object.push('}');
                return Ok(List(Some(object)));
            };
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(object, "{comma}\"{at}\":{entry}");
        }
        if entries.next_element::<IgnoredAny>()?.is_none() {
            object.push('}');
            return Ok(List(Some(object)));
        }
        while entries.next_element::<IgnoredAny>()?.is_some() {}
        Ok(List(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_its_positions_as_fields() {
        for (body, object) in [
            (r#"[{"a":1.10},"b"]"#, r#"{"0":{"a":1.10},"1":"b"}"#),
            ("[]", "{}"),
            (" [ 1 , [2] ]\n", r#"{"0":1,"1":[2]}"#),
            ("5", r#"{"value":5}"#),
            ("\"text\"", r#"{"value":"text"}"#),
            ("null", r#"{"value":null}"#),
            (r#"["\ud800"]"#, r#"{"0":"\ud800"}"#),
        ] {
            assert!(is_other(body.as_bytes()), "{body}");
            for is_text in [false, true] {
                assert_eq!(as_object(body.as_bytes(), is_text).as_deref(), Ok(object), "{body}");
            }
            assert!(object.len() <= measured(body.as_bytes(), false), "{body}");
        }
        for body in ["[1", "[1] 2", "text", "[1,]", ""] {
            assert_eq!(as_object(body.as_bytes(), false), Err("not JSON".to_owned()), "{body}");
        }
        assert!(!is_other(b" {}") && !is_other(b""));
        let long = format!("[{}0]", "0,".repeat(MOST));
        let xml = "<a b=\"c\"/>\u{1}";
        let object = as_object(xml.as_bytes(), true).unwrap();
        assert_eq!(object, r#"{"text":"<a b=\"c\"/>\u0001"}"#);
        assert!(object.len() <= measured(xml.as_bytes(), true));
        for text in ["[ERROR] disk full", "{ not JSON", "plain"] {
            assert_eq!(as_object(text.as_bytes(), true), Ok(format!("{{\"text\":\"{text}\"}}")));
        }
        assert_eq!(as_object(b" {\"a\":1}", true).as_deref(), Ok(r#"{"a":1}"#));
        let most = format!("[{}0]", "0,".repeat(MOST - 1));
        assert!(as_object(most.as_bytes(), false).is_ok_and(|object| object.ends_with("\"9999\":0}")));
        assert_eq!(as_object(b"<\xff", true), Err("not UTF-8 text".to_owned()));
        assert_eq!(as_object(long.as_bytes(), false), Err("a list of more than 10000 entries".to_owned()));
    }
}
