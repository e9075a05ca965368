//! JSON-RPC 2.0 messages: parsed once at a transport, with parameters kept as raw JSON until the command
//! table decodes them.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use crate::RpcError;
use crate::surrogates::{read_json, well_formed};

/// The largest frame that is accepted from a peer, in bytes. A larger one closes the connection.
pub const MAX_FRAME: usize = 32 * 1024 * 1024;

/// The id of a request, returned unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Id {
    /// The usual form.
    Number(Number),
    /// Allowed by JSON-RPC.
    Text(String),
}

impl From<u64> for Id {
    fn from(id: u64) -> Self {
        Self::Number(id.into())
    }
}

/// A message of a peer.
#[derive(Debug)]
pub enum Message {
    /// Requires exactly one answer.
    Request {
        /// Returned in the answer.
        id: Id,
        /// The command's name.
        method: String,
        /// `{}` if the peer sent none.
        params: Params,
    },
    /// Never answered.
    Notification {
        /// The notification's name.
        method: String,
        /// `{}` if the peer sent none.
        params: Params,
    },
    /// The answer to a request of the host.
    Response {
        /// The id that the host chose.
        id: Id,
        /// The result or the error.
        outcome: Result<Value, RpcError>,
    },
}

/// Parameters that are not decoded yet.
#[derive(Debug, Clone, Default)]
pub struct Params {
    raw: Option<Box<RawValue>>,
    /// The text without lone surrogates, created on first use if it differs.
    mended: OnceLock<Option<String>>,
}

impl Params {
    /// Parameters from JSON text already known to be an object.
    pub fn raw(raw: Box<RawValue>) -> Self {
        Self { raw: Some(raw), ..Self::default() }
    }

    /// Parameters from a value.
    ///
    /// # Errors
    /// The value cannot be encoded, which does not happen with a [`Value`].
    pub fn from_value(value: &Value) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self::raw)
    }

    /// Returns the JSON text; `{}` if there was none.
    pub fn text(&self) -> &str {
        self.raw.as_deref().map_or("{}", RawValue::get)
    }

    fn mended(&self) -> Option<&str> {
        let mended = || well_formed(self.text().as_bytes()).and_then(|text| String::from_utf8(text).ok());
        self.mended.get_or_init(mended).as_deref()
    }

    /// Decodes the parameters of a command. The message names the invalid field.
    ///
    /// # Errors
    /// Parameters that do not fit: `-32602`.
    pub fn decode<'a, T: Deserialize<'a>>(&'a self, method: &str) -> Result<T, RpcError> {
        let (text, read) = match serde_json::from_str(self.text()) {
            Err(error) => match self.mended() {
                Some(mended) => (mended, serde_json::from_str(mended)),
                None => (self.text(), Err(error)),
            },
            read => (self.text(), read),
        };
        read.map_err(|error| {
            // Invalid parameters are parsed again, to find the position.
            let mut reader = serde_json::Deserializer::from_str(text);
            let read: Result<T, _> = serde_path_to_error::deserialize(&mut reader);
            let place = read.err().map(|error| error.path().to_string()).filter(|path| path != ".");
            let place = place.map(|path| format!("{path}: ")).unwrap_or_default();
            RpcError::invalid_params(format!("{method}: {place}{}", tidy(&error)))
        })
    }
}

