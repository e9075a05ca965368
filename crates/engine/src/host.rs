//! The host: one registry, one sequence, the sessions and automations, and the doors into them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ostler_contract::points::{
    Agent, AutomationStore, Close, RecordStore, SessionStore, Tool, ToolSession, ToolsServer,
    ToolsServerOptions, Vault,
};
use ostler_contract::registry::Owned;
use ostler_contract::{JsonObject, Pending, Registry, Thrown, Value};
use ostler_protocol::wire::state::{
    AgentCapabilities, AgentInfo, ChatSummary, Message, MessageKind, MessageOrigin, MultipleChatsCapability,
    MultipleWorkingDirectoriesCapability, SessionSummary, Turn,
};
use ostler_protocol::{RpcError, Version, uri};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{oneshot, watch};

use crate::automations::Automations;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::events::Events;
use crate::fanout::{ConnectionId, DEFAULT_REPLAY, Fanout};
use crate::log::Log;
use crate::outbox::DEFAULT_LIMIT;
use crate::principal::{Gate, Principal};
use crate::resources::Watch;
use crate::root::Root;
use crate::sessions::{Entry, NewSession, Place, Sessions, ToSession, TurnRequest, TurnTaken};

/// How a host is set up.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// What this host is called, for work nobody started as themselves.
    pub host_name: String,
    /// The daemon's version.
    pub version: String,
    /// Every directory served; the first is the default for new work.
    pub paths: Vec<String>,
    /// How long streamed text of one part is gathered, in ms; 0 gathers nothing.
    pub delta_window_ms: u64,
    /// How long a client's tool may take, in ms; 0 = forever.
    pub client_tool_timeout_ms: u64,
    /// Whether automations nobody owns are run by events.
    pub unowned_automations: bool,
    /// Whether tools that ask for the operator's leave are offered.
    pub advanced_tools: bool,
    /// The `mcpServers` entries by name.
    pub mcp_servers: JsonObject,
    /// How much of the past is kept for reconnecting clients, in bytes.
    pub replay: usize,
    /// How much may wait for one client, in bytes.
    pub outbox: usize,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            host_name: "localhost".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            paths: Vec::new(),
            delta_window_ms: 75,
            client_tool_timeout_ms: 600_000,
            unowned_automations: true,
            advanced_tools: false,
            mcp_servers: JsonObject::new(),
            replay: DEFAULT_REPLAY,
            outbox: DEFAULT_LIMIT,
        }
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

type OpenTools = dyn Fn(String, Option<ToolsServerOptions>) -> Pending<Option<ToolsServer>> + Send + Sync;

impl OpenToolsServer {
    /// From a function of the session's URI.
    pub fn new(
        open: impl Fn(String, Option<ToolsServerOptions>) -> Pending<Option<ToolsServer>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(open))
    }

    pub(crate) fn open(
        &self,
        session: String,
        options: Option<ToolsServerOptions>,
    ) -> Pending<Option<ToolsServer>> {
        (self.0)(session, options)
    }
}

impl std::fmt::Debug for OpenToolsServer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OpenToolsServer")
    }
}

/// How many clients' versions are remembered.
const CLIENTS_KEPT: usize = 10_000;

/// How far the host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Plugins are being applied.
    Loading,
    /// The registry is built; nobody is let in yet.
    Built,
    /// Connections are accepted.
    Listening,
    /// It ends.
    Closing,
}

/// The host.
#[derive(Debug)]
pub struct Host {
    /// How it is set up.
    pub options: HostOptions,
    /// What time it is.
    pub clock: Clock,
    /// Where lines go.
    pub log: Log,
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
    me: Weak<Host>,
    registry: OnceLock<Registry>,
    stage: watch::Sender<Stage>,
    connections: RwLock<HashMap<ConnectionId, Weak<Connection>>>,
    next_connection: AtomicU64,
    tools_server: OnceLock<OpenToolsServer>,
    stopping: AtomicBool,
    closing: AtomicBool,
    pub(crate) watches: Mutex<HashMap<String, Watch>>,
    pub(crate) meta: OnceLock<JsonObject>,
    /// What clients spoke when they were last here, for one that comes back without saying.
    spoken: Mutex<HashMap<String, Version>>,
}

