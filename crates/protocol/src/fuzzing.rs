//! What holds for every input of this crate's readers. The fuzz targets of `fuzz/` look for an input for which it does not;
//! the tests apply it to the inputs in `fuzz/corpus`.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::error::code;
use crate::message::{Id, Message, count_values, encode};
use crate::sent::{SentValue, has_literals, read_sent};
use crate::surrogates::{KeyText, is_too_deep, read_json, well_formed};
use crate::uri::{self, Channel, SessionOf};

/// A frame that is parsed is a JSON object with the same parameters, and encoded it is parsed as the same message. One that
/// is refused is not JSON exactly if the error says so.
pub fn frames(data: &[u8]) {
    let Ok(frame) = std::str::from_utf8(data) else { return };
    // Lists and objects of any depth and numbers of any size are JSON.
    let is_json = read_json::<Box<RawValue>>(data).is_ok();
    let value = read_json::<Value>(data).ok();
    if let Some(value) = &value {
        assert!(values(value) <= count_values(data), "more values than counted");
    }
    let message = match Message::parse(frame) {
        Ok(message) => message,
        Err(bad) => {
            assert!(bad.error.code == code::INVALID_REQUEST || bad.error.code == code::PARSE_ERROR);
            if is_json && value.is_some() {
                assert_eq!(bad.error.code, code::INVALID_REQUEST, "JSON is refused as none: {frame}");
            }
            if let (Some(id), Some(value)) = (&bad.id, &value) {
                assert_eq!(Some(&json!(id)), value.get("id"));
            }
            let answer = encode::error(bad.id.as_ref(), &bad.error);
            assert!(serde_json::from_str::<Value>(&answer).is_ok_and(|answer| answer.is_object()));
            return;
        }
    };
    assert!(is_json && frame.trim_start().starts_with('{'), "what is no object is a message: {frame}");
    if let (Message::Request { params, .. } | Message::Notification { params, .. }, Some(value)) =
        (&message, &value)
    {
        let sent = value.get("params").filter(|params| !params.is_null()).cloned().unwrap_or(json!({}));
        assert_eq!(params.decode::<Value>("x").ok(), Some(sent), "other parameters than {frame} has");
    }
    if let Message::Response { id, outcome: Ok(result) } = &message {
        assert_eq!(encode::sized_result(id, result).ok(), encode::result(id, result).ok());
        assert_eq!(encode::text_length(frame), Value::from(frame).to_string().len());
    }
    let encoded = encode::message(&message);
    let again = Message::parse(&encoded);
    let Ok(again) = again else { panic!("{frame} becomes {encoded}, which is refused") };
    assert_eq!(parts(&again), parts(&message), "{encoded}");
    assert_eq!(encode::message(&again), encoded);
}

/// Returns the number of values in a value.
fn values(value: &Value) -> usize {
    match value {
        Value::Array(entries) => 1 + entries.iter().map(values).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(values).sum::<usize>(),
        _ => 1,
    }
}

/// Returns what a message has, in a form that can be compared.
fn parts(message: &Message) -> (Option<&Id>, Option<&str>, String) {
    match message {
        Message::Request { id, method, params } => (Some(id), Some(method), params.text().to_owned()),
        Message::Notification { method, params } => (None, Some(method), params.text().to_owned()),
        Message::Response { id, outcome } => (Some(id), None, format!("{outcome:?}")),
    }
}

/// The URI that a channel's parts make names the same channel, whatever the case of its scheme; and each text that the host
/// puts into a URI is read from it again. The input is a URI and, in the second line, such a text.
pub fn uris(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (uri, text) = text.split_once('\n').unwrap_or((text, text));
    channel(uri);
    made_of(uri, text);
}

fn channel(text: &str) {
    let channel = Channel::parse(text);
    let scheme = uri::scheme(text);
    assert!(channel == Channel::Other || scheme.is_some(), "a channel without a scheme: {text}");
    let is_session = |session: &str| channel.session() == SessionOf::Id(session);
    let same = match &channel {
        Channel::Root => uri::ROOT.to_owned(),
        Channel::Automations => uri::AUTOMATIONS.to_owned(),
        Channel::Session(id) => {
            assert!(is_session(id) && !id.contains('/'));
            assert_eq!(Channel::parse(&uri::session_alias(id)), channel);
            uri::session("echo", id)
        }
        Channel::DefaultChat(id) => {
            assert!(is_session(id));
            uri::default_chat(&uri::session("echo", id))
        }
        Channel::Annotations(id) => {
            assert!(is_session(id));
            uri::annotations(&uri::session_alias(id))
        }
        Channel::Changeset { session, scope } => {
            assert!(is_session(session) && !scope.is_empty());
            format!("{}/changeset/{scope}", uri::session_alias(session))
        }
        Channel::Worker { session, call } => uri::worker_chat(session, call),
        Channel::AutomationRun(id) => uri::automation_run(id),
        Channel::ResourceWatch(id) => uri::resource_watch(id),
        Channel::Chat(own) | Channel::Terminal(own) => {
            assert_eq!(own, text, "it is named by its own URI");
            own.clone()
        }
        Channel::Plugin { scheme: own } => {
            assert_eq!(Some(own), scheme.as_ref());
            format!("{own}:")
        }
        Channel::Telemetry | Channel::Other => text.to_owned(),
    };
    assert_eq!(Channel::parse(&same), channel, "{text} is spelled {same}");
    let Some((scheme, rest)) = text.split_once(':') else { return };
    let is_exact = matches!(channel, Channel::Root | Channel::Automations | Channel::Terminal(_));
    if !is_exact && !scheme.eq_ignore_ascii_case("ahp-chat") {
        assert_eq!(Channel::parse(&format!("{}:{rest}", scheme.to_ascii_uppercase())), channel, "{text}");
    }
}