/// Formats a decoding error without serde's position, which refers to a text that the peer did not send.
pub fn tidy(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

/// Returns an upper bound of the number of values in a JSON text, without parsing it: it counts separators and
/// brackets.
pub fn count_values(text: &[u8]) -> usize {
    let mut count = 1;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b',' | b'[' | b'{' | b':' => count += 1,
            b'"' => {
                while let Some(byte) = text.get(at) {
                    at += 1;
                    match byte {
                        b'"' => break,
                        b'\\' => at += 1,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    count
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Envelope {
    jsonrpc: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
    method: Option<Value>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    error: Option<RpcError>,
}

/// Distinguishes `"id": null` from a missing `id`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// An invalid frame: the error of the answer, and the id if it could be parsed.
#[derive(Debug)]
pub struct BadFrame {
    /// Returned in the answer; `null` in JSON-RPC if it could not be parsed.
    pub id: Option<Id>,
    /// What is wrong.
    pub error: RpcError,
}

impl From<RpcError> for BadFrame {
    fn from(error: RpcError) -> Self {
        Self { id: None, error }
    }
}

impl Message {
    /// Parses one frame.
    ///
    /// # Errors
    /// A frame that is not JSON: `-32700`; one that is not a message: `-32600`. The error contains the id if the frame
    /// has one.
    pub fn parse(frame: &str) -> Result<Self, BadFrame> {
        let envelope: Envelope = match read_json(frame.as_bytes()) {
            // serde reads a list as the fields of a struct.
            Ok(_) if is_list(frame) => return Err(no_batches().into()),
            Ok(envelope) => envelope,
            Err(error) if error.is_data() => return Err(not_a_message(frame, &error).into()),
            Err(error) => {
                return Err(RpcError::parse_error(format!("the frame is not JSON: {error}")).into());
            }
        };
        let id = match envelope.id {
            None => None,
            Some(Value::Number(number)) => Some(Id::Number(number)),
            Some(Value::String(text)) => Some(Id::Text(text)),
            Some(_) => return Err(RpcError::invalid_request("id must be a number or a string").into()),
        };
        let fail =
            |id: &Option<Id>, why: &str| BadFrame { id: id.clone(), error: RpcError::invalid_request(why) };
        if envelope.jsonrpc.as_ref().and_then(Value::as_str) != Some("2.0") {
            return Err(fail(&id, "jsonrpc must be \"2.0\""));
        }
        if let Some(params) = &envelope.params
            && !params.get().starts_with('{')
            && params.get() != "null"
        {
            return Err(fail(&id, "params must be an object"));
        }
        let params = envelope.params.filter(|params| params.get() != "null");
        let params = params.map(Params::raw).unwrap_or_default();
        match (envelope.method, id) {
            (Some(Value::String(method)), Some(id)) => Ok(Self::Request { id, method, params }),
            (Some(Value::String(method)), None) => Ok(Self::Notification { method, params }),
            (Some(_), id) => Err(fail(&id, "method must be a string")),
            (None, Some(id)) => match (envelope.result, envelope.error) {
                (None, Some(error)) => Ok(Self::Response { id, outcome: Err(error) }),
                (Some(result), None) => Ok(Self::Response { id, outcome: Ok(result) }),
                _ => Err(fail(&Some(id), "a message must have a method, a result or an error")),
            },
            (None, None) => Err(fail(&None, "a message must have a method, a result or an error")),
        }
    }
}

fn is_list(frame: &str) -> bool {
    frame.trim_start().starts_with('[')
}

fn no_batches() -> RpcError {
    RpcError::invalid_request("one message per frame; batches are not part of the protocol")
}

fn not_a_message(frame: &str, error: &serde_json::Error) -> RpcError {
    if is_list(frame) {
        return no_batches();
    }
    RpcError::invalid_request(format!("the frame is not a JSON-RPC message: {}", tidy(error)))
}

/// Frames of the host.
pub mod encode {
    use serde::Serialize;
    use serde_json::Value;

    use super::{Id, Message};
    use crate::RpcError;

    /// `{"jsonrpc":"2.0","id":…,"result":…}` around a result that is already JSON text.
    pub fn raw_result(id: &Id, result: &str) -> String {
        let mut frame = begin_result(id, result.len() + 1);
        frame.push_str(result);
        frame.push('}');
        frame
    }

    /// Returns the frame up to the result, with capacity for `room` more bytes. A closing brace ends the frame.
    pub fn begin_result(id: &Id, more: usize) -> String {
        let id = to_json(id);
        let mut frame = String::with_capacity(32 + id.len() + more);
        frame.push_str(r#"{"jsonrpc":"2.0","id":"#);
        frame.push_str(&id);
        frame.push_str(r#","result":"#);
        frame
    }

    /// The answer to a successful request.
    ///
    /// # Errors
    /// The result cannot be encoded.
    pub fn result<T: Serialize>(id: &Id, result: &T) -> Result<String, serde_json::Error> {
        Ok(raw_result(id, &serde_json::to_string(result)?))
    }

    /// Like [`result`], with exactly as much memory as the text needs.
    ///
    /// # Errors
    /// The result cannot be encoded.
    pub fn sized_result<T: Serialize>(id: &Id, result: &T) -> Result<String, serde_json::Error> {
        let mut count = Count(0);
        serde_json::to_writer(&mut count, result)?;
        let id = to_json(id);
        let mut frame = Vec::with_capacity(32 + id.len() + count.0);
        frame.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        frame.extend_from_slice(id.as_bytes());
        frame.extend_from_slice(br#","result":"#);
        serde_json::to_writer(&mut frame, result)?;
        frame.push(b'}');
        String::from_utf8(frame).map_err(serde::ser::Error::custom)
    }

    /// A writer that counts bytes and discards them.
    struct Count(usize);

    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the length of a text as a JSON string.
    pub fn text_length(text: &str) -> usize {
        let mut count = Count(0);
        // Writing to a counter does not fail.
        let _ = serde_json::to_writer(&mut count, text);
        count.0
    }

    /// The answer to a failed request; `id` is `null` if the frame had none.
    pub fn error(id: Option<&Id>, error: &RpcError) -> String {
        let id = id.map_or_else(|| "null".to_owned(), to_json);
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, to_json(error))
    }

    /// A notification.
    ///
    /// # Errors
    /// The parameters cannot be encoded.
    pub fn notification<T: Serialize>(method: &str, params: &T) -> Result<String, serde_json::Error> {
        Ok(format!(
            r#"{{"jsonrpc":"2.0","method":{},"params":{}}}"#,
            Value::from(method),
            serde_json::to_string(params)?
        ))
    }

    /// A request of the host to a client.
    ///
    /// # Errors
    /// The parameters cannot be encoded.
    pub fn request<T: Serialize>(id: &Id, method: &str, params: &T) -> Result<String, serde_json::Error> {
        Ok(format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":{},"params":{}}}"#,
            to_json(id),
            Value::from(method),
            serde_json::to_string(params)?
        ))
    }

    /// Returns the frame of a parsed message.
    pub fn message(message: &Message) -> String {
        match message {
            Message::Request { id, method, params } => {
                let (id, method) = (to_json(id), Value::from(method.as_str()));
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{}}}"#, params.text())
            }
            Message::Notification { method, params } => {
                let method = Value::from(method.as_str());
                format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{}}}"#, params.text())
            }
            Message::Response { id, outcome: Ok(result) } => raw_result(id, &to_json(result)),
            Message::Response { id, outcome: Err(refused) } => error(Some(id), refused),
        }
    }

    fn to_json<T: Serialize>(value: &T) -> String {
        // Ids and errors can always be encoded.
        serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(frame: &str) -> RpcError {
        Message::parse(frame).expect_err("should be refused").error
    }

    #[test]
    fn a_request_keeps_its_id_as_it_came() {
        for id in ["7", "\"seven\"", "18446744073709551615"] {
            let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let Ok(Message::Request { id: read, .. }) = Message::parse(&frame) else {
                panic!("not a request")
            };
            assert_eq!(
                encode::raw_result(&read, "null"),
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":null}}"#)
            );
        }
    }

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (text, count) in
            [("1", 1), (r#"{"a,":[1,2]}"#, 5), (r#"["\",[{:",{}]"#, 4), (r#""unended,"#, 1), (r#""\"#, 1)]
        {
            assert_eq!(count_values(text.as_bytes()), count, "{text}");
        }
    }

    #[test]
    fn a_sized_result_is_the_same_text() {
        let result = serde_json::json!({ "data": "a\u{1}\"é", "n": [1, null] });
        let (id, text) = (Id::Text("x".to_owned()), "a\u{1}\"é");
        let sized = encode::sized_result(&id, &result).expect("JSON");
        assert_eq!(sized, encode::result(&id, &result).expect("JSON"));
        assert_eq!(encode::text_length(text), serde_json::to_string(text).expect("JSON").len());
    }

    #[test]
    fn what_is_not_a_message_is_named() {
        assert_eq!(bad("{").code, crate::error::code::PARSE_ERROR);
        assert_eq!(bad("nonsense").code, crate::error::code::PARSE_ERROR);
        for frame in [
            "[]",
            r#"["2.0",4,"ping",{},null,null]"#,
            "3",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"x"}}"#,
        ] {
            assert_eq!(bad(frame).code, crate::error::code::INVALID_REQUEST, "{frame}");
        }
    }

    #[test]
    fn a_refused_request_is_answered_under_its_id() {
        let bad =
            Message::parse(r#"{"jsonrpc":"2.0","id":4,"method":"ping","params":[]}"#).expect_err("refused");
        assert_eq!(bad.id, Some(4.into()));
    }

    #[test]
    fn a_null_result_is_a_result() {
        let message = Message::parse(r#"{"jsonrpc":"2.0","id":4,"result":null}"#).expect("a response");
        assert!(matches!(message, Message::Response { outcome: Ok(Value::Null), .. }));
    }

    #[test]
    fn half_a_character_in_a_frame_is_read_as_javascript_has_it() {
        for frame in [
            r#"{"jsonrpc":"2.0","id":"\udc00","method":"\ud800","params":{"channel":"\ud800x\\ud800"}}"#,
            r#"{"jsonrpc":"2.0","id":"\ufffd","method":"\ufffd","params":{"channel":"\ufffdx\\ud800"}}"#,
        ] {
            let Ok(Message::Request { id, method, params }) = Message::parse(frame) else {
                panic!("not a request: {frame}")
            };
            assert_eq!((id, &*method), (Id::Text("\u{fffd}".to_owned()), "\u{fffd}"));
            let read: Value = params.decode("x").expect("readable");
            assert_eq!(read, serde_json::json!({ "channel": "\u{fffd}x\\ud800" }));
        }
        let answer = Message::parse(r#"{"jsonrpc":"2.0","id":1,"result":["\ud800"]}"#).expect("a response");
        let Message::Response { outcome: Ok(result), .. } = answer else { panic!("{answer:?}") };
        assert_eq!(result, serde_json::json!(["\u{fffd}"]));
    }

    proptest::proptest! {
        #[test]
        fn no_frame_panics(frame in ".{0,200}") {
            let _ = Message::parse(&frame);
        }
    }
}
