//! Sessions: the ones that run, each with a mailbox of its own, and the ones that rest in the store.

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
pub(crate) mod config;
mod create;
pub(crate) mod create_chat_tool;
mod deferred;
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
mod pages;
mod places;
mod preamble;
mod prepare;
mod queue;
mod reporting;
mod requests;
mod shared;
mod side_chats;
mod size;
mod snapshots;
mod start;
mod stop;
mod store_writes;
mod storing;
mod summary;
mod toggles;
mod tools;
mod tools_server;
mod turns;
mod view;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ostler_contract::{Budget, Value};
use ostler_protocol::uri::{self, Channel};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, broadcast, watch};

use crate::core::shared::Core;
use crate::resources::Resources;
use crate::usage::Ledger;
use crate::users::access::Access;
use crate::workspace::Workspace;
pub(crate) use attachments::content_of;
use awake_limit::{Awake, Census};
pub use bound_tools::{Brought, SessionTools};
pub use chats::{ChatReady, NewChat};
pub use create::NewSession;
pub(crate) use create::computer_in;
pub use directory_facts::DirectoryFacts;
use drafts::Draft;
pub use input_feed::InputChange;
pub use mailbox::{Collected, Dispatch, Snapshots, Subscription, ToSession, TurnRequest, TurnTaken};
pub use moving::{Destination, Lent};
pub(crate) use observer::{Happened, Happening, Observer};
use queue::Mailbox;
pub(crate) use snapshots::snapshot;
pub use tools_server::OpenToolsServer;
pub use view::{Record, View};

/// The sessions of the host. In memory are those that are awake, and those that rest and were used lately. Others are in
/// the store; see [`Sessions::session`].
#[derive(Debug)]
pub struct Sessions {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) usage: Arc<Ledger>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) workspace: Arc<Workspace>,
    me: Weak<Self>,
    entries: RwLock<HashMap<String, Arc<Entry>>>,
    /// Chats with URIs of their own, by URI: the session's id. Of sessions in memory.
    chats: RwLock<HashMap<String, String>>,
    /// How many sessions there are, here and in the store. Changes with `entries` locked.
    total: AtomicUsize,
    /// Whether those in the store are counted in `total`.
    counted: AtomicBool,
    /// Whether none is but in the store: where there is no store, or one that cannot be read on demand.
    whole: AtomicBool,
    /// Those on their way into memory.
    loading: Mutex<HashMap<String, catalogue::Loading>>,
    /// What `Entry::used` is counted with.
    uses: AtomicU64,
    /// How many have to be in memory before it is looked whether some can go.
    next_look: AtomicUsize,
    census: Arc<Census>,
    /// What the states of those that are awake take in memory.
    memory: Budget,
    /// Those on their way from the store into memory.
    waking: Semaphore,
    /// What the copies of clients' plugins take on the disk.
    client_plugins: Budget,
    schemas: shared::Schemas,
    /// Is told what sessions do.
    observer: OnceLock<Arc<dyn Observer>>,
    /// What they need input for.
    input: input_feed::InputFeed,
    /// Sessions before their first turn, by id.
    drafts: Mutex<HashMap<String, Draft>>,
    /// Those removed while they are listed.
    removals: Mutex<listing::Removals>,
    tools_server: OnceLock<OpenToolsServer>,
    /// What each backend's schema was read as last.
    read_schemas: Mutex<HashMap<String, Arc<config::ReadSchema>>>,
    /// Which backends were said to declare a setting a plugin contributes.
    settings_declared: Mutex<HashSet<(String, String)>>,
}

/// One session, running or resting.
#[derive(Debug)]
pub struct Entry {
    /// What the client chose; how it is stored.
    pub id: String,
    /// As the host lists it: `<provider>:/<id>`.
    pub uri: String,
    /// Its backend.
    pub provider: String,
    /// Whose it is.
    pub owner: Option<String>,
    /// What made it, where that was no user.
    pub origin: Option<Value>,
    /// `{ team, project }` that is charged.
    pub(crate) scope: Option<Value>,
    /// What everyone but its actor reads of it.
    published: view::Published,
    /// Whether the store has it otherwise than it was published.
    unstored: AtomicBool,
    /// What its clients brought, for its tools endpoint.
    brought: watch::Sender<Brought>,
    /// The client that created it.
    client: Option<String>,
    /// Tokens of the clients that created it and its chats.
    lent_tokens: Mutex<lending::LentTokens>,
    /// Attachments whose content clients have.
    client_resources: client_resources::ClientResources,
    mailbox: Mutex<Resting>,
    /// Its running turns, for those who stop them.
    stops: stop::Stops,
    /// What its state takes in memory while it is awake.
    memory: AtomicUsize,
    /// When it was looked up last, of all look-ups.
    used: AtomicU64,
    /// How often what is around it was looked at.
    looks: AtomicU64,
}

/// Whether somebody reads the mailbox.
#[derive(Debug)]
enum Resting {
    /// A mailbox is open.
    Open(Mailbox, Awake),
    /// Nobody does; the next message wakes it.
    Asleep,
    /// It was disposed, or could not be made.
    Gone,
}

