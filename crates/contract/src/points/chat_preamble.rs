//! Hidden text for chats that users and tools open. Spec: *Plugin host calls*, chat preamble.

use ostler_contract_derive::Cross;
use ostler_protocol::wire::state::{ChatOrigin, ChatSummary};
use serde::{Deserialize, Serialize};

use super::{Checked, Contribution, Slot};
use crate::call::Call;
use crate::cross::{Cross, Frozen, Mismatch};

/// Returns the hidden context of a chat's first turn, or nothing. Called for each chat that a client or the
/// `createChat` tool opens in a session, side chats included, forks not.
///
/// ```
/// use ostler_contract::points::{Preamble, PreambleChat};
/// use ostler_contract::{Call, Frozen};
///
/// let preamble: Preamble = Call::now(|(chat,): (Frozen<PreambleChat>,)| {
///     Ok((chat.chats.len() > 1).then(|| format!("{} other chats are open here.", chat.chats.len())))
/// });
/// # assert!(ostler_contract::Cross::check(&preamble).is_ok());
/// ```
pub type Preamble = Call<fn(chat: Frozen<PreambleChat>) -> Option<String>>;

/// The chat for which a preamble is requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct PreambleChat {
    /// The session's URI.
    pub session: String,
    /// The new chat's URI.
    pub chat: String,
    /// The origin of the chat.
    pub origin: ChatOrigin,
    /// The existing chats of the session.
    pub chats: Vec<ChatSummary>,
}

/// A registered [`Preamble`].
#[derive(Debug)]
pub struct ChatPreamble {
    /// The function.
    pub preamble: Preamble,
}

impl Contribution for ChatPreamble {
    const SLOT: Slot = Slot::Append;
}

impl Checked for ChatPreamble {
    fn holds(&self) -> Result<(), Mismatch> {
        self.preamble.check().map_err(|wrong| wrong.within("preamble"))
    }
}
