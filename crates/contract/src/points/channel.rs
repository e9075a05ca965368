//! Plugin channels. Spec: *Channel definition*.

use ostler_contract_derive::Cross;
use serde::{Deserialize, Serialize};

use super::Reader;
use crate::call::Call;

/// A reader of a channel.
pub type ChannelReader = Reader;

/// Somebody who watches a URI of a channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Cross)]
#[cross(data)]
pub struct Subscriber {
    /// The client's id.
    pub client: String,
    /// Who it is; absent on a host with no users directory and on the root connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<Reader>,
}

/// Who is sent an action.
#[derive(Debug, Clone, Default, Cross)]
pub struct PublishOptions {
    /// Asked for each subscriber at the send, and again when the action is replayed; one it refuses or throws
    /// for is not sent the action.
    pub visible: Option<Call<fn(reader: Option<Reader>, client: String) -> bool>>,
    /// The one client that gets it.
    pub to: Option<String>,
}