impl Host {
    /// A host that plugins may already be applied against; [`Host::build`] makes it serve.
    pub fn new(options: HostOptions, clock: Clock, log: Log, yaml: Yaml, gate: Gate) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            fanout: Fanout::new(options.replay),
            options,
            clock,
            log,
            root: Root::new(),
            sessions: Sessions::default(),
            automations: Automations::default(),
            events: Events::default(),
            gate,
            yaml,
            announcements: Mutex::new(Some(Vec::new())),
            collections: Mutex::default(),
            me: me.clone(),
            registry: OnceLock::new(),
            stage: watch::Sender::new(Stage::Loading),
            connections: RwLock::default(),
            next_connection: AtomicU64::new(1),
            tools_server: OnceLock::new(),
            stopping: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            watches: Mutex::default(),
            meta: OnceLock::new(),
            spoken: Mutex::default(),
        })
    }

    /// Takes the registry, once, and everything the stores hold.
    pub async fn build(&self, registry: Registry) {
        let log = self.log.clone();
        if self.registry.set(registry).is_err() {
            return;
        }
        let Some(registry) = self.registry.get() else { return };
        self.events.start(registry, Arc::new(move |line| log.line(line)));
        let agents = registry.all::<Agent>().iter().map(|agent| agent_info(agent)).collect();
        let meta = self.advertised().await;
        self.root.fill(agents, meta);
        self.load_sessions().await;
        self.root.set_active_sessions(&self.fanout, self.sessions.count());
        self.stage.send_replace(Stage::Built);
        if let Some(me) = self.me.upgrade() {
            me.clone().load_automations().await;
            tokio::spawn(me.probe_agents());
        }
    }

    /// Says that connections are accepted from now on.
    pub fn listening(&self) {
        self.stage.send_replace(Stage::Listening);
    }

    /// Resolves once the registry is built.
    pub async fn built(&self) {
        let mut stage = self.stage.subscribe();
        let _ = stage.wait_for(|stage| *stage != Stage::Loading).await;
    }

    /// How far the host is.
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Gives backends a way to open a tools endpoint. Without one they are told that there is none.
    pub fn set_tools_server(&self, open: OpenToolsServer) {
        let _ = self.tools_server.set(open);
    }

    pub(crate) fn tools_server(&self) -> Option<OpenToolsServer> {
        self.tools_server.get().cloned()
    }

    pub(crate) fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// The registry, once built.
    pub fn registry(&self) -> Option<&Registry> {
        self.registry.get()
    }

    /// The session store.
    pub fn session_store(&self) -> Option<&SessionStore> {
        self.registry()?.port::<SessionStore>()
    }

    /// The automation store.
    pub fn automation_store(&self) -> Option<&AutomationStore> {
        self.registry()?.port::<AutomationStore>()
    }

    /// The record store.
    pub fn record_store(&self) -> Option<&RecordStore> {
        self.registry()?.port::<RecordStore>()
    }

    /// The vault.
    pub fn vault(&self) -> Option<&Vault> {
        self.registry()?.port::<Vault>()
    }

    /// The backend of that name.
    pub fn agent(&self, provider: &str) -> Option<Owned<Agent>> {
        self.registry()?.all::<Agent>().iter().find(|agent| *agent.provider == *provider).cloned()
    }

    /// The default backend: the first one registered.
    pub fn first_agent(&self) -> Option<Owned<Agent>> {
        self.registry()?.all::<Agent>().first().cloned()
    }

    /// The tools every session is offered.
    pub fn offered_tools(&self) -> Vec<Owned<Tool>> {
        let Some(registry) = self.registry() else { return Vec::new() };
        let offered =
            |tool: &&Owned<Tool>| self.options.advanced_tools || tool.advanced_permission != Some(true);
        registry.all::<Tool>().iter().filter(offered).cloned().collect()
    }

    pub(crate) fn mcp_servers(&self) -> Option<JsonObject> {
        (!self.options.mcp_servers.is_empty()).then(|| self.options.mcp_servers.clone())
    }

    /// A new id nobody has.
    pub fn new_id(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    /// Whether the host ends.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    // ---- connections ----

    pub(crate) fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn add_connection(&self, connection: &Arc<Connection>) {
        self.connections.write().insert(connection.id(), Arc::downgrade(connection));
    }

    pub(crate) fn remove_connection(&self, id: ConnectionId) {
        self.connections.write().remove(&id);
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

    /// Who a connection is, for the client: said only where the host knows people.
    pub(crate) fn principal_fact(&self, principal: &Principal) -> Option<String> {
        self.gate.guarded.then(|| principal.owner(&self.options.host_name)).flatten()
    }

    // ---- sessions ----

    /// What a listing shows, newest first.
    pub fn session_rows(&self) -> Vec<SessionSummary> {
        let mut rows: Vec<SessionSummary> =
            self.sessions.all().iter().map(|entry| entry.row.lock().summary.clone()).collect();
        rows.sort_by(|a, b| b.modified_at.cmp(&a.modified_at).then_with(|| a.resource.cmp(&b.resource)));
        rows
    }

    pub(crate) async fn chats_of(self: &Arc<Self>, entry: &Arc<Entry>) -> Option<Vec<ChatSummary>> {
        let (answer, wait) = oneshot::channel();
        self.tell(entry, ToSession::Chats { answer });
        wait.await.ok()
    }

    /// The turns of a chat, as they are.
    pub async fn turns_of(self: &Arc<Self>, entry: &Arc<Entry>, place: Place) -> Option<Vec<Turn>> {
        let (answer, wait) = oneshot::channel();
        self.tell(entry, ToSession::Turns { place, answer });
        wait.await.ok().flatten()
    }

    /// Starts a turn of the host's own.
    pub async fn start_turn(
        self: &Arc<Self>,
        entry: &Arc<Entry>,
        request: TurnRequest,
    ) -> Result<TurnTaken, String> {
        let (taken, wait) = oneshot::channel();
        self.tell(entry, ToSession::Turn { request: Box::new(request), taken });
        wait.await.map_err(|_| "the session has ended".to_owned())?
    }

    /// Ends a session and forgets it.
    pub async fn dispose_session(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<(), RpcError> {
        let (done, wait) = oneshot::channel();
        if !self.tell(entry, ToSession::Dispose { done }) || wait.await.is_err() {
            return Err(RpcError::session_not_found(crate::sessions::not_found(&entry.uri)));
        }
        Ok(())
    }

    /// What is left to do once a session's state is gone.
    pub(crate) async fn forget_session(&self, entry: &Arc<Entry>, backend_ids: Vec<String>) {
        if let Some(delete) = self.agent(&entry.provider).and_then(|agent| agent.delete.clone()) {
            let directory = entry.row.lock().kept.working_directories.first().map(|uri| file_path(uri));
            for id in backend_ids {
                if let Err(why) = delete.call((id, directory.clone())).await {
                    self.log.line(format_args!("{}: {} kept its own copy: {why}", entry.uri, entry.provider));
                }
            }
        }
        if let Some(store) = self.session_store()
            && let Err(why) = store.forget.call((entry.id.clone(),)).await
        {
            self.log.line(format_args!("{} could not be forgotten: {why}", entry.uri));
        }
        self.sessions.remove(entry);
        let params = ostler_protocol::json!({ "channel": uri::ROOT, "session": entry.uri });
        if let Ok(frame) = ostler_protocol::message::encode::notification("root/sessionRemoved", &params) {
            self.fanout.notify(uri::ROOT, frame);
        }
        self.root.set_active_sessions(&self.fanout, self.sessions.count());
        self.automations.session_gone(self, &entry.uri).await;
    }

    /// Starts a session for a tool: of the same owner, where the calling session works.
    pub(crate) async fn session_by_tool(
        self: &Arc<Self>,
        from: &str,
        request: ToolSession,
    ) -> Result<String, Thrown> {
        let entry = self
            .sessions
            .by_uri(from)
            .ok_or_else(|| Thrown::from(RpcError::session_not_found(crate::sessions::not_found(from))))?;
        let directories = match &request.working_directory {
            Some(path) => vec![file_uri(path)],
            None => entry.row.lock().kept.working_directories.clone(),
        };
        let new = NewSession {
            id: self.new_id(),
            provider: Some(request.provider.unwrap_or_else(|| entry.provider.clone())),
            owner: entry.owner.clone(),
            working_directories: directories,
            title: request.title,
            ..NewSession::default()
        };
        let prompt = Some(request.prompt);
        self.session_with_prompt(new, prompt, request.model, MessageKind::Agent)
            .await
            .map(|entry| entry.uri.clone())
    }

    /// Makes a session and says the first thing in it.
    pub(crate) async fn session_with_prompt(
        self: &Arc<Self>,
        new: NewSession,
        prompt: Option<String>,
        model: Option<String>,
        kind: MessageKind,
    ) -> Result<Arc<Entry>, Thrown> {
        if prompt.as_ref().is_some_and(|prompt| prompt.trim().is_empty()) {
            return Err(Thrown::from(RpcError::invalid_params(
                "prompt is blank; leave it out to open a session with nobody speaking",
            )));
        }
        let owner = new.owner.clone();
        let entry = self.claim_session(new)?.start(self).await?;
        if let Some(text) = prompt {
            let request = TurnRequest {
                place: Place::DefaultChat,
                message: message(text, kind),
                model: model.map(|id| ostler_protocol::wire::state::ModelSelection { id, config: None }),
                sender: owner,
                queue: false,
            };
            if let Err(why) = self.start_turn(&entry, request).await {
                let _ = self.dispose_session(&entry).await;
                return Err(Thrown::new(why));
            }
        }
        Ok(entry)
    }

    // ---- close ----

    /// Ends the announcements: a line said later is dropped.
    pub fn end_announcements(&self) -> Vec<String> {
        self.announcements.lock().take().unwrap_or_default()
    }

    /// Refuses new sessions and turns from now on.
    pub fn stop_turns(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether new sessions and turns are refused.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) || self.is_closing()
    }

    /// Ends the connections plugins opened.
    pub fn close_plugin_connections(&self) {
        let open: Vec<_> = self.connections.read().values().filter_map(Weak::upgrade).collect();
        for connection in open {
            if matches!(connection.principal(), Principal::Plugin { .. }) {
                connection.close();
            }
        }
    }

    /// Ends everything: sessions first, then what plugins want to do, in order.
    pub async fn close(self: &Arc<Self>) {
        if self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        self.stage.send_replace(Stage::Closing);
        let waits: Vec<_> = self
            .sessions
            .all()
            .into_iter()
            .filter(|entry| entry.is_awake())
            .map(|entry| {
                let (done, wait) = oneshot::channel();
                self.tell(&entry, ToSession::Close { done });
                wait
            })
            .collect();
        let sessions = futures::future::join_all(waits);
        if tokio::time::timeout(std::time::Duration::from_secs(10), sessions).await.is_err() {
            self.log.line("some sessions did not end within 10 seconds");
        }
        let Some(registry) = self.registry() else { return };
        for close in registry.all::<Close>() {
            if let Err(why) = close.close.call(()).await {
                self.log.line(format_args!("{}: its close failed: {}", close.owner, why.for_log()));
            }
        }
    }

    /// Asks each backend once what it offers and says so to whoever watches.
    async fn probe_agents(self: Arc<Self>) {
        let Some(registry) = self.registry() else { return };
        let probes = registry.all::<Agent>().iter().filter_map(|agent| {
            let probe = agent.probe.clone()?;
            Some(async move { (agent.provider.to_string(), probe.call(()).await) })
        });
        let answers = futures::future::join_all(probes).await;
        if answers.is_empty() {
            return;
        }
        let mut agents = self.root.agents();
        for (provider, offered) in answers {
            let Some(info) = agents.iter_mut().find(|info| info.provider == provider) else { continue };
            match offered {
                Ok(offered) => {
                    info.models = offered.models.iter().map(|model| model.listed(&provider)).collect();
                    info.customizations = offered.customizations;
                }
                Err(why) => {
                    self.log.line(format_args!("backend {provider} could not say what it offers: {why}"))
                }
            }
        }
        self.root.set_agents(&self.fanout, agents);
    }
}

fn agent_info(agent: &Agent) -> AgentInfo {
    let chats = agent.chats.map(|chats| MultipleChatsCapability {
        fork: chats.fork.then_some(true),
        side_chat: chats.side_chat.then_some(true),
    });
    let folders =
        (agent.multiple_directories == Some(true)).then_some(MultipleWorkingDirectoriesCapability {
            immutable_primary: Some(true),
            primary_replacement: None,
        });
    AgentInfo {
        provider: agent.provider.to_string(),
        display_name: agent.display_name.to_string(),
        description: agent.description.clone().unwrap_or_default(),
        models: Vec::new(),
        protected_resources: agent.protected_resources.clone(),
        customizations: None,
        capabilities: (chats.is_some() || folders.is_some())
            .then_some(AgentCapabilities { multiple_chats: chats, multiple_working_directories: folders }),
    }
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
    url::Url::parse(uri)
        .ok()
        .filter(|url| url.scheme() == "file")
        .and_then(|url| url.to_file_path().ok())
        .map_or_else(|| uri.to_owned(), |path| path.to_string_lossy().into_owned())
}