impl Entry {
    /// Whether the session is being ended or is gone.
    pub fn is_gone(&self) -> bool {
        matches!(*self.mailbox.lock(), Resting::Gone)
    }

    /// Ends the session for good: nobody takes a message for it any more.
    fn end(&self) {
        *self.mailbox.lock() = Resting::Gone;
        self.end_tools();
    }

    /// Whether its state is in memory.
    pub fn is_awake(&self) -> bool {
        matches!(*self.mailbox.lock(), Resting::Open(..))
    }
}

/// Where in a session a channel is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The session's own channel.
    Session,
    /// Its default chat.
    DefaultChat,
    /// A chat of its own URI.
    Chat(String),
    /// What is noted beside its files.
    Annotations,
}

impl Sessions {
    /// No sessions yet.
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
            drafts: Mutex::default(),
            removals: Mutex::default(),
            tools_server: OnceLock::new(),
            read_schemas: Mutex::default(),
            settings_declared: Mutex::default(),
        });
        sessions.workspace.set_sessions(sessions.me.clone());
        sessions
    }

    /// Tells somebody what sessions do, from the start on.
    pub(crate) fn set_observer(&self, observer: Arc<dyn Observer>) {
        let _ = self.observer.set(observer);
    }

    /// Gives backends a way to open a tools endpoint. Without one they are told that there is none.
    pub fn set_tools_server(&self, open: OpenToolsServer) {
        let _ = self.tools_server.set(open);
    }

    fn tools_server(&self) -> Option<OpenToolsServer> {
        self.tools_server.get().cloned()
    }

    /// These sessions for a task of their own.
    fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// What sessions report to; on a host there is always one.
    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.observer.get().map(|observer| &**observer)
    }

    /// Follows what sessions need input for, from now on. Who falls behind by more than 1,024 changes misses the oldest
    /// ones and is told so.
    pub fn follow_input(&self) -> broadcast::Receiver<InputChange> {
        self.input.follow()
    }

    /// The session of an id, if it is in memory.
    pub fn get(&self, id: &str) -> Option<Arc<Entry>> {
        let entry = self.entries.read().get(id).cloned()?;
        self.touch(&entry);
        Some(entry)
    }

    fn touch(&self, entry: &Entry) {
        entry.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The session a URI names, whatever its scheme, if it is in memory.
    pub fn by_uri(&self, uri: &str) -> Option<Arc<Entry>> {
        self.get(uri::session_id(uri)?)
    }

    /// Every session in memory. One that is awake is.
    pub fn all(&self) -> Vec<Arc<Entry>> {
        self.entries.read().values().cloned().collect()
    }

    /// How many are awake.
    pub fn awake(&self) -> usize {
        self.census.count()
    }

    /// How many are listed, in memory or not: all but drafts.
    pub fn count(&self) -> usize {
        self.total.load(Ordering::Acquire).saturating_sub(self.drafts.lock().len())
    }

    /// The session in memory that has a chat with a URI of its own.
    pub(crate) fn session_of_chat(&self, chat: &str) -> Option<Arc<Entry>> {
        let owner = self.chats.read().get(chat).cloned();
        owner.and_then(|id| self.get(&id))
    }

    /// What a channel URI names, as far as is in memory: a chat keeps whatever URI its client chose.
    pub fn channel(&self, spelled: &str) -> Channel {
        match self.chats.read().contains_key(spelled) {
            true => Channel::Chat(spelled.to_owned()),
            false => Channel::parse(spelled),
        }
    }

    /// The session and the place in it that a channel names, if it is in memory.
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

    /// A mailbox that is open, of a session in memory.
    fn open(&self, mailbox: &Mailbox) -> Resting {
        Resting::Open(mailbox.clone(), self.census.enter())
    }

    /// Puts a session into the catalogue; answers whether its id was free.
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

    /// Takes a session out of the catalogue.
    pub(crate) fn remove(&self, entry: &Entry) {
        let mut entries = self.entries.write();
        if entries.get(&entry.id).is_some_and(|held| std::ptr::eq(&**held, entry)) {
            entries.remove(&entry.id);
            self.total.fetch_sub(1, Ordering::AcqRel);
            self.drafts.lock().remove(&entry.id);
        }
        self.removals.lock().add(&entry.id);
        self.chats.write().retain(|_, session| *session != entry.id);
    }

    /// Whether a chat is a session's own.
    fn holds(&self, entry: &Entry, chat: &str) -> bool {
        chat == uri::default_chat(&entry.uri) || self.chats.read().get(chat) == Some(&entry.id)
    }

    /// Takes a chat's URI for a session; answers whether nothing had it.
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

    /// Says that a chat is another session's now.
    fn give_chat(&self, chat: &str, session: &str) {
        self.chats.write().insert(chat.to_owned(), session.to_owned());
    }

    /// Lets a chat's URI go.
    fn release_chat(&self, chat: &str) {
        self.chats.write().remove(chat);
    }

    /// Says which session a chat with a URI of its own belongs to; answers whether the URI was free.
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
