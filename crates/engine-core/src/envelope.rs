//! The frame of an action: `{"channel":…,"action":…,"serverSeq":…,"origin":…}` in its notification, as JSON text,
//! encoded once.

use std::sync::LazyLock;

use ostler_protocol::names;
use serde::Serialize;
use serde::ser::Error as _;
use serde_json::Value;

use super::refusals::Rejection;

/// The initial capacity of a frame for its action, in bytes, enough for a delta.
const FRAME_ROOM: usize = 256;

/// Who dispatched an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub client_id: String,
    pub client_seq: i64,
}

/// An action as JSON text.
#[derive(Debug)]
pub enum Encoded {
    /// The action alone.
    Action(String),
    /// The part of its frame that does not depend on its number.
    Frame(String),
}

impl Encoded {
    /// Encodes an action into its frame.
    ///
    /// # Errors
    /// The action cannot be encoded.
    pub fn framed<T: Serialize>(channel: &str, action: &T) -> Result<Self, serde_json::Error> {
        let mut frame = String::with_capacity(ACTION_HEAD.len() + channel.len() + FRAME_ROOM);
        frame.push_str(ACTION_HEAD);
        begin_envelope(&mut frame, channel);
        let mut frame = frame.into_bytes();
        serde_json::to_writer(&mut frame, action)?;
        String::from_utf8(frame).map(Self::Frame).map_err(serde_json::Error::custom)
    }

    /// Its text, with the beginning of its frame if that exists.
    pub fn text(&self) -> &str {
        let (Self::Action(text) | Self::Frame(text)) = self;
        text
    }

    /// Returns the frame of the action with its number.
    pub(super) fn into_frame(self, channel: &str, seq: u64, origin: Option<&Origin>) -> String {
        match self {
            Self::Action(action) => envelope_frame(channel, &action, seq, origin),
            Self::Frame(mut frame) => {
                end_envelope(&mut frame, seq, origin);
                frame.push('}');
                frame.shrink_to_fit();
                frame
            }
        }
    }
}

const ACTION_HEAD: &str = r#"{"jsonrpc":"2.0","method":"action","params":"#;

/// `{"channel":…,"action":…,"serverSeq":…,"origin":…}` in its frame.
pub(super) fn envelope_frame(channel: &str, action: &str, seq: u64, origin: Option<&Origin>) -> String {
    let mut frame = String::with_capacity(ACTION_HEAD.len() + channel.len() + action.len() + 96);
    frame.push_str(ACTION_HEAD);
    push_envelope(&mut frame, channel, action, seq, origin);
    frame.push('}');
    frame
}

fn push_envelope(into: &mut String, channel: &str, action: &str, seq: u64, origin: Option<&Origin>) {
    begin_envelope(into, channel);
    into.push_str(action);
    end_envelope(into, seq, origin);
}

