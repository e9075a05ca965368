//! The content of a call to a bot: thread, text and callback, in either form. Spec: *Webhook bot-call request body*.

use std::fmt;

use ostler_contract::http::{HeaderMap, header};
use ostler_contract::protocol::surrogates::{KeyText, read_json};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::byte_order_mark;
use crate::reply::Refusal;

/// The maximum length of a thread id, in bytes.
const THREAD_MAX: usize = 1000;

/// The content of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BotCall {
    pub thread: String,
    pub text: String,
    pub callback: Option<String>,
}

impl BotCall {
    /// Parses a call.
    pub fn read(headers: &HeaderMap, query: Option<&str>, body: &[u8]) -> Result<Self, Refusal> {
        let bad = |why: &str| Refusal::Bad(why.to_owned());
        let body = std::str::from_utf8(byte_order_mark::text_of(body))
            .map_err(|_| bad("The body is not UTF-8 text"))?;
        let fields = json_shape(headers, body);
        // A sender with its own body format passes the other values in the URL.
        let thread = match fields.as_ref().and_then(|fields| fields.thread.as_deref()) {
            Some(thread) => read_json(thread.get().as_bytes()).ok().map(|KeyText(thread)| thread),
            None => parameter(query, "thread"),
        };
        let thread = thread.filter(|thread| !thread.trim().is_empty());
        let thread = thread.ok_or_else(|| bad("The call has no thread"))?;
        if thread.len() > THREAD_MAX {
            return Err(Refusal::Bad(format!("The thread exceeds {THREAD_MAX} bytes")));
        }
        let callback = match fields.as_ref().and_then(|fields| fields.callback.as_deref()) {
            Some(callback) => text_of(callback),
            None => parameter(query, "callback"),
        };
        let callback = callback.filter(|callback| !callback.is_empty());
        let text = fields.as_ref().and_then(|fields| text_of(fields.text.as_deref()?));
        let text = text.unwrap_or_else(|| body.to_owned());
        if text.trim().is_empty() {
            return Err(bad("The call has no text"));
        }
        Ok(Self { thread, text, callback })
    }
}

/// The fields of a body that are read, each as JSON text. All others are skipped.
#[derive(Default)]
struct Fields {
    thread: Option<Box<RawValue>>,
    text: Option<Box<RawValue>>,
    callback: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Name {
    Thread,
    Text,
    Callback,
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    /// Of several fields with the same name the last one counts, which a derived implementation would reject.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        while let Some(name) = map.next_key()? {
            match name {
                Name::Thread => fields.thread = Some(map.next_value()?),
                Name::Text => fields.text = Some(map.next_value()?),
                Name::Callback => fields.callback = Some(map.next_value()?),
                Name::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(fields)
    }
}

fn text_of(value: &RawValue) -> Option<String> {
    read_json(value.get().as_bytes()).ok()
}

/// Parses the body's fields, if it is a JSON object with a text. A body of type `text/plain` is the text.
fn json_shape(headers: &HeaderMap, body: &str) -> Option<Fields> {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().to_ascii_lowercase());
    if kind.is_some_and(|kind| kind.trim_ascii_start().starts_with(b"text/")) {
        return None;
    }
    let fields = read_json::<Fields>(body.as_bytes()).ok()?;
    fields.text.as_deref().and_then(text_of)?;
    Some(fields)
}

/// Returns the first query parameter of a name.
fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Option<&str>, query: &str, body: &str) -> Result<BotCall, Refusal> {
        let headers = kind.map(|kind| (header::CONTENT_TYPE, kind.parse().unwrap()));
        BotCall::read(&headers.into_iter().collect(), Some(query), body.as_bytes())
    }

    fn said(thread: &str, text: &str, callback: Option<&str>) -> Result<BotCall, Refusal> {
        let callback = callback.map(str::to_owned);
        Ok(BotCall { thread: thread.to_owned(), text: text.to_owned(), callback })
    }

    fn bad(why: &str) -> Result<BotCall, Refusal> {
        Err(Refusal::Bad(why.to_owned()))
    }

    const JSON: Option<&str> = Some("application/json");

    #[test]
    fn a_json_object_with_a_text_is_the_first_shape() {
        let whole = r#"{"thread":"t1","text":"hello","callback":"https://a.example/x","more":1}"#;
        for kind in [JSON, Some("Application/JSON; charset=utf-8"), Some("application/vnd.x+json"), None] {
            assert_eq!(read(kind, "", whole), said("t1", "hello", Some("https://a.example/x")), "{kind:?}");
        }
        assert_eq!(
            read(JSON, "thread=q&callback=c", r#"{"thread":"t1","text":"x"}"#),
            said("t1", "x", Some("c"))
        );
        assert_eq!(read(JSON, "thread=q", r#"{"text":"x"}"#), said("q", "x", None), "the URL names the rest");
        assert_eq!(read(JSON, "thread=q", r#"{"text":"x","thread":5}"#), bad("The call has no thread"));
        assert_eq!(read(JSON, "", r#"{"text":"x"}"#), bad("The call has no thread"));
        assert_eq!(read(JSON, "", r#"{"thread":"t","text":" "}"#), bad("The call has no text"));
        assert_eq!(
            read(JSON, "thread=q", r#"{"text":"y","a":{"text":"z"},"text":"x","Thread":"t"}"#),
            said("q", "x", None),
            "the last field of a name counts"
        );
        let of_surrogate = |escape: &str| {
            read(JSON, "", &format!(r#"{{"text":"x","n":1E400,"thread":"{escape}"}}"#)).unwrap().thread
        };
        assert_ne!(of_surrogate("\\ud800"), of_surrogate("\\ud801"), "two conversations");
        let long = format!(r#"{{"text":"x","thread":"{}"}}"#, "t".repeat(1001));
        assert_eq!(read(JSON, "", &long), bad("The thread exceeds 1000 bytes"));
    }

    #[test]
    fn any_other_body_is_the_text_whole() {
        let query = "thread=t%201&callback=https%3A%2F%2Fa.example%2Fx&thread=other";
        for body in [
            "hello there",
            "[1]",
            "5",
            "{",
            r#"{"text":5}"#,
            r#"{"thread":"mine"}"#,
            r#"{"msg":"x"} "#,
            "payload=%7B%7D",
        ] {
            assert_eq!(read(JSON, query, body), said("t 1", body, Some("https://a.example/x")), "{body}");
        }
        let json = r#"{"thread":"t1","text":"hello"}"#;
        assert_eq!(read(Some("text/plain"), "thread=q", json), said("q", json, None), "it says it is text");
        assert_eq!(read(None, "thread=q", ""), bad("The call has no text"));
        assert_eq!(read(None, "", "hello"), bad("The call has no thread"));
        assert_eq!(
            BotCall::read(&HeaderMap::new(), Some("thread=t"), b"\xff"),
            bad("The body is not UTF-8 text")
        );
    }

    proptest::proptest! {
        #[test]
        fn no_body_panics(query in ".{0,40}", body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80)) {
            let _ = BotCall::read(&HeaderMap::new(), Some(&query), &body);
        }
    }
}
