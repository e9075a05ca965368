//! Bodies of JSON that are no objects, which some senders send: the fields of a list are its positions, `{{event.0.type}}`, and
//! any other value is the field `value`. The text of the values stays as it was sent. A text that is no JSON, such as XML, is the
//! field `text`.

use std::fmt::Write as _;

use ostler_contract::json;
use serde_json::value::RawValue;

/// The maximum number of entries of a list.
pub(crate) const MOST: usize = 10_000;
/// The memory that an entry uses beside its text: its place, its name and what separates them.
const ENTRY: usize = 48;
/// The number of characters of JSON for a byte of text.
const LONGEST_ESCAPE: usize = 6;

/// Returns whether a body is JSON of another kind than an object, judged by its first byte.
pub(crate) fn is_other(body: &[u8]) -> bool {
    body.trim_ascii_start().first().is_some_and(|first| *first != b'{')
}

/// Returns the memory that [`as_object`] uses for a body, in bytes.
pub(crate) fn measured(body: &[u8], is_text: bool) -> usize {
    let most = body.iter().filter(|byte| **byte == b',').take(MOST).count() + 1;
    let text = if is_text { LONGEST_ESCAPE * body.len() } else { body.len() };
    text + most * ENTRY
}

/// Returns the text of an object with the value of a body, or with the body itself if it may be text.
///
/// # Errors
/// What the body is, after "The body is".
pub(crate) fn as_object(body: &[u8], is_text: bool) -> Result<String, String> {
    let not_json = |_| "not JSON".to_owned();
    if !body.trim_ascii_start().starts_with(b"[") {
        return match serde_json::from_slice::<&RawValue>(body) {
            Ok(value) => Ok(format!("{{\"value\":{value}}}")),
            Err(_) if is_text => {
                let text = std::str::from_utf8(body).map_err(|_| "not UTF-8 text".to_owned())?;
                Ok(json!({ "text": text }).to_string())
            }
            Err(error) => Err(not_json(error)),
        };
    }
    let entries: Vec<&RawValue> = serde_json::from_slice(body).map_err(not_json)?;
    if entries.len() > MOST {
        return Err(format!("a list of {} entries; the limit is {MOST}", entries.len()));
    }
    let mut object = String::with_capacity(measured(body, false));
    object.push('{');
    for (at, entry) in entries.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(object, "{comma}\"{at}\":{entry}");
    }
    object.push('}');
    Ok(object)
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
        assert_eq!(as_object(b"<\xff", true), Err("not UTF-8 text".to_owned()));
        assert_eq!(
            as_object(long.as_bytes(), false),
            Err("a list of 10001 entries; the limit is 10000".to_owned())
        );
    }
}
