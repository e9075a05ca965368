//! Sessions: awake ones, each with a separate mailbox, and stored ones that are asleep.

mod actor;
mod annotations;
mod archived;
mod attachments;
mod awake_limit;
mod backend;
mod backend_actions;
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
pub(crate) mod config;
mod create;
pub(crate) mod create_chat_tool;
mod declared_settings;
mod deferred;
mod detached_trees;
mod directory_facts;
mod drafts;
mod emit_limit;
mod ending;
mod input_answers;
mod input_feed;
mod lending;
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
mod queue;
mod reporting;
mod requests;
mod sending;
mod shared;
mod side_chats;
mod size;
mod snapshots;
mod start;
mod stop;
mod store_writes;
mod storing;
mod summary;
mod text_length;
mod titles;
pub(crate) mod toggles;
mod tools;
mod tools_server;
mod turns;
mod unanswered_calls;
mod unfinished;
mod view;
mod waking;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ostler_contract::cluster::ClusterHost;
use ostler_contract::{Budget, Thrown, Value, limit};
use ostler_protocol::uri::{self, Channel};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, broadcast, watch};

use crate::core::shared::Core;
use crate::resources::Resources;
use crate::usage::Ledger;
use crate::users::access::Access;
use crate::workspace::Workspace;
pub(crate) use attachments::{content_of, decoded_length, size_of_attachment};
use awake_limit::{Awake, Census};
pub use bound_tools::{Brought, SessionTools};
pub use chats::{ChatReady, NewChat};
pub use create::NewSession;
pub(crate) use create::computer_in;
pub use directory_facts::DirectoryFacts;
use drafts::Draft;
pub use input_feed::InputChange;
pub use listing::{ReportedRows, SessionPage};
pub use mailbox::{Collected, Dispatch, Snapshots, Subscription, ToSession, TurnRequest, TurnTaken};
pub use moving::{Destination, Lent};
pub(crate) use observer::{Happened, Happening, Observer};
pub(crate) use ownership::{RowChange, another, ask};
use queue::Mailbox;
pub(crate) use snapshots::snapshot;
pub use tools_server::OpenToolsServer;
pub use view::{Record, View};

/// The sessions of the host. Awake sessions and recently used sleeping ones are in memory. The others are only in the
/// store; see [`Sessions::session`].
#[derive(Debug)]
pub struct Sessions {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) usage: Arc<Ledger>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) workspace: Arc<Workspace>,
    me: Weak<Self>,
    entries: RwLock<HashMap<String, Arc<Entry>>>,
    /// The sessions' ids by the URI of a chat that has a separate URI. Covers the sessions in memory.
    chats: RwLock<HashMap<String, String>>,
    /// The number of sessions, in memory and in the store. Changes only while `entries` is locked.
    total: AtomicUsize,
    /// The number of listed sessions of a cluster.
    listed: AtomicUsize,
    /// Whether `total` includes the sessions in the store.
    counted: AtomicBool,
    /// Whether all sessions are in memory: there is no store, or it cannot be read on demand.
    whole: AtomicBool,
    /// The loads in progress.
    loading: Mutex<HashMap<String, catalogue::Loading>>,
    /// The counter for `Entry::used`.
    uses: AtomicU64,
    /// The number of sessions in memory from which eviction is attempted.
    next_look: AtomicUsize,
    census: Arc<Census>,
    /// The memory of the states of awake sessions.
    memory: Budget,
    /// Limits the sessions that are loaded from the store concurrently.
    waking: Semaphore,
    /// The disk space of the copies of clients' plugins.
    client_plugins: Budget,
    schemas: shared::Schemas,
    /// The observer that is notified of what sessions do.
    observer: OnceLock<Arc<dyn Observer>>,
    /// The changes of the sessions' requests for input.
    input: input_feed::InputFeed,
    /// How often all sessions left memory because the host lost its lease in a cluster.
    generation: AtomicU64,
    /// Whether a task hands sessions over to other hosts.
    hands_over: AtomicBool,
    /// The ids of the hosts that serve, as far as known, which get the sessions back whose files they have.
    serving: RwLock<HashSet<String>>,
    /// Sessions before their first turn, by id.
    drafts: Mutex<HashMap<String, Draft>>,
    row_listener: ownership::RowListenerSlot,
    /// The sessions removed while listings are in progress.
    removals: Mutex<listing::Removals>,
    tools_server: OnceLock<OpenToolsServer>,
    /// The last schema that was parsed for each backend.
    read_schemas: Mutex<HashMap<String, Arc<config::ReadSchema>>>,
    /// The backends for which a conflict with a plugin's setting was logged, with the setting.
    settings_declared: Mutex<HashSet<(String, String)>>,
}

