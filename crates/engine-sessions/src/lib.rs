//! Sessions: awake ones, each with a separate mailbox, and stored ones that are asleep.

mod actor;
mod annotations;
mod archived;
mod attachments;
mod awake_limit;
mod backend;
mod backend_actions;
mod backend_reports;
mod bound_tools;
mod catalogue;
mod charge;
mod chat;
mod chat_actions;
mod chats;
mod client_actions;
mod client_plugins;
mod client_resources;
mod client_settings;
mod client_versions;
mod command_lines;
pub mod config;
mod continuing;
mod counts;
mod create;
pub mod create_chat_tool;
mod declared_settings;
mod deferred;
mod detached_trees;
mod directory_facts;
mod drafts;
mod emit_limit;
mod emitted_values;
mod ending;
mod foreign_values;
mod in_memory;
mod input_answers;
mod input_feed;
mod lane;
pub mod lending;
mod limits;
mod links;
mod listing;
mod mailbox;
mod mcp_servers;
mod memory_limit;
mod moving;
mod observed_events;
mod observer;
mod ownership;
mod pages;
mod places;
mod preamble;
mod prepare;
mod pull_requests;
mod queue;
mod queued;
mod reported;
mod reporting;
mod requests;
mod senders;
mod sending;
mod shared;
mod side_chats;
mod size;
mod snapshot_receiver;
mod snapshots;
mod start;
mod stop;
mod store_writes;
mod stored_end;
mod storing;
mod summary;
mod text_length;
mod ticks;
mod titles;
pub mod toggles;
mod tools;
mod tools_server;
mod truncation;
mod turns;
mod unanswered_calls;
mod unfinished;
mod view;
mod waking;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};

use ostler_contract::Value;
use ostler_contract::cluster::ClusterHost;
use ostler_engine_core::shared::Core;
use ostler_engine_users::resources::Resources;
use ostler_engine_users::usage::Ledger;
use ostler_engine_users::users::access::Access;
use ostler_engine_workspace::Workspace;
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

pub use attachments::{content_of, decoded_length, size_of_attachment};
use awake_limit::Awake;
pub use bound_tools::{Brought, SessionTools};
pub use chats::{ChatReady, NewChat};
pub use client_actions::ACTIVE_CLIENT_SET;
use config::Schemas;
pub use continuing::continue_unfinished;
use counts::Counts;
pub use create::NewSession;
pub use create::computer_in;
pub use directory_facts::DirectoryFacts;
use drafts::Draft;
use in_memory::InMemory;
pub use input_feed::InputChange;
use limits::SharedLimits;
pub use listing::{ReportedRows, SessionPage};
pub use mailbox::{Dispatch, Subscription, ToSession, TurnRequest, TurnTaken};
pub use moving::{Destination, Lent};
pub use observer::{Happened, Happening, Observer};
use ownership::Ownership;
pub use ownership::{RowChange, another, ask};
use queue::Mailbox;
pub use senders::TurnRefusal;
pub use senders::grants_of_command_line;
pub use snapshot_receiver::{Collected, Snapshots};
pub use snapshots::snapshot;
pub use tools_server::OpenToolsServer;
pub use view::{Record, View};

/// The sessions of the host. Awake sessions and recently used sleeping ones are in memory. The others are only in the
/// store; see [`Sessions::session`].
#[derive(Debug)]
pub struct Sessions {
    pub core: Arc<Core>,
    pub access: Arc<Access>,
    pub usage: Arc<Ledger>,
    pub resources: Arc<Resources>,
    pub workspace: Arc<Workspace>,
    me: Weak<Self>,
    in_memory: InMemory,
    counts: Counts,
    limits: SharedLimits,
    schemas: Schemas,
    /// The observer that is notified of what sessions do.
    observer: OnceLock<Arc<dyn Observer>>,
    /// The changes of the sessions' requests for input.
    input: input_feed::InputFeed,
    ownership: Ownership,
    /// Sessions before their first turn, by id.
    drafts: Mutex<HashMap<String, Draft>>,
    /// The sessions removed while listings are in progress.
    removals: Mutex<listing::Removals>,
    tools_server: OnceLock<OpenToolsServer>,
}

