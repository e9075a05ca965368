//! The host: one registry, one sequence, the sessions and automations, and the doors into them.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ostler_contract::events::{Event, EventName};
use ostler_contract::http::{Request, Response};
use ostler_contract::points::{
    AutomationStore, Offered, Policies, PullRequests, RecordStore, SchemeProvider, SessionStore, ToolsServer,
    ToolsServerOptions, Vault,
};
use ostler_contract::registry::Owned;
use ostler_contract::{Bodies, Budget, JsonObject, Pending, Registry, Thrown, Value};
use ostler_protocol::Version;
use ostler_protocol::wire::state::{Message, MessageKind, MessageOrigin};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::agents::agent_info;
use crate::automations::Automations;
use crate::changesets::Changesets;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::containers::Relays;
use crate::events::Events;
use crate::fanout::{ConnectionId, DEFAULT_REPLAY, Fanout};
use crate::limits::Limits;
use crate::log::Log;
use crate::machines::Here;
use crate::outbox::DEFAULT_LIMIT;
use crate::plugin_channels::PluginChannels;
use crate::principal::{Gate, Principal};
use crate::resources::Watch;
use crate::root::Root;
use crate::sessions::{SessionTools, Sessions};
use crate::settings::OwnSettings;
use crate::telemetry::Telling;
use crate::terminals::Terminals;
use crate::usage::UsageOptions;
use crate::wire::Wire;

/// How a host is set up.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// What this host is called, for work nobody started as themselves.
    pub host_name: String,
    /// The daemon's version.
    pub version: String,
    /// Every directory served; the first is the default for new work.
    pub paths: Vec<String>,
    /// How long streamed text that follows a part's first delta is coalesced, in ms; 0 coalesces nothing.
    pub delta_window_ms: u64,
    /// How long a client's tool may take, in ms; 0 = forever.
    pub client_tool_timeout_ms: u64,
    /// Whether automations nobody owns are run by events.
    pub unowned_automations: bool,
    /// Whether tools that ask for the operator's leave are offered.
    pub advanced_tools: bool,
    /// Whether policies are asked before work starts.
    pub check_policies: bool,
    /// How use is counted.
    pub usage: UsageOptions,
    /// The `mcpServers` entries.
    pub mcp_servers: McpServers,
    /// How much of the past is kept for reconnecting clients, in bytes.
    pub replay: usize,
    /// How much may wait for one client, in bytes.
    pub outbox: usize,
    /// How many sessions that rest stay in memory.
    pub resting_sessions: usize,
    /// How much is used on behalf of clients.
    pub limits: Limits,
}

impl HostOptions {
    /// The window streamed text is gathered in, where nothing else is said.
    pub const DELTA_WINDOW_MS: u64 = 75;
    /// How long a client's tool may take, where nothing else is said.
    pub const CLIENT_TOOL_TIMEOUT_MS: u64 = 600_000;
    /// How many sessions that rest stay in memory, where nothing else is said.
    pub const RESTING_SESSIONS: usize = 1000;
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            host_name: "localhost".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            paths: Vec::new(),
            delta_window_ms: Self::DELTA_WINDOW_MS,
            client_tool_timeout_ms: Self::CLIENT_TOOL_TIMEOUT_MS,
            unowned_automations: true,
            advanced_tools: false,
            check_policies: false,
            usage: UsageOptions::default(),
            mcp_servers: McpServers::default(),
            replay: DEFAULT_REPLAY,
            outbox: DEFAULT_LIMIT,
            resting_sessions: Self::RESTING_SESSIONS,
            limits: Limits::default(),
        }
    }
}

/// The `mcpServers` entries by name, read anew at each session's start.
#[derive(Clone, Default)]
pub struct McpServers(Option<Arc<dyn Fn() -> JsonObject + Send + Sync>>);

impl McpServers {
    /// From a function that answers them as they are now.
    pub fn new(read: impl Fn() -> JsonObject + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(read)))
    }

    /// The entries as they are now; nothing where there are none.
    fn read(&self) -> Option<JsonObject> {
        self.0.as_ref().map(|read| read()).filter(|servers| !servers.is_empty())
    }
}