/// One session, awake or asleep.
#[derive(Debug)]
pub struct Entry {
    /// The id, chosen by the client, under which the session is stored.
    pub id: String,
    /// The URI as the host lists it: `<provider>:/<id>`.
    pub uri: String,
    /// The agent's provider.
    pub provider: String,
    /// The session's owner.
    pub owner: Option<String>,
    /// The origin of the session, if that is not a user.
    pub origin: Option<Value>,
    /// The `{ team, project }` that the session is charged to.
    pub(crate) scope: Option<Value>,
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
    /// The mailbox is open.
    Open(Mailbox, Awake),
    /// No actor runs; the next message wakes the session.
    Asleep,
    /// The session was disposed, or could not be created.
    Gone,
}

impl Entry {
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
    /// The default chat.
    DefaultChat,
    /// A chat with a separate URI.
    Chat(String),
    /// The annotations.
    Annotations,
}

impl Sessions {
    /// Creates an empty set of sessions.
    pub(crate) fn new(
        core: Arc<Core>,
        access: Arc<Access>,
        usage: Arc<Ledger>,
        resources: Arc<Resources>,
        workspace: Arc<Workspace>,
    ) -> Arc<Self> {
        let memory = Budget::new(core.options.limits.session_memory);
        let sessions = Arc::new_cyclic(|me: &Weak<Self>| Self {
            core,
            access,
            usage,
            resources,
            workspace,
            me: me.clone(),
            entries: RwLock::default(),
            chats: RwLock::default(),
            total: AtomicUsize::default(),
            listed: AtomicUsize::default(),
            counted: AtomicBool::default(),
            whole: AtomicBool::default(),
            loading: Mutex::default(),
            uses: AtomicU64::default(),
            next_look: AtomicUsize::default(),
            census: Arc::default(),
            memory,
            waking: Semaphore::new(memory_limit::WAKING),
            client_plugins: Budget::new(client_plugins::ALL_MAX),
            schemas: shared::Schemas::default(),
            observer: OnceLock::new(),
            input: input_feed::InputFeed::default(),
            generation: AtomicU64::default(),
            hands_over: AtomicBool::default(),
            serving: RwLock::default(),
            drafts: Mutex::default(),
            row_listener: ownership::RowListenerSlot::default(),
            removals: Mutex::default(),
            tools_server: OnceLock::new(),
            read_schemas: Mutex::default(),
            settings_declared: Mutex::default(),
        });
        sessions.workspace.set_sessions(sessions.me.clone());
        sessions
    }

    /// Sets the observer of sessions, at startup.
    pub(crate) fn set_observer(&self, observer: Arc<dyn Observer>) {
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
    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.observer.get().map(|observer| &**observer)
    }

    /// Subscribes to changes of the sessions' requests for input. A receiver that falls behind by more than 1,024
    /// changes misses the oldest ones and is notified of that.
    pub fn follow_input(&self) -> broadcast::Receiver<InputChange> {
        self.input.follow()
    }

    /// Returns the session with an id, if it is in memory.
    pub fn get(&self, id: &str) -> Option<Arc<Entry>> {
        let entry = self.entries.read().get(id).cloned()?;
        self.touch(&entry);
        Some(entry)
    }

