//! Messages of the host's own making.

use ostler_protocol::names;
use ostler_protocol::wire::state::{Message, MessageKind, MessageOrigin};

/// Fact of a message under `_meta.ostler.<fact>`: the run whose message it is.
pub const RUN: &str = "run";

/// A message of the host's own making.
pub fn message(text: String, kind: MessageKind) -> Message {
    Message { text, origin: MessageOrigin { kind }, attachments: None, model: None, agent: None, meta: None }
}

/// The run whose message this is.
pub fn run_of(message: &Message) -> Option<&str> {
    let of_run = message.origin.kind == MessageKind::Automation;
    message.meta.as_ref().filter(|_| of_run)?.get(&names::meta_key(RUN))?.as_str()
}
