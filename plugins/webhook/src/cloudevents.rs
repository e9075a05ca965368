//! CloudEvents over HTTP, for endpoints with `format: cloudevents`. An event is a JSON body, or a body of any kind and
//! `ce-` headers; what is fired is the JSON form of either.
//! <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md>
//! <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/http-webhook.md>

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ostler_contract::http::{self, HeaderMap, HeaderValue, Response, StatusCode, header};
use ostler_contract::protocol::surrogates::{KeyText, read_json};
use ostler_contract::{JsonObject, Value, json};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::byte_order_mark::{text_of, without_mark};
use crate::endpoint::Endpoint;
use crate::extras::Limit;
use crate::reply::Refusal;

/// The maximum size of a body: the specification requires intermediaries to forward events of 64 KiB.
pub(crate) const BODY_LIMIT: usize = 1024 * 1024;
/// The JSON form of one event.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/cloudevents+json");
/// The prefix of these media types.
const MEDIA_TYPE: &str = "application/cloudevents";
/// The version of the specification.
const VERSION: &str = "1.0";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its JSON form.
    pub json: Bytes,
    /// `source` and `id`, which together identify it.
    pub id: [String; 2],
}

/// The required attributes.
#[derive(Deserialize)]
struct Attributes {
    specversion: String,
    id: KeyText,
    source: KeyText,
    // A text that is not well-formed would make all of them lose their surrogates.
    r#type: KeyText,
}

impl Event {
    /// Reads a call.
    ///
    /// # Errors
    /// Why it is not an event.
    pub fn read(headers: &HeaderMap, body: &Bytes) -> Result<Self, Refusal> {
        let text = without_mark(body);
        let kind = headers.get(header::CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap_or_default());
        let media = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let json = match media.as_bytes() == JSON.as_bytes() {
            true => text,
            false if media.starts_with(MEDIA_TYPE) => {
                return Err(Refusal::NotUnderstood(format!(
                    "{media} is not supported; send single events as application/cloudevents+json or in binary mode"
                )));
            }
            false => binary(headers, kind, &media, body)?.into(),
        };
        let attributes: Attributes = read_json(&json)
            .ok()
            // serde reads a list as the fields of a struct.
            .filter(|_| json.trim_ascii_start().starts_with(b"{"))
            .ok_or_else(|| bad("not a CloudEvent with the attributes specversion, id, source and type"))?;
        let Attributes { specversion, id: KeyText(id), source: KeyText(source), r#type: KeyText(kind) } =
            attributes;
        if specversion != VERSION {
            return Err(bad("a CloudEvent of another version than 1.0"));
        }
        if [&id, &source, &kind].into_iter().any(String::is_empty) {
            return Err(bad("a CloudEvent with an empty id, source or type"));
        }
        Ok(Self { json, id: [source, id] })
    }
}

fn bad(what: &str) -> Refusal {
    Refusal::Bad(format!("The call is {what}"))
}

/// The JSON form of an event whose attributes are headers.
fn binary(headers: &HeaderMap, kind: &str, media: &str, body: &[u8]) -> Result<String, Refusal> {
    let mut event = JsonObject::new();
    for name in headers.keys() {
        let Some(attribute) = name.as_str().strip_prefix("ce-") else { continue };
        let good = !attribute.is_empty() && attribute.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let mut values = headers.get_all(name).iter();
        let value = values.next().filter(|_| values.next().is_none());
        let value = value.and_then(|value| decoded(value.as_bytes()));
        match value {
            Some(value) if good && !["data", "datacontenttype"].contains(&attribute) => {
                event.insert(attribute.to_owned(), value.into());
            }
            _ => return Err(bad(&format!("not a CloudEvent: the header {name} is invalid"))),
        }
    }
    if !kind.is_empty() {
        event.insert("datacontenttype".to_owned(), kind.into());
    }
    let json = media.is_empty() || media.ends_with("/json") || media.ends_with("+json");
    let is_text = json || media.starts_with("text/") || media.ends_with("xml");
    let text = if is_text { text_of(body) } else { body };
    if text.is_empty() {
        return Ok(Value::Object(event).to_string());
    }
    if json {
        read_json::<IgnoredAny>(text).map_err(|_| Refusal::Bad("The body is not JSON".to_owned()))?;
        let data = std::str::from_utf8(text).map_err(|_| bad("not UTF-8 text"))?;
        let mut event = Value::Object(event).to_string();
        event.pop();
        let comma = if event.len() > 1 { "," } else { "" };
        return Ok(format!("{event}{comma}\"data\":{data}}}"));
    }
    match std::str::from_utf8(text) {
        Ok(text) if is_text => {
            event.insert("data".to_owned(), text.into());
        }
        _ => {
            event.insert("data_base64".to_owned(), STANDARD.encode(body).into());
        }
    }
    Ok(Value::Object(event).to_string())
}

/// Returns the text of a header without quotes, percent-decoded once.
fn decoded(value: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let quoted = value.len() > 1 && value.starts_with(b"\"") && value.ends_with(b"\"");
    let mut rest = if quoted { &value[1..value.len() - 1] } else { value };
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'\\' if quoted => {
                let (escaped, after) = rest.split_first()?;
                bytes.push(*escaped);
                rest = after;
            }
            first => bytes.push(*first),
        }
    }
    let mut text = Vec::with_capacity(bytes.len());
    let mut rest = bytes.as_slice();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            text.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        let good = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        text.push(u8::from_str_radix(digits, 16).ok().filter(|_| good)?);
        rest = &rest[2..];
    }
    String::from_utf8(text).ok()
}