    fn touch(&self, entry: &Entry) {
        entry.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Returns the session that a URI names, regardless of its scheme, if it is in memory.
    pub fn by_uri(&self, uri: &str) -> Option<Arc<Entry>> {
        self.get(uri::session_id(uri)?)
    }

    /// Returns all sessions in memory; every awake session is among them.
    pub fn all(&self) -> Vec<Arc<Entry>> {
        self.entries.read().values().cloned().collect()
    }

    /// Returns the number of awake sessions.
    pub fn awake(&self) -> usize {
        self.census.count()
    }

    /// Returns about how many messages wait in the mailboxes of awake sessions.
    pub(crate) fn waiting_messages(&self) -> usize {
        let waiting = |entry: Arc<Entry>| match &*entry.mailbox.lock() {
            Resting::Open(mailbox, _) => mailbox.waiting(),
            Resting::Asleep | Resting::Gone => 0,
        };
        self.all().into_iter().map(waiting).sum()
    }

    /// Returns the memory of the states of awake sessions and of what waits for their backends, in bytes.
    pub(crate) fn memory_used(&self) -> usize {
        self.memory.used()
    }

    /// Returns the number of listed sessions, in memory or not: all except drafts.
    pub fn count(&self) -> usize {
        if !self.is_alone() {
            return self.listed.load(Ordering::Acquire);
        }
        self.total.load(Ordering::Acquire).saturating_sub(self.drafts.lock().len())
    }

    /// Counts a session that a host of the cluster added to the listing, or removed.
    pub(crate) fn counts_listed(&self, is_added: bool) {
        let counted = |count: usize| Some(if is_added { count + 1 } else { count.saturating_sub(1) });
        let _ = self.listed.fetch_update(Ordering::AcqRel, Ordering::Acquire, counted);
    }

    /// Counts the sessions of a cluster in the store.
    pub(crate) async fn count_listed(&self) -> Result<(), Thrown> {
        let Some(store) = self.core.session_store() else { return Ok(()) };
        let (Some(count), Some(drafts)) = (&store.count, &store.drafts) else { return Ok(()) };
        let before = self.listed.load(Ordering::Acquire);
        let drafts = drafts.within(limit::STORE, ()).await?.len();
        let count = usize::try_from(count.within(limit::STORE, ()).await?).unwrap_or(usize::MAX);
        // A change in the meantime may or may not be included.
        let listed = count.saturating_sub(drafts);
        let _ = self.listed.compare_exchange(before, listed, Ordering::AcqRel, Ordering::Acquire);
        Ok(())
    }

    /// Returns the session in memory that has a chat with this separate URI.
    pub(crate) fn session_of_chat(&self, chat: &str) -> Option<Arc<Entry>> {
        let owner = self.chats.read().get(chat).cloned();
        owner.and_then(|id| self.get(&id))
    }

    /// Parses a channel URI, using the chats in memory: a chat may have any URI that its client chose.
    pub fn channel(&self, spelled: &str) -> Channel {
        match self.chats.read().contains_key(spelled) {
            true => Channel::Chat(spelled.to_owned()),
            false => Channel::parse(spelled),
        }
    }

    /// Returns the session and the place in it that a channel names, if it is in memory.
    pub fn locate(&self, channel: &Channel) -> Option<(Arc<Entry>, Place)> {
        match channel {
            Channel::Session(id) => Some((self.get(id)?, Place::Session)),
            Channel::DefaultChat(id) => Some((self.get(id)?, Place::DefaultChat)),
            Channel::Annotations(id) => Some((self.get(id)?, Place::Annotations)),
            Channel::Chat(chat) => {
                if let Some(entry) = self.session_of_chat(chat) {
                    return Some((entry, Place::Chat(chat.clone())));
                }
                let entry = self.get(uri::old_default_chat(chat)?)?;
                Some((entry, Place::DefaultChat))
            }
            Channel::Worker { session, call } => {
                let entry = self.by_uri(session)?;
                let chat = uri::worker_chat(&entry.uri, call);
                Some((entry, Place::Chat(chat)))
            }
            _ => None,
        }
    }

    /// Returns the open mailbox of a session in memory.
    fn open(&self, mailbox: &Mailbox) -> Resting {
        Resting::Open(mailbox.clone(), self.census.enter())
    }

    /// Adds a session to the catalogue. Returns whether its id was free.
    fn claim(&self, entry: &Arc<Entry>) -> bool {
        match self.entries.write().entry(entry.id.clone()) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(free) => {
                self.touch(entry);
                free.insert(entry.clone());
                self.total.fetch_add(1, Ordering::AcqRel);
                true
            }
        }
    }

    /// Removes a session from the catalogue.
    pub(crate) fn remove(&self, entry: &Entry) {
        let mut entries = self.entries.write();
        if entries.get(&entry.id).is_some_and(|held| std::ptr::eq(&**held, entry)) {
            entries.remove(&entry.id);
            // In a cluster, the session may be one that another host created.
            let _ = self
                .total
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |total| Some(total.saturating_sub(1)));
            self.drafts.lock().remove(&entry.id);
        }
        self.removals.lock().add(&entry.id);
        self.chats.write().retain(|_, session| *session != entry.id);
    }

    /// Whether a chat belongs to a session.
    fn holds(&self, entry: &Entry, chat: &str) -> bool {
        chat == uri::default_chat(&entry.uri) || self.chats.read().get(chat) == Some(&entry.id)
    }

    /// Claims a new chat's URI for a session. Returns whether it was free.
    fn claim_new_chat(&self, chat: &str, session: &str) -> bool {
        if self.locate(&self.channel(chat)).is_some() {
            return false;
        }
        match self.chats.write().entry(chat.to_owned()) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(session.to_owned());
                true
            }
        }
    }

    /// Records that a chat now belongs to another session.
    fn give_chat(&self, chat: &str, session: &str) {
        self.chats.write().insert(chat.to_owned(), session.to_owned());
    }

    /// Releases a chat's URI.
    fn release_chat(&self, chat: &str) {
        self.chats.write().remove(chat);
    }

    /// Records which session a chat with a separate URI belongs to. Returns whether the URI was free or already
    /// belonged to that session.
    fn claim_chat(&self, chat: &str, session: &str) -> bool {
        match self.chats.write().entry(chat.to_owned()) {
            std::collections::hash_map::Entry::Occupied(held) => held.get() == session,
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(session.to_owned());
                true
            }
        }
    }
}
