//! What holds for every body of a call. The fuzz targets of `fuzz/` look for one for which it does not; the tests apply it to
//! the inputs in `fuzz/corpus`.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ostler_contract::Value;
use ostler_contract::bodies::LONG;
use ostler_contract::budget::VALUE;
use ostler_contract::http::header::HeaderName;
use ostler_contract::http::{HeaderMap, HeaderValue, header};
use ostler_contract::protocol::sent::SentObject;
use ostler_contract::protocol::surrogates::{KeyText, read_json};
use serde_json::value::RawValue;
use url::form_urlencoded;

use crate::automation::{Data, MOST_FIELDS, form, measured};
use crate::byte_order_mark::without_mark;
use crate::cloudevents::{Event, JSON};

/// An event of either mode is a JSON object with the required attributes, it has the body as its data, it is not much longer
/// than the call, and its JSON form is the same event in structured mode. The input is a line for each header, an empty
/// line, and a body.
pub fn cloudevents(data: &[u8]) {
    let Some((headers, body)) = call(data) else { return };
    let Ok(event) = Event::read(&headers, &body) else { return };
    let fields: HashMap<String, Box<RawValue>> = match read_json(&event.json) {
        Ok(fields) => fields,
        Err(error) => panic!("an event is no object: {error}"),
    };
    let text = |name: &str| fields.get(name).map(|raw| raw.get());
    let key = |name: &str| serde_json::from_str(text(name)?).ok().map(|KeyText(text)| text);
    assert_eq!([key("source"), key("id")], event.id.clone().map(Some));
    assert_eq!(key("specversion").as_deref(), Some("1.0"));
    assert!(["source", "id", "type"].into_iter().all(|name| key(name).is_some_and(|text| !text.is_empty())));

    let structured = HeaderMap::from_iter([(header::CONTENT_TYPE, JSON)]);
    assert_eq!(Event::read(&structured, &event.json).ok().as_ref(), Some(&event));

    // A character of a header has at most six in JSON, and base64 less than twice the bytes.
    let most = headers.iter().map(|(name, value)| name.as_str().len() + 6 * value.len() + 6).sum::<usize>();
    assert!(event.json.len() <= most + 6 * body.len() + 64, "a long event");
    if event.json == without_mark(&body) {
        return;
    }
    let body = match text("data_base64") {
        Some(_) => body,
        None => without_mark(&body),
    };
    match (text("data"), text("data_base64")) {
        (None, None) => assert!(body.is_empty()),
        (None, Some(encoded)) => {
            let encoded: String = serde_json::from_str(encoded).unwrap_or_default();
            assert_eq!(STANDARD.decode(encoded).ok().as_deref(), Some(&*body));
        }
        (Some(data), None) => {
            let is_text = serde_json::from_str::<String>(data).is_ok_and(|text| text.as_bytes() == &*body);
            assert!(is_text || data.as_bytes() == body.trim_ascii(), "other data than the body");
        }
        (Some(_), Some(_)) => panic!("an event has its data twice"),
    }
}

/// Returns the headers and the body of an input, if it can be a call.
fn call(data: &[u8]) -> Option<(HeaderMap, Bytes)> {
    let (mut headers, mut rest) = (HeaderMap::new(), data);
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        if line.is_empty() {
            break;
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        headers.append(name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?);
    }
    Some((headers, Bytes::copy_from_slice(rest)))
}

/// A form has the last value of each field, or is the object in `payload`; its fields have at most the memory that is charged
/// for them. A body that is encoded as `payload` is the object that is read of it.
pub fn forms(data: &[u8]) {
    let fields = |body: &[u8]| match form(body) {
        Ok(Data::Fields(object)) => Ok(object),
        Ok(Data::Text(text)) => panic!("{} bytes are long", text.len()),
        Err(why) => Err(why),
    };
    if data.len() >= LONG / 4 {
        return;
    }
    let Ok(object) = fields(data) else {
        assert!(data.iter().filter(|byte| **byte == b'&').count() >= MOST_FIELDS, "few fields are refused");
        return;
    };
    // The number of fields is limited, and not charged.
    let separators = data.iter().filter(|byte| **byte == b'&').count();
    let charged = measured(data, true).1 + separators * VALUE;
    assert!(size_of_fields(&object) <= charged, "{charged} bytes are charged");

    let pairs: Vec<(String, String)> = form_urlencoded::parse(data).into_owned().collect();
    let last = |name: &String| pairs.iter().rev().find(|(other, _)| other == name);
    let carried = match pairs.as_slice() {
        [first, rest @ ..] if first.0 == "payload" && rest.iter().all(|(name, _)| name == "payload") => {
            pairs.last().and_then(|(_, payload)| SentObject::read(payload.as_bytes()).ok())
        }
        _ => None,
    };
    match carried {
        Some(carried) => assert_eq!(*object, carried),
        None => {
            assert!(object.literals.is_empty());
            assert!(pairs.iter().all(|(name, _)| object.fields.contains_key(name)));
            for (name, value) in &object.fields {
                assert_eq!(last(name).map(|(_, value)| value.as_str()), value.as_str());
            }
            // Each byte that is not UTF-8 becomes a character of three.
            let length: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
            assert!(length <= 3 * data.len());
            let again = form_urlencoded::Serializer::new(String::new()).extend_pairs(&pairs).finish();
            assert_eq!(fields(again.as_bytes()).ok().as_ref(), Some(&object), "{again}");
        }
    }
    if let (Ok(text), Ok(object)) = (std::str::from_utf8(data), SentObject::read(data)) {
        let body = form_urlencoded::Serializer::new(String::new()).append_pair("payload", text).finish();
        assert_eq!(fields(body.as_bytes()).ok().as_deref(), Some(&object), "{body}");
    }
}

/// Returns at least the memory of the values and names of an object.
fn size_of_fields(object: &SentObject) -> usize {
    fn size(value: &Value) -> usize {
        size_of::<Value>()
            + match value {
                Value::String(text) => text.len(),
                Value::Array(entries) => entries.iter().map(size).sum(),
                Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value)).sum(),
                _ => 0,
            }
    }
    object.fields.iter().map(|(name, value)| name.len() + size(value)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies a law to the inputs of its fuzz target.
    fn hold(target: &str, law: fn(&[u8])) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let inputs: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{} is empty", folder.display());
        for input in inputs {
            law(&std::fs::read(input).unwrap());
        }
    }

    #[test]
    fn cloudevents_hold() {
        hold("cloudevents", cloudevents);
    }

    #[test]
    fn forms_hold() {
        hold("forms", forms);
    }
}