/// The part of an envelope before its action.
fn begin_envelope(into: &mut String, channel: &str) {
    into.push_str(r#"{"channel":"#);
    push_string(into, channel);
    into.push_str(r#","action":"#);
}

/// The part of an envelope after its action.
fn end_envelope(into: &mut String, seq: u64, origin: Option<&Origin>) {
    use std::fmt::Write as _;
    let _ = write!(into, r#","serverSeq":{seq}"#);
    if let Some(origin) = origin {
        into.push_str(r#","origin":{"clientId":"#);
        push_string(into, &origin.client_id);
        let _ = write!(into, r#","clientSeq":{}}}"#, origin.client_seq);
    }
    into.push('}');
}

fn push_string(into: &mut String, text: &str) {
    let plain = text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
    if plain {
        into.push('"');
        into.push_str(text);
        into.push('"');
    } else {
        into.push_str(&Value::from(text).to_string());
    }
}

/// The envelope's `_meta` of a rejection whose action can be sent again later.
static RETRYABLE: LazyLock<String> =
    LazyLock::new(|| format!(r#","_meta":{{"{}":true}}"#, names::meta_key(names::RETRYABLE)));

/// Returns the rejection of a dispatched action: the envelope with a reason, only for the sender, without a new number.
pub fn rejection(
    channel: &str,
    action: &str,
    seq: u64,
    origin: &Origin,
    reason: impl Into<Rejection>,
) -> String {
    let Rejection { why, is_retryable } = reason.into();
    let mut frame = String::from(ACTION_HEAD);
    push_envelope(&mut frame, channel, action, seq, Some(origin));
    frame.pop();
    frame.push_str(r#","rejectionReason":"#);
    push_string(&mut frame, &why);
    if is_retryable {
        frame.push_str(&RETRYABLE);
    }
    frame.push_str("}}");
    frame
}

/// The number inside an action's frame.
const NUMBER: &str = r#","serverSeq":"#;

/// The frame of an action of another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered<'a> {
    /// Before its number.
    pub head: &'a str,
    /// After its number.
    pub tail: &'a str,
    /// Whether it rejects an action of its receiver, and so has no new number.
    pub is_rejection: bool,
}

/// Splits the frame of an action around its number; `None` for another frame. The text of a string in the frame cannot
/// look like the number, because its quotes are escaped.
pub fn split_number(frame: &str) -> Option<Numbered<'_>> {
    if !frame.starts_with(ACTION_HEAD) {
        return None;
    }
    let start = frame.rfind(NUMBER)? + NUMBER.len();
    let rest = &frame[start..];
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    let tail = &rest[length..];
    let is_rejection = tail.contains(r#","rejectionReason":"#);
    Some(Numbered { head: &frame[..start], tail, is_rejection })
}

/// Returns a frame that was split around its number with another number.
pub fn renumbered(head: &str, seq: u64, tail: &str) -> String {
    use std::fmt::Write as _;
    let mut frame = String::with_capacity(head.len() + tail.len() + 20);
    frame.push_str(head);
    let _ = write!(frame, "{seq}");
    frame.push_str(tail);
    frame
}

/// Returns the `params` inside an action's frame.
pub(super) fn params_of(frame: &[u8]) -> &str {
    let params = frame.get(ACTION_HEAD.len()..frame.len().saturating_sub(1)).unwrap_or_default();
    std::str::from_utf8(params).unwrap_or("{}")
}

/// Returns the action inside the frame in which it was published on a channel.
pub(super) fn action_of<'a>(frame: &'a [u8], channel: &str) -> &'a str {
    let params = params_of(frame);
    let mut name = String::new();
    push_string(&mut name, channel);
    let start = r#"{"channel":"#.len() + name.len() + r#","action":"#.len();
    let end = params.rfind(r#","serverSeq":"#).unwrap_or(params.len());
    params.get(start..end).unwrap_or("{}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_an_action_is_replaced() {
        let text = r#"a ,\"serverSeq\":7,\"rejectionReason\":"#;
        let action = format!(r#"{{"type":"chat/delta","content":"{text}"}}"#);
        let origin = Origin { client_id: r#"it,"serverSeq":5,"rejectionReason":"#.to_owned(), client_seq: 3 };
        for origin in [None, Some(&origin)] {
            let frame = envelope_frame("echo:/1", &action, 41, origin);
            let Numbered { head, tail, is_rejection } = split_number(&frame).expect("an action");
            assert!(!is_rejection);
            assert_eq!(renumbered(head, 1_000, tail), envelope_frame("echo:/1", &action, 1_000, origin));
        }
        let refused = rejection("echo:/1", &action, 41, &origin, "no");
        let later = rejection("echo:/1", &action, 41, &origin, Rejection::retryable("later"));
        let envelope: Value = serde_json::from_str(&later).expect("JSON");
        assert_eq!(envelope["params"]["_meta"], serde_json::json!({ "ostler.retryable": true }));
        assert!(split_number(&later).expect("an action").is_rejection);
        assert!(!refused.contains("_meta"));
        let split = split_number(&refused).expect("an action");
        assert!(split.is_rejection);
        assert_eq!(renumbered(split.head, 9, split.tail), rejection("echo:/1", &action, 9, &origin, "no"));
        assert_eq!(split_number(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), None);
    }
}
