//! Messages of the host's own making.

use ostler_protocol::wire::state::{Message, MessageKind, MessageOrigin};

/// A message of the host's own making.
pub fn message(text: String, kind: MessageKind) -> Message {
    Message { text, origin: MessageOrigin { kind }, attachments: None, model: None, agent: None, meta: None }
}