impl std::fmt::Debug for McpServers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("McpServers")
    }
}

/// Reading and writing YAML, which the engine leaves to whoever builds it.
#[derive(Clone)]
pub struct Yaml {
    /// YAML text as data.
    pub parse: Arc<dyn Fn(&str) -> Result<Value, Thrown> + Send + Sync>,
    /// Data as YAML text.
    pub stringify: Arc<dyn Fn(&Value) -> Result<String, Thrown> + Send + Sync>,
}

impl Default for Yaml {
    fn default() -> Self {
        let none = || Thrown::new("this host reads and writes no YAML");
        Self { parse: Arc::new(move |_| Err(none())), stringify: Arc::new(move |_| Err(none())) }
    }
}

impl std::fmt::Debug for Yaml {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Yaml")
    }
}

/// Opens a session's tools endpoint; given by whoever listens.
#[derive(Clone)]
pub struct OpenToolsServer(Arc<OpenTools>);

type OpenTools = dyn Fn(SessionTools, ToolsServerOptions) -> Pending<Option<ToolsServer>> + Send + Sync;

impl OpenToolsServer {
    /// From a function of the session's tools and what the backend wants of its endpoint.
    pub fn new(
        open: impl Fn(SessionTools, ToolsServerOptions) -> Pending<Option<ToolsServer>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(open))
    }

    pub(crate) fn open(
        &self,
        tools: SessionTools,
        options: ToolsServerOptions,
    ) -> Pending<Option<ToolsServer>> {
        (self.0)(tools, options)
    }
}

impl std::fmt::Debug for OpenToolsServer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OpenToolsServer")
    }
}

/// Sends plugins' HTTP requests; given by whoever may reach the network.
#[derive(Clone)]
pub struct Outbound(Arc<SendOut>);

type SendOut = dyn Fn(Request) -> Pending<Response> + Send + Sync;

impl Outbound {
    /// From a function of one request.
    pub fn new(send: impl Fn(Request) -> Pending<Response> + Send + Sync + 'static) -> Self {
        Self(Arc::new(send))
    }

    pub(crate) fn send(&self, request: Request) -> Pending<Response> {
        (self.0)(request)
    }
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Outbound")
    }
}

/// How many clients' versions are remembered.
const CLIENTS_KEPT: usize = 10_000;

/// How far the host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Plugins are being applied.
    Loading,
    /// The registry is built; nobody is let in yet.
    Built,
    /// Connections are accepted.
    Listening,
    /// New sessions and turns are refused.
    Stopping,
    /// It ends.
    Closing,
}

