//! The tools bound to a session, as an endpoint outside serves them. The session itself is not asked, so that an agent
//! may list and call them while its backend is still being made.

use std::sync::{Arc, Weak};

use ostler_contract::budget::SMALL;
use ostler_contract::points::BoundTool;
use ostler_contract::{Budget, Charge};
use ostler_protocol::wire::state::{SessionActiveClient, SessionStatus, ToolDefinition};
use tokio::sync::watch;

use super::Entry;
use super::size::Extent;
use super::tools::{BoundPlace, bind};
use crate::sessions::Sessions;

/// What a session's clients brought, and whether there is still a session.
#[derive(Debug, Clone, Default)]
pub struct Brought {
    tools: Arc<[BoundTool]>,
    /// Who they are.
    clients: Arc<[String]>,
    /// What the tools take of the memory for the states of sessions, awake or not.
    charge: Option<Arc<Charge>>,
    /// How often that changed.
    pub moved: u64,
    /// The session is gone.
    pub gone: bool,
}

/// The tools bound to a session. Handed to whoever opens an endpoint for one of its backends.
#[derive(Debug, Clone)]
pub struct SessionTools {
    sessions: Weak<Sessions>,
    entry: Arc<Entry>,
    /// Which start of a backend asks.
    opener: u64,
}

impl SessionTools {
    pub(super) fn new(sessions: &Arc<Sessions>, entry: &Arc<Entry>) -> Self {
        Self { sessions: Arc::downgrade(sessions), entry: entry.clone(), opener: sessions.core.next_opener() }
    }

    /// The session's URI.
    pub fn session(&self) -> &str {
        &self.entry.uri
    }

    /// Which start of a backend asks: no two are alike.
    pub fn opener(&self) -> u64 {
        self.opener
    }

    /// Whether both are of one session: a later one of the same URI is another.
    pub fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry)
    }

    /// Every tool there is now; none once the session is gone.
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

    /// Tells of every change of the tools, and of the session's end.
    pub fn changes(&self) -> watch::Receiver<Brought> {
        self.entry.brought.subscribe()
    }
}

impl Entry {
    /// Puts down what the clients of a session brought.
    pub(super) fn bring(&self, clients: &[SessionActiveClient], memory: &Budget) {
        let bytes = clients.iter().map(|client| Extent::of(&client.tools).memory()).sum();
        let charge = (bytes > SMALL).then(|| Arc::new(memory.take_anyway(bytes)));
        self.brought.send_modify(|brought| {
            brought.charge = charge;
            brought.tools = brought_by(clients).into();
            brought.clients = clients.iter().map(|client| client.client_id.clone()).collect();
            brought.moved += 1;
        });
    }

    /// The clients that are active in the session.
    pub(crate) fn active_clients(&self) -> Arc<[String]> {
        self.brought.borrow().clients.clone()
    }

    /// Says that the session is gone for good.
    pub(super) fn end_tools(&self) {
        self.brought.send_modify(|brought| brought.gone = true);
    }

    /// The chat an endpoint's call most likely comes of: the one that speaks, else the default one.
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

/// The tools clients brought, under the names a model may call them by.
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

/// Names a model may call: letters, digits, `_` and `-`.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}
