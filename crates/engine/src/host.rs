//! The host: one registry, one sequence, the sessions and automations, and the doors into them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ostler_contract::events::{Event, EventName};
use ostler_contract::points::{
    AutomationStore, Offered, Policies, PullRequests, RecordStore, SchemeProvider, SessionStore, Vault,
};
use ostler_contract::registry::Owned;
use ostler_contract::{Bodies, Budget, JsonObject, Registry};
use ostler_protocol::Version;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::automations::Automations;
use crate::channels::plugin::PluginChannels;
use crate::channels::root_settings::OwnSettings;
use crate::channels::telemetry::Exports;
use crate::core::agents::agent_info;
use crate::core::clock::Clock;
use crate::core::events::Events;
use crate::core::fanout::Fanout;
use crate::core::ids::ConnectionId;
use crate::core::local_system::LocalSystem;
use crate::core::log::Log;
use crate::core::options::HostOptions;
use crate::core::outbound::Outbound;
use crate::core::root::Root;
use crate::core::stage::Stage;
use crate::core::wire::Wire;
use crate::core::yaml::Yaml;
use crate::front::connection::Connection;
use crate::resources::Watch;
use crate::sessions::{OpenToolsServer, Sessions};
use crate::users::principal::{Gate, Principal};
use crate::workspace::changesets::Changesets;
use crate::workspace::containers::Relays;
use crate::workspace::terminals::Terminals;
mod closing;

/// How many clients' versions are remembered.
const CLIENTS_KEPT: usize = 10_000;

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
    pub(crate) telling: Exports,
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
    pub(crate) local_system: OnceLock<Arc<dyn LocalSystem>>,
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
            telling: Exports::default(),
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
            local_system: OnceLock::new(),
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
        self.automation_store().ok_or_else(crate::core::refusals::no_automations)
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
