//! Messages that the host creates.

use ostler_protocol::names;
use ostler_protocol::wire::state::{Message, MessageKind, MessageOrigin};

/// The fact under `_meta.ostler.<fact>` with the run of a message.
pub const RUN: &str = "run";

/// Creates a message of the host.
pub fn message(text: String, kind: MessageKind) -> Message {
    Message { text, origin: MessageOrigin { kind }, attachments: None, model: None, agent: None, meta: None }
}

pub fn run_of(message: &Message) -> Option<&str> {
    let of_run = message.origin.kind == MessageKind::Automation;
    message.meta.as_ref().filter(|_| of_run)?.get(&names::meta_key(RUN))?.as_str()
}