/// One session, awake or asleep.
#[derive(Debug)]
pub struct SessionEntry {
    /// The id, chosen by the client, under which the session is stored.
    pub id: String,
    /// The URI as the host lists it: `<provider>:/<id>`.
    pub uri: String,
    /// The agent's provider.
    pub provider: String,
    pub owner: Option<String>,
    /// Another owner in whose name the session works.
    works_for: Option<String>,
    /// The origin of the session, if that is not a user.
    pub origin: Option<Value>,
    /// The `{ team, project }` that the session is charged to.
    pub scope: Option<Value>,
    /// The view that all readers except the session's actor use.
    published: view::Published,
    /// Whether the published view differs from the stored session.
    unstored: AtomicBool,
    /// The tools that clients contribute, for the tools endpoint.
    brought: watch::Sender<Brought>,
    /// The client that created the session.
    client: Option<String>,
    /// The tokens of the clients that created the session and its chats.
    lent_tokens: Mutex<lending::LentTokens>,
    /// Attachments whose content only clients have.
    client_resources: client_resources::ClientResources,
    mailbox: Mutex<Resting>,
    /// The running turns, for requests that cancel them.
    stops: stop::Stops,
    /// The memory of the state while the session is awake.
    memory: AtomicUsize,
    /// The host of the cluster that has the files of the session, if that is another one.
    files_at: Option<ClusterHost>,
    /// Whether the session is being created, before an actor serves it.
    is_being_created: AtomicBool,
    /// Whether a backend works in the background.
    background: AtomicBool,
    /// Whether the store lacks what its backend reported last.
    lacks_reports: AtomicBool,
    /// How often its backend has reported settings that it had not declared, since they were last read.
    settings_reports: AtomicU64,
    /// Whether a queued message waits for a token of the client that lends it.
    waits_for_token: AtomicBool,
    /// The number of the last look-up, among all look-ups of sessions.
    used: AtomicU64,
    /// How often the facts about the directory were read.
    looks: AtomicU64,
    /// When the last of these reads began.
    looked_at: Mutex<Option<tokio::time::Instant>>,
}

/// Whether an actor reads the mailbox.
#[derive(Debug)]
enum Resting {
    Open(Mailbox, Awake),
    /// No actor runs; the next message wakes the session.
    Asleep,
    /// Another host serves the session from now on.
    Left,
    /// The session was disposed, or could not be created.
    Gone,
}

impl SessionEntry {
    /// Whether the session is ending or was removed.
    pub fn is_gone(&self) -> bool {
        matches!(*self.mailbox.lock(), Resting::Gone)
    }

    /// Ends the session permanently: it accepts no further messages.
    fn end(&self) {
        *self.mailbox.lock() = Resting::Gone;
        self.end_tools();
    }

    /// Whether the session's state is in memory.
    pub fn is_awake(&self) -> bool {
        matches!(*self.mailbox.lock(), Resting::Open(..))
    }
}

/// The channel of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The session's own channel.
    Session,
    DefaultChat,
    /// A chat with a separate URI.
    Chat(String),
    Annotations,
}

impl Sessions {
    /// Creates an empty set of sessions.
    pub fn new(
        core: Arc<Core>,
        access: Arc<Access>,
        usage: Arc<Ledger>,
        resources: Arc<Resources>,
        workspace: Arc<Workspace>,
    ) -> Arc<Self> {
        let limits = SharedLimits::new(core.options.limits.session_memory);
        let sessions = Arc::new_cyclic(|me: &Weak<Self>| Self {
            core,
            access,
            usage,
            resources,
            workspace,
            me: me.clone(),
            in_memory: InMemory::default(),
            counts: Counts::default(),
            limits,
            schemas: Schemas::default(),
            observer: OnceLock::new(),
            input: input_feed::InputFeed::default(),
            ownership: Ownership::default(),
            drafts: Mutex::default(),
            removals: Mutex::default(),
            tools_server: OnceLock::new(),
        });
        sessions.workspace.set_sessions(sessions.me.clone());
        sessions
    }

    /// Sets the observer of sessions, at startup.
    pub fn set_observer(&self, observer: Arc<dyn Observer>) {
        let _ = self.observer.set(observer);
    }

    /// Sets the function that opens tools endpoints for backends. Without one, backends receive none.
    pub fn set_tools_server(&self, open: OpenToolsServer) {
        let _ = self.tools_server.set(open);
    }

    fn tools_server(&self) -> Option<OpenToolsServer> {
        self.tools_server.get().cloned()
    }

    /// Returns these sessions for use in a task.
    fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// Returns the observer; a host always has one.
    pub fn observer(&self) -> Option<&dyn Observer> {
        self.observer.get().map(|observer| &**observer)
    }

    /// Subscribes to changes of the sessions' requests for input. A receiver that falls behind by more than 1,024
    /// changes misses the oldest ones and is notified of that.
    pub fn follow_input(&self) -> broadcast::Receiver<InputChange> {
        self.input.follow()
    }

    /// Returns the number of awake sessions.
    pub fn awake(&self) -> usize {
        self.limits.census.count()
    }

    /// Returns about how many messages wait in the mailboxes of awake sessions.
    pub fn waiting_messages(&self) -> usize {
        let waiting = |entry: Arc<SessionEntry>| match &*entry.mailbox.lock() {
            Resting::Open(mailbox, _) => mailbox.waiting(),
            Resting::Asleep | Resting::Left | Resting::Gone => 0,
        };
        self.all().into_iter().map(waiting).sum()
    }

    /// Returns the memory of the states of awake sessions and of what waits for their backends, in bytes.
    pub fn memory_used(&self) -> usize {
        self.limits.states.used()
    }

    /// Returns the open mailbox of a session in memory.
    fn open(&self, mailbox: &Mailbox) -> Resting {
        Resting::Open(mailbox.clone(), self.limits.census.enter())
    }
}