/// The host.
#[derive(Debug)]
pub struct Host {
    /// How it is set up.
    pub options: HostOptions,
    /// Memory used on behalf of clients.
    pub budget: Budget,
    /// Of it, what bodies of requests take.
    pub bodies: Bodies,
    /// What time it is.
    pub clock: Clock,
    /// Where lines go; listeners hear them.
    pub log: Log,
    /// The same, unheard: for what a listener to lines says of itself.
    pub(crate) written: Log,
    /// The one sequence.
    pub fanout: Fanout,
    /// The root channel.
    pub root: Root,
    /// Sessions.
    pub sessions: Sessions,
    /// Automations and runs.
    pub automations: Automations,
    /// Listeners.
    pub events: Events,
    /// Who may do what.
    pub gate: Gate,
    pub(crate) yaml: Yaml,
    pub(crate) announcements: Mutex<Option<Vec<String>>>,
    pub(crate) collections: Mutex<HashMap<String, ostler_contract::PluginId>>,
    pub(crate) plugin_channels: PluginChannels,
    /// Which backends were said to declare a setting a plugin contributes.
    pub(crate) settings_declared: Mutex<HashSet<(String, String)>>,
    /// What each backend said it offers.
    pub(crate) offered: RwLock<HashMap<String, Offered>>,
    pub(crate) changesets: Changesets,
    pub(crate) telling: Telling,
    pub(crate) wire: Arc<Wire>,
    me: Weak<Host>,
    registry: OnceLock<Registry>,
    stage: watch::Sender<Stage>,
    connections: RwLock<HashMap<ConnectionId, Weak<Connection>>>,
    next_connection: AtomicU64,
    next_opener: AtomicU64,
    tools_server: OnceLock<OpenToolsServer>,
    pub(crate) own_settings: OnceLock<Arc<dyn OwnSettings>>,
    pub(crate) advanced_tools: AtomicBool,
    own_sessions: OnceLock<SessionStore>,
    outbound: OnceLock<Outbound>,
    pub(crate) watches: Mutex<HashMap<String, Watch>>,
    pub(crate) terminals: Terminals,
    pub(crate) relays: Relays,
    pub(crate) here: OnceLock<Arc<dyn Here>>,
    pub(crate) lost_storage: RwLock<Option<String>>,
    /// Sessions whose tree is followed.
    pub(crate) followed_trees: Mutex<HashSet<String>>,
    pub(crate) own_providers: OnceLock<Vec<Owned<SchemeProvider>>>,
    pub(crate) files: OnceLock<Option<Owned<SchemeProvider>>>,
    pub(crate) meta: OnceLock<JsonObject>,
    /// What clients spoke when they were last here, for one that comes back without saying.
    spoken: Mutex<HashMap<String, Version>>,
}

impl Host {
    /// A host that plugins may already be applied against; [`Host::build`] makes it serve.
    pub fn new(options: HostOptions, clock: Clock, log: Log, yaml: Yaml, gate: Gate) -> Arc<Self> {
        let budget = Budget::new(options.limits.memory);
        Arc::new_cyclic(|me| Self {
            bodies: Bodies::new(budget.clone(), options.limits.unverified_bodies),
            budget,
            fanout: Fanout::new(options.replay, first_number(&clock)),
            advanced_tools: AtomicBool::new(options.advanced_tools),
            options,
            clock,
            log: heard(log.clone(), me.clone()),
            written: log,
            root: Root::new(),
            sessions: Sessions::default(),
            automations: Automations::default(),
            events: Events::default(),
            gate,
            yaml,
            announcements: Mutex::new(Some(Vec::new())),
            collections: Mutex::default(),
            plugin_channels: PluginChannels::default(),
            settings_declared: Mutex::default(),
            offered: RwLock::default(),
            changesets: Changesets::default(),
            telling: Telling::default(),
            wire: Arc::default(),
            me: me.clone(),
            registry: OnceLock::new(),
            stage: watch::Sender::new(Stage::Loading),
            connections: RwLock::default(),
            next_connection: AtomicU64::new(1),
            next_opener: AtomicU64::new(1),
            tools_server: OnceLock::new(),
            own_settings: OnceLock::new(),
            own_sessions: OnceLock::new(),
            outbound: OnceLock::new(),
            watches: Mutex::default(),
            terminals: Terminals::default(),
            relays: Relays::default(),
            here: OnceLock::new(),
            lost_storage: RwLock::default(),
            followed_trees: Mutex::default(),
            own_providers: OnceLock::new(),
            files: OnceLock::new(),
            meta: OnceLock::new(),
            spoken: Mutex::default(),
        })
    }

    /// Takes the registry, once, and everything the stores hold.
    pub async fn build(&self, registry: Registry) {
        let log = self.written.clone();
        if self.registry.set(registry).is_err() {
            return;
        }
        let Some(registry) = self.registry.get() else { return };
        self.events.start(registry, Arc::new(move |line| log.line(line)));
        let agents = self.listed_agents().map(|agent| agent_info(agent)).collect();
        if let Some(people) = self.gate.people() {
            self.root.ask_for(people.sign_in());
        }
        if let Some(github) = registry.port::<PullRequests>() {
            self.root.offer(github.resource.0.clone());
        }
        let meta = self.advertised().await;
        self.root.fill(agents, meta);
        if self.terminal_store().is_some() {
            self.root.serve_terminals();
        }
        self.open_sessions().await;
        self.root.set_active_sessions(&self.fanout, self.sessions.count());
        self.warn_of_no_policies().await;
        self.reach(Stage::Built);
        if let Some(me) = self.me.upgrade() {
            me.clone().load_automations().await;
            self.automations.loaded.send_replace(true);
            tokio::spawn(me.probe_agents());
        }
    }

