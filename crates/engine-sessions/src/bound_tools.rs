//! The tools bound to a session, as an external endpoint serves them. They are read without the session's actor, so
//! that an agent can list and call them while its backend is being created.

use std::sync::{Arc, Weak};

use ostler_contract::budget::SMALL;
use ostler_contract::points::BoundTool;
use ostler_contract::{Budget, Charge};
use ostler_engine_users::users::clients::ClientIdentity;
use ostler_protocol::wire::state::{SessionActiveClient, SessionStatus, ToolDefinition};
use tokio::sync::watch;

use super::SessionEntry;
use super::size::Extent;
use super::tools::{BoundPlace, bind};
use crate::Sessions;

/// The tools that a session's clients contribute, and whether the session still exists.
#[derive(Debug, Clone, Default)]
pub struct Brought {
    tools: Arc<[BoundTool]>,
    /// Those clients.
    clients: Arc<[ClientIdentity]>,
    /// The clients and what they contribute, while the session is asleep.
    asleep: Vec<(SessionActiveClient, ClientIdentity)>,
    /// The memory charged for what they contribute, whether the session is awake or not.
    charge: Option<Arc<Charge>>,
    /// The number of changes so far.
    pub moved: u64,
    /// Whether the session was removed.
    pub gone: bool,
}

/// The tools bound to a session, for an endpoint of one of its backends.
#[derive(Debug, Clone)]
pub struct SessionTools {
    sessions: Weak<Sessions>,
    entry: Arc<SessionEntry>,
    /// The number of the backend start that this belongs to.
    opener: u64,
}

impl SessionTools {
    pub(super) fn new(sessions: &Arc<Sessions>, entry: &Arc<SessionEntry>) -> Self {
        Self { sessions: Arc::downgrade(sessions), entry: entry.clone(), opener: sessions.core.next_opener() }
    }

    /// Returns the session's URI.
    pub fn session(&self) -> &str {
        &self.entry.uri
    }

    /// Returns the number of the backend start that this belongs to; each start has a different one.
    pub fn opener(&self) -> u64 {
        self.opener
    }

    /// Whether both belong to the same session. A later session with the same URI is a different one.
    pub fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
    }

    /// Returns the current tools; none after the session was removed.
    pub fn list(&self) -> Vec<BoundTool> {
        let Some(sessions) = self.sessions.upgrade() else { return Vec::new() };
        let brought = self.entry.brought.borrow().clone();
        if brought.gone {
            return Vec::new();
        }
        let chat = self.entry.speaking_chat();
        let place = BoundPlace::new(&self.entry.uri, &chat);
        let own = sessions.core.offered_tools().cloned().map(|tool| bind(&sessions, tool, &place));
        own.chain(brought.tools.iter().cloned()).collect()
    }

    /// Checks that tools may be called in the name of the session's owner now.
    ///
    /// # Errors
    /// What the owner may no longer do.
    pub fn may_call(&self) -> Result<(), String> {
        let Some(sessions) = self.sessions.upgrade() else { return Ok(()) };
        sessions.may_work_for_owner(&self.entry).map_err(|refused| refused.message)
    }

    /// Returns a receiver that is notified of every change of the tools and of the session's end.
    pub fn changes(&self) -> watch::Receiver<Brought> {
        self.entry.brought.subscribe()
    }
}

impl SessionEntry {
    /// Records the tools that a session's clients contribute.
    pub(super) fn bring(
        &self,
        clients: &[SessionActiveClient],
        identities: &[ClientIdentity],
        memory: &Budget,
    ) {
        let bytes = clients.iter().map(|client| Extent::of(client).memory()).sum();
        let charge = (bytes > SMALL).then(|| Arc::new(memory.take_anyway(bytes)));
        self.brought.send_modify(|brought| {
            brought.charge = charge;
            brought.tools = brought_by(clients).into();
            brought.clients = identities.into();
            brought.moved += 1;
        });
    }

    /// Takes the active clients of a session that falls asleep.
    pub(super) fn rest_clients(&self, clients: Vec<SessionActiveClient>, identities: &[ClientIdentity]) {
        let identity = |client: &SessionActiveClient| {
            identities.iter().find(|identity| identity.id == client.client_id).cloned()
        };
        let asleep =
            clients.into_iter().filter_map(|client| identity(&client).map(|identity| (client, identity)));
        self.brought.send_modify(|brought| brought.asleep = asleep.collect());
    }

    /// Returns the active clients to a session that wakes.
    pub(super) fn wake_clients(&self) -> Vec<(SessionActiveClient, ClientIdentity)> {
        let mut asleep = Vec::new();
        self.brought.send_if_modified(|brought| {
            asleep = std::mem::take(&mut brought.asleep);
            false
        });
        asleep
    }

    /// Whether one of the active clients of a session that is asleep is still connected.
    pub(super) fn has_connected_clients(&self, connected: &[ClientIdentity]) -> bool {
        self.brought.borrow().asleep.iter().any(|(_, identity)| connected.contains(identity))
    }

    pub fn active_clients(&self) -> Arc<[ClientIdentity]> {
        self.brought.borrow().clients.clone()
    }

    /// Marks the session as removed.
    pub(super) fn end_tools(&self) {
        self.brought.send_modify(|brought| brought.gone = true);
    }

    /// Returns the chat that a call from an endpoint most likely belongs to: the only one with a running turn, or else
    /// the default chat.
    fn speaking_chat(&self) -> String {
        let view = self.view();
        let running = SessionStatus::InProgress.bits();
        let mut speaking = view
            .summary
            .chats
            .iter()
            .flatten()
            .filter(|chat| chat.status.is_some_and(|status| status & running != 0));
        match (speaking.next(), speaking.next()) {
            (Some(chat), None) => chat.resource.clone(),
            _ => view.default_chat.clone(),
        }
    }
}

/// Returns the clients with which a session is created: that of its creator, if any.
pub(super) fn creator(entry: &SessionEntry, clients: &[SessionActiveClient]) -> Vec<ClientIdentity> {
    let identity = |client: &SessionActiveClient| ClientIdentity {
        id: client.client_id.clone(),
        owner: entry.owner.clone(),
    };
    clients.iter().map(identity).collect()
}

/// Returns the tools that clients contribute, under the names by which a model can call them.
pub(super) fn brought_by(clients: &[SessionActiveClient]) -> Vec<BoundTool> {
    let of = |client: &SessionActiveClient| {
        let (id, tools) = (client.client_id.clone(), client.tools.clone());
        let named = tools.into_iter().filter(move |tool| is_word(&tool.name));
        named.map(move |tool| BoundTool {
            definition: ToolDefinition { name: format!("{id}__{}", tool.name), ..tool }.into(),
            run: None,
            effects: None,
            owner: Some(id.clone()),
            defer_loading: None,
        })
    };
    clients.iter().filter(|client| is_word(&client.client_id)).flat_map(of).collect()
}

/// Whether a text is a name that a model can call: letters, digits, `_` and `-`.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}