fn made_of(id: &str, text: &str) {
    let session = uri::session("echo", id);
    if let Some(read) = uri::session_id(id) {
        assert_eq!(Channel::parse(&uri::session_alias(read)), Channel::Session(read.to_owned()));
    }
    let part = (!id.is_empty() && !id.contains('/')).then_some(id);
    if !id.starts_with('/') {
        assert_eq!(uri::session_id(&session), part);
    }
    assert_eq!(uri::attachment_id(&uri::attachment(id)), part);
    assert_eq!(uri::old_default_chat(&uri::chat(id)), part);
    if part.is_some() {
        assert_eq!(Channel::parse(&uri::default_chat(&session)), Channel::DefaultChat(id.to_owned()));
        assert_eq!(Channel::parse(&uri::annotations(&session)), Channel::Annotations(id.to_owned()));
        assert_eq!(Channel::parse(&uri::chat(id)), Channel::Chat(uri::chat(id)));
    }
    if part.is_some() && !id.contains('?') {
        for chat in [None, Some(text)] {
            assert_eq!(uri::linked(&uri::link(&session, chat)), part);
        }
    }
    if !id.starts_with('/') {
        let read = (!id.is_empty()).then_some(id);
        assert_eq!(uri::automation_id(&uri::automation(id)), read);
    }
    if !text.is_empty() {
        let worker = Channel::Worker { session: session.clone(), call: text.to_owned() };
        assert_eq!(Channel::parse(&uri::worker_chat(&session, text)), worker);
    }
    if !id.contains('?') {
        let inline = uri::inline(&format!("file:///{id}"), text);
        assert_eq!(uri::inline_text(&inline).as_deref(), Some(text));
    }
}

/// JSON with lone surrogates is what [`serde_json`] reads of the text that has U+FFFD in their places, and other JSON is what
/// it reads of the text itself; strings are those of `String::from_utf16_lossy`, and keys of different strings differ.
pub fn surrogates(data: &[u8]) {
    let mended = well_formed(data);
    let read = read_json::<Value>(data);
    let reference = serde_json::from_slice::<Value>(mended.as_deref().unwrap_or(data));
    if let Some(mended) = &mended {
        assert_eq!(mended.len(), data.len());
        assert_eq!(well_formed(mended), None, "a lone surrogate is left");
        assert!(serde_json::from_slice::<Value>(data).is_err(), "JSON is changed");
    }
    assert_eq!(read.as_ref().ok(), reference.as_ref().ok());
    match (read, read_sent::<Value>(data)) {
        (Ok(value), Ok((sent, literals))) => {
            assert_eq!(sent, value, "the value depends on who reads it");
            assert!(literals.is_empty() || has_literals(data));
            let literals = literals.into_value();
            written(&value, SentValue::new(&value, (!literals.is_null()).then_some(&literals)));
        }
        (Ok(_), Err(error)) => panic!("it is not read with its digits: {error}"),
        // Numbers beyond the range of floats.
        (Err(_), Ok(_)) => assert!(has_literals(data)),
        (Err(error), Err(sent)) => {
            assert!(has_literals(data) || is_too_deep(&error) == is_too_deep(&sent));
        }
    }
    let units: Vec<u16> = data.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    let json = escaped(&units);
    assert_eq!(read_json::<String>(json.as_bytes()).ok(), Some(String::from_utf16_lossy(&units)));
    let (one, other) = units.split_at(units.len() / 2);
    let key = |units: &[u16]| serde_json::from_str::<KeyText>(&escaped(units)).map(|key| key.0).ok();
    assert!(key(one).is_some());
    assert_eq!(key(one) == key(other), one == other, "keys of {one:x?} and {other:x?}");
}

/// The text of a value that was read with its digits is read as the same value.
fn written(value: &Value, sent: SentValue<'_>) {
    if !value.is_string() {
        assert_eq!(read_sent::<Value>(sent.text().as_bytes()).ok().map(|read| read.0).as_ref(), Some(value));
    }
    assert_eq!(sent.key().is_some(), value.is_boolean() || value.is_number() || value.is_string());
}

fn escaped(units: &[u16]) -> String {
    let units: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{units}\"")
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
    fn frames_hold() {
        hold("frames", frames);
    }

    #[test]
    fn uris_hold() {
        hold("uris", uris);
    }

    #[test]
    fn surrogates_hold() {
        hold("surrogates", surrogates);
    }
}