    /// Says that connections are accepted from now on.
    pub fn listening(&self) {
        self.reach(Stage::Listening);
    }

    /// Resolves once the registry is built.
    pub async fn built(&self) {
        let mut stage = self.stage.subscribe();
        let _ = stage.wait_for(|stage| *stage != Stage::Loading).await;
    }

    /// Goes on to a stage; `false` where the host was there already, or further.
    pub(crate) fn reach(&self, stage: Stage) -> bool {
        self.stage.send_if_modified(|at| {
            let forward = *at < stage;
            *at = stage.max(*at);
            forward
        })
    }

    /// How far the host is.
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Gives backends a way to open a tools endpoint. Without one they are told that there is none.
    pub fn set_tools_server(&self, open: OpenToolsServer) {
        let _ = self.tools_server.set(open);
    }

    /// Gives plugins a way to the network. Without one they are told that there is none.
    pub fn set_outbound(&self, outbound: Outbound) {
        let _ = self.outbound.set(outbound);
    }

    pub(crate) fn outbound(&self) -> Option<&Outbound> {
        self.outbound.get()
    }

    pub(crate) fn tools_server(&self) -> Option<OpenToolsServer> {
        self.tools_server.get().cloned()
    }

    pub(crate) fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// The host for something it holds itself.
    pub(crate) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    /// The registry, once built.
    pub fn registry(&self) -> Option<&Registry> {
        self.registry.get()
    }

    /// The session store.
    pub fn session_store(&self) -> Option<&SessionStore> {
        self.registry()?.port::<SessionStore>()
    }

    /// Gives the host a store of its own, for what a session store does not keep.
    pub fn set_own_sessions(&self, store: SessionStore) {
        let _ = self.own_sessions.set(store);
    }

    /// The host's own store, where the session store does not keep all that the host has to keep.
    pub(crate) fn own_sessions(&self) -> Option<&SessionStore> {
        let whole = |store: &SessionStore| {
            store.keeps_turns() && store.keeps_annotations() && store.keeps_attachments()
        };
        let keeps = self.session_store().is_some_and(whole);
        self.own_sessions.get().filter(|_| !keeps)
    }

    /// The host's own store, for what the session store does not keep.
    pub(crate) fn spare_sessions(&self) -> Option<&SessionStore> {
        self.own_sessions.get()
    }

    /// The store turns are kept in.
    pub(crate) fn turn_store(&self) -> Option<&SessionStore> {
        self.store_of(SessionStore::keeps_turns)
    }

    /// The store annotations are kept in.
    pub(crate) fn annotation_store(&self) -> Option<&SessionStore> {
        self.store_of(SessionStore::keeps_annotations).filter(|store| store.keeps_annotations())
    }

    fn store_of(&self, keeps: fn(&SessionStore) -> bool) -> Option<&SessionStore> {
        let store = self.session_store();
        store.filter(|store| keeps(store)).or_else(|| self.own_sessions.get()).or(store)
    }

    /// The automation store.
    pub fn automation_store(&self) -> Option<&AutomationStore> {
        self.registry()?.port::<AutomationStore>()
    }

    /// The automation store, for a command that needs one.
    pub(crate) fn automations_kept(&self) -> Result<&AutomationStore, ostler_protocol::RpcError> {
        self.automation_store().ok_or_else(crate::refusals::no_automations)
    }

    /// The record store.
    pub fn record_store(&self) -> Option<&RecordStore> {
        self.registry()?.port::<RecordStore>()
    }

    /// The policies.
    pub fn policies(&self) -> Option<&Policies> {
        self.registry()?.port::<Policies>()
    }