/// Returns the answer to a validation request of a sender, if the call is one.
pub(crate) fn permission(endpoint: &Endpoint, headers: &HeaderMap) -> Option<Response> {
    let mut origins = headers.get_all("webhook-request-origin").iter();
    let origin = origins.next().filter(|_| origins.next().is_none())?;
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:*".contains(byte);
    if origin.is_empty() || origin.len() > 255 || !origin.as_bytes().iter().all(good) {
        return None;
    }
    let mut response = http::json(StatusCode::OK, &json!({ "endpoint": &*endpoint.id }));
    let rate = endpoint.extras.limit.map_or(HeaderValue::from_static("*"), |limit| per_minute(limit).into());
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
    headers.insert("webhook-allowed-origin", origin.clone());
    headers.insert("webhook-allowed-rate", rate);
    Some(response)
}

/// Returns the calls per minute of a rate limit.
fn per_minute(limit: Limit) -> u64 {
    let calls = u64::try_from(limit.calls).unwrap_or(u64::MAX);
    (calls.saturating_mul(60) / limit.per.as_secs().max(1)).max(1)
}

/// The headers that make any body an event.
pub(crate) fn test_headers(id: &str) -> [(&'static str, String); 4] {
    [
        ("ce-specversion", VERSION.to_owned()),
        ("ce-id", id.to_owned()),
        ("ce-source", "/ostler/webhook/test".to_owned()),
        ("ce-type", "ostler.webhook.test".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ostler_contract::http::header::HeaderName;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let name = |name: &str| HeaderName::try_from(name).unwrap();
        pairs.iter().map(|(key, value)| (name(key), value.parse().unwrap())).collect()
    }

    const BINARY: &[(&str, &str)] = &[
        ("ce-specversion", "1.0"),
        ("ce-type", "com.example.someevent"),
        ("ce-time", "2018-04-05T03:56:24Z"),
        ("ce-id", "1234-1234-1234"),
        ("ce-source", "/mycontext/subcontext"),
    ];

    fn read(more: &[(&str, &str)], body: &[u8]) -> Result<Value, Refusal> {
        let event = Event::read(&headers(&[BINARY, more].concat()), &Bytes::copy_from_slice(body))?;
        assert_eq!(event.id, ["/mycontext/subcontext", "1234-1234-1234"]);
        Ok(serde_json::from_slice(&event.json).unwrap())
    }

    /// The example of the specification, with data.
    #[test]
    fn an_event_in_binary_mode_becomes_its_json_form() {
        let of = |kind: &str, body: &[u8]| {
            let mut event = read(&[("content-type", kind)], body).unwrap();
            assert_eq!(event["type"], "com.example.someevent");
            assert_eq!(event["time"], "2018-04-05T03:56:24Z");
            event.as_object_mut().unwrap().retain(|name, _| name.starts_with("data"));
            event
        };
        let json = "application/json; charset=utf-8";
        assert_eq!(of(json, b"{\"a\":[1]}"), json!({ "datacontenttype": json, "data": { "a": [1] } }));
        assert_eq!(of("application/problem+json", b" 5 ")["data"], 5);
        assert_eq!(of("text/plain", b"hello"), json!({ "datacontenttype": "text/plain", "data": "hello" }));
        assert_eq!(of("application/xml", b"<a/>")["data"], "<a/>");
        let bytes = of("application/octet-stream", b"\xff\x00");
        assert_eq!(bytes, json!({ "datacontenttype": "application/octet-stream", "data_base64": "/wA=" }));
        let text = of("application/octet-stream", b"abc");
        assert_eq!(text, json!({ "datacontenttype": "application/octet-stream", "data_base64": "YWJj" }));
        assert_eq!(of(json, b""), json!({ "datacontenttype": json }));
        assert_eq!(read(&[], b"{}").unwrap()["data"], json!({}), "what says nothing is JSON");
        assert_eq!(read(&[], b"{").unwrap_err(), Refusal::Bad("The body is not JSON".to_owned()));
    }

    /// <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md#3132-http-header-values>
    #[test]
    fn header_values_are_decoded_as_the_specification_says() {
        for (header, text) in [
            ("Euro%20%E2%82%AC%20%F0%9F%98%80", Some("Euro € 😀")),
            ("%e2%82%ac", Some("€")),
            ("a\\b%2520", Some("a\\b%20")),
            ("\"in \\\"quotes\\\"%21\"", Some("in \"quotes\"!")),
            ("\"", Some("\"")),
            ("%C0%A0", None),
            ("%4", None),
            ("%+1", None),
            ("%zz", None),
        ] {
            assert_eq!(decoded(header.as_bytes()).as_deref(), text, "{header}");
        }
        assert_eq!(read(&[("ce-subject", "%E2%82%AC")], b"").unwrap()["subject"], "€");
    }

    #[test]
    fn what_is_not_an_event_is_refused() {
        let kind = |kind: &'static str| [("content-type", kind)];
        for media in
            ["application/cloudevents-batch+json", "application/cloudevents+avro", "Application/CloudEvents"]
        {
            assert!(matches!(read(&kind(media), b"[]"), Err(Refusal::NotUnderstood(_))), "{media}");
        }
        for odd in [
            ("ce-data", "x"),
            ("ce-datacontenttype", "x"),
            ("ce-a_b", "x"),
            ("ce-a", "%"),
            ("ce-id", "again"),
        ] {
            assert!(matches!(read(&[odd], b""), Err(Refusal::Bad(_))), "{odd:?}");
        }
        let structured = |body: Value| {
            let headers = headers(&[("content-type", "application/CloudEvents+json; charset=utf-8")]);
            Event::read(&headers, &body.to_string().into())
        };
        let good = json!({ "specversion": "1.0", "id": "1", "source": "/a", "type": "t", "data": {} });
        let event = structured(good.clone()).unwrap();
        assert_eq!((event.json, event.id), (good.to_string().into(), ["/a".to_owned(), "1".to_owned()]));
        let odd = |id: &str| {
            let body =
                format!(r#"{{"specversion":"1.0","id":"{id}","source":"/a","type":"\ud800","n":1E400}}"#);
            Event::read(&headers(&[("content-type", "application/cloudevents+json")]), &body.into())
                .unwrap()
                .id
        };
        assert_ne!(odd("\\ud800"), odd("\\ud801"), "two deliveries");
        for (field, value) in [
            ("specversion", json!("0.3")),
            ("specversion", json!(1.0)),
            ("id", json!("")),
            ("id", Value::Null),
            ("source", json!("")),
            ("type", json!({})),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            assert!(matches!(structured(bad), Err(Refusal::Bad(_))), "{field}");
        }
        assert!(matches!(structured(json!([good])), Err(Refusal::Bad(_))));
        assert!(matches!(structured(json!(["1.0", "1", "/a", "t"])), Err(Refusal::Bad(_))));
    }

    #[test]
    fn a_limit_is_a_rate() {
        let rate = |calls, seconds| {
            per_minute(Limit { calls, per: Duration::from_secs(seconds), is_unavailable: false })
        };
        assert_eq!([rate(60, 60), rate(2, 1), rate(100, 3600), rate(90, 3600)], [60, 120, 1, 1]);
    }

    proptest::proptest! {
        #[test]
        fn no_call_panics(
            kind in "(application/(json|cloudevents(\\+json)?)|text/plain|[ -~]{0,20})",
            name in "ce-(id|type|[a-z0-9]{1,8})", value in "[ -~]{0,20}", body in proptest::collection::vec(0..=255_u8, 0..40),
        ) {
            let more = [("content-type", kind.trim()), (name.as_str(), value.trim())];
            let body = Bytes::from(body);
            if let Ok(event) = Event::read(&headers(&[BINARY, &more].concat()), &body) {
                proptest::prop_assert!(read_json::<JsonObject>(&event.json).is_ok());
            }
        }
    }
}