    /// The vault.
    pub fn vault(&self) -> Option<&Vault> {
        self.registry()?.port::<Vault>()
    }

    pub(crate) fn mcp_servers(&self) -> Option<JsonObject> {
        self.options.mcp_servers.read()
    }

    /// A new id nobody has.
    pub fn new_id(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    pub(crate) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn next_opener(&self) -> u64 {
        self.next_opener.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn add_connection(&self, connection: &Arc<Connection>) {
        self.connections.write().insert(connection.id(), Arc::downgrade(connection));
    }

    pub(crate) fn remove_connection(&self, id: ConnectionId) {
        self.connections.write().remove(&id);
    }

    /// Every connection that is open.
    pub(crate) fn open_connections(&self) -> Vec<Arc<Connection>> {
        self.connections.read().values().filter_map(Weak::upgrade).collect()
    }

    /// The connection of that number.
    pub(crate) fn connection(&self, id: ConnectionId) -> Option<Arc<Connection>> {
        self.connections.read().get(&id).and_then(Weak::upgrade)
    }

    /// Whether a connection is one of a client's.
    pub(crate) fn is_client(&self, id: ConnectionId, client: &str) -> bool {
        self.connection(id).is_some_and(|connection| connection.client_id().as_deref() == Some(client))
    }

    /// Puts down what a client speaks.
    pub(crate) fn remember_client(&self, client: &str, version: Version) {
        let mut spoken = self.spoken.lock();
        if spoken.len() >= CLIENTS_KEPT {
            spoken.clear();
        }
        spoken.insert(client.to_owned(), version);
    }

    /// What a client spoke when it was last here.
    pub(crate) fn spoken_by(&self, client: &str) -> Option<Version> {
        self.spoken.lock().get(client).copied()
    }

    /// Ends what nobody may have any more, after what the host knows of people has changed.
    pub fn people_changed(&self) {
        for connection in self.open_connections() {
            connection.drop_forbidden();
        }
    }

    /// Who a connection is, for the client: said only where the host knows people.
    pub(crate) fn principal_fact(&self, principal: &Principal) -> Option<String> {
        self.gate.guarded.then(|| principal.owner(&self.options.host_name)).flatten()
    }
}

/// What a host counts its actions from: the microsecond it began at, which no host before it can have reached.
fn first_number(clock: &Clock) -> u64 {
    u64::try_from(clock.now().as_microsecond()).unwrap_or_default()
}

/// A log whose lines listeners hear.
fn heard(log: Log, host: Weak<Host>) -> Log {
    log.through(move |log, line| {
        log.line(line);
        if let Some(host) = host.upgrade()
            && host.events.listened(EventName::Log)
        {
            host.events.raise(Event::Log { line: line.to_owned() });
        }
    })
}

/// A host that something holds without keeping it alive.
pub(crate) fn upgraded(host: &Weak<Host>) -> Result<Arc<Host>, Thrown> {
    host.upgrade().ok_or_else(|| Thrown::new("the host is gone"))
}

/// A message of the host's own making.
pub fn message(text: String, kind: MessageKind) -> Message {
    Message { text, origin: MessageOrigin { kind }, attachments: None, model: None, agent: None, meta: None }
}

/// A path as a `file:` URI; what is one already stays.
pub fn file_uri(path: &str) -> String {
    if path.starts_with("file:") {
        return path.to_owned();
    }
    url::Url::from_file_path(path).map_or_else(|()| format!("file://{path}"), String::from)
}

/// A `file:` URI as a path; what is a path already stays.
pub fn file_path(uri: &str) -> String {
    path_of(uri).map_or_else(|| uri.to_owned(), |path| path.to_string_lossy().into_owned())
}

fn path_of(uri: &str) -> Option<PathBuf> {
    let url = url::Url::parse(uri).ok().filter(|url| url.scheme() == "file")?;
    url.to_file_path().ok()
}

/// Whether a text names a directory to work in: a `file:` URI or an absolute path.
pub(crate) fn names_a_directory(text: &str) -> bool {
    text.starts_with('/') || path_of(text).is_some()
}
