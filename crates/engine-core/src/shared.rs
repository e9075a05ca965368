//! Services that all parts of the host share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ostler_contract::cluster::Cluster;
use ostler_contract::events::{Event, EventName};
use ostler_contract::points::{AutomationStore, Offered, Policies, RecordStore, SessionStore, Vault};
use ostler_contract::registry::Registrant;
use ostler_contract::shared_runs::{RunTransactions, SharedRuns};
use ostler_contract::users::UsersStore;
use ostler_contract::{Bodies, Budget, JsonObject, Registry, Thrown};
use ostler_protocol::wire::state::{AutomationRunSummary, SessionSummary};
use parking_lot::RwLock;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::timeout;

use crate::agents::OfferedTool;
use crate::clock::Clock;
use crate::events::Events;
use crate::fanout::Fanout;
use crate::feed::Feed;
use crate::ids::ConnectionId;
use crate::local_system::LocalSystem;
use crate::log::Log;
use crate::options::HostOptions;
use crate::outbound::Outbound;
use crate::plugin_folders::PluginFolders;
use crate::refusals::UNREAD_USERS;
use crate::root::Root;
use crate::stage::Stage;
use crate::wire::{FrameRecorder, Wire};
use crate::yaml::Yaml;

/// The part of the memory that content for backends and tools can use: one of as many.
const READS: usize = 4;
/// How often work that waits until data can be stored looks whether the host stops.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The services that all parts of the host share: time, log, options, registry, stage and delivery to clients.
#[derive(Debug)]
pub struct Core {
    pub options: HostOptions,
    /// Memory used on behalf of clients.
    pub budget: Budget,
    /// Limits the preparation of large answers to one at a time, so that they use no more than one processor.
    pub large_answers: Arc<Semaphore>,
    /// The part of the budget for content that is read for backends and tools.
    pub reads: Budget,
    /// The part of the budget for bodies of requests.
    pub bodies: Bodies,
    pub clock: Clock,
    /// The log; plugins that listen to lines receive its lines.
    pub log: Log,
    /// The log without listeners, for lines that a listener causes.
    pub unheard_log: Log,
    /// The one sequence of actions.
    pub fanout: Fanout,
    /// Changes of runs and sessions, for readers that are not AHP clients.
    pub feeds: Feeds,
    /// The state of the root channel.
    pub root: Root,
    /// Listeners.
    pub events: Events,
    pub yaml: Yaml,
    pub wire: Arc<Wire>,
    /// The description of each backend, once it has answered.
    pub offered: RwLock<HashMap<String, (u64, Offered)>>,
    /// How often backends were asked for what they offer, which orders the answers.
    pub probes: AtomicU64,
    /// The tools of the host, once they are needed.
    pub tools: OnceLock<Vec<OfferedTool>>,
    pub local_system: OnceLock<Arc<dyn LocalSystem>>,
    pub plugin_folders: OnceLock<Arc<dyn PluginFolders>>,
    registry: OnceLock<Registry>,
    cluster: OnceLock<Arc<dyn Cluster>>,
    run_transactions: OnceLock<Arc<dyn RunTransactions>>,
    shared_runs: OnceLock<Arc<dyn SharedRuns>>,
    users_store: OnceLock<Arc<dyn UsersStore>>,
    stage: watch::Sender<Stage>,
    outbound: OnceLock<Outbound>,
    own_sessions: OnceLock<SessionStore>,
    advanced_tools: AtomicBool,
    lost_storage: RwLock<Option<String>>,
    lost_lease: RwLock<Option<String>>,
    unread_users: AtomicBool,
    /// How often storing became impossible, and the notification that it may be possible again.
    storage_losses: AtomicU64,
    storage_changed: Notify,
    next_connection: AtomicU64,
    next_opener: AtomicU64,
}

impl Core {
    /// Creates the services of a host, against which plugins can be applied.
    pub fn new(options: HostOptions, clock: Clock, log: Log, yaml: Yaml) -> Arc<Self> {
        let budget = Budget::new(options.limits.memory);
        Arc::new_cyclic(|me| Self {
            reads: budget.part(options.limits.memory / READS),
            bodies: Bodies::new(budget.clone(), options.limits.unverified_bodies),
            budget,
            large_answers: Arc::new(Semaphore::new(1)),
            fanout: Fanout::new(options.replay, first_number(&clock)),
            advanced_tools: AtomicBool::new(options.advanced_tools),
            options,
            feeds: Feeds::new(&clock),
            clock,
            log: heard(log.clone(), me.clone()),
            unheard_log: log,
            root: Root::new(),
            events: Events::default(),
            yaml,
            wire: Arc::default(),
            offered: RwLock::default(),
            probes: AtomicU64::default(),
            tools: OnceLock::new(),
            local_system: OnceLock::new(),
            plugin_folders: OnceLock::new(),
            registry: OnceLock::new(),
            cluster: OnceLock::new(),
            run_transactions: OnceLock::new(),
            shared_runs: OnceLock::new(),
            users_store: OnceLock::new(),
            stage: watch::Sender::new(Stage::Loading),
            outbound: OnceLock::new(),
            own_sessions: OnceLock::new(),
            lost_storage: RwLock::default(),
            lost_lease: RwLock::default(),
            unread_users: AtomicBool::new(false),
            storage_losses: AtomicU64::new(0),
            storage_changed: Notify::new(),
            next_connection: AtomicU64::new(1),
            next_opener: AtomicU64::new(1),
        })
    }

    /// Sets the registry, once; returns whether it was the first.
    pub fn set_registry(&self, registry: Registry) -> bool {
        self.registry.set(registry).is_ok()
    }

    /// Joins a cluster, once; returns whether it was the first.
    pub fn join_cluster(&self, cluster: Arc<dyn Cluster>) -> bool {
        let joined = self.cluster.set(cluster).is_ok();
        if joined {
            self.fanout.skip_numbers(random_distance());
        }
        joined
    }

    /// Returns the cluster of the host, if it has one.
    pub fn cluster(&self) -> Option<&Arc<dyn Cluster>> {
        self.cluster.get()
    }

    /// Sets how runs are stored with records and shared, once; returns whether it was the first.
    pub fn join_runs(
        &self,
        transactions: Arc<dyn RunTransactions>,
        shared: Option<Arc<dyn SharedRuns>>,
    ) -> bool {
        let first = self.run_transactions.set(transactions).is_ok();
        if let (true, Some(shared)) = (first, shared) {
            let _ = self.shared_runs.set(shared);
        }
        first
    }

    /// Sets the store of the users file, once; returns whether it was the first.
    pub fn join_users(&self, store: Arc<dyn UsersStore>) -> bool {
        self.users_store.set(store).is_ok()
    }

    /// Returns the store of the users file, if a plugin provides one.
    pub fn users_store(&self) -> Option<&Arc<dyn UsersStore>> {
        self.users_store.get()
    }

    /// Returns how runs are stored together with a record, if the store can do so.
    pub fn run_transactions(&self) -> Option<&Arc<dyn RunTransactions>> {
        self.run_transactions.get()
    }

    /// Returns the runs that the host shares with others, if it does.
    pub fn shared_runs(&self) -> Option<&Arc<dyn SharedRuns>> {
        self.shared_runs.get()
    }

    /// Enters the stage in which connections are accepted.
    pub fn listening(&self) {
        self.reach(Stage::Listening);
    }

    /// Resolves once the registry is built.
    pub async fn built(&self) {
        let mut stage = self.stage.subscribe();
        let _ = stage.wait_for(|stage| *stage != Stage::Loading).await;
    }

    /// Enters a stage; returns `false` if the host has already reached it.
    pub fn reach(&self, stage: Stage) -> bool {
        self.stage.send_if_modified(|at| {
            let forward = *at < stage;
            *at = stage.max(*at);
            forward
        })
    }

    /// Returns the stage of the host.
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Sets the network access of plugins. Without it their requests fail with an error.
    pub fn set_outbound(&self, outbound: Outbound) {
        let _ = self.outbound.set(outbound);
    }

    pub fn outbound(&self) -> Option<&Outbound> {
        self.outbound.get()
    }

    /// Returns the registry, once built.
    pub fn registry(&self) -> Option<&Registry> {
        self.registry.get()
    }

    pub fn session_store(&self) -> Option<&SessionStore> {
        self.registry()?.port::<SessionStore>()
    }

    /// Sets the host's own store, for data that a session store does not store.
    pub fn set_own_sessions(&self, store: SessionStore) {
        let _ = self.own_sessions.set(store);
    }

    /// Returns the host's own store, if the session store does not store everything that the host requires.
    pub fn own_sessions(&self) -> Option<&SessionStore> {
        let whole = |store: &SessionStore| {
            store.keeps_turns()
                && store.keeps_annotations()
                && store.keeps_attachments()
                && store.keeps_reported()
        };
        let keeps = self.session_store().is_some_and(whole);
        self.own_sessions.get().filter(|_| !keeps)
    }

    /// The host's own store, for data that the session store does not store.
    pub fn spare_sessions(&self) -> Option<&SessionStore> {
        self.own_sessions.get()
    }

    pub fn turn_store(&self) -> Option<&SessionStore> {
        self.store_of(SessionStore::keeps_turns)
    }

    pub fn annotation_store(&self) -> Option<&SessionStore> {
        self.store_of(SessionStore::keeps_annotations).filter(|store| store.keeps_annotations())
    }

    /// Returns the store of what backends reported.
    pub fn report_store(&self) -> Option<&SessionStore> {
        self.store_of(SessionStore::keeps_reported).filter(|store| store.keeps_reported())
    }

    fn store_of(&self, keeps: fn(&SessionStore) -> bool) -> Option<&SessionStore> {
        let store = self.session_store();
        store.filter(|store| keeps(store)).or_else(|| self.own_sessions.get()).or(store)
    }

    pub fn automation_store(&self) -> Option<&AutomationStore> {
        self.registry()?.port::<AutomationStore>()
    }

    /// Returns the automation store, or the error for a command that requires one.
    pub fn automations_kept(&self) -> Result<&AutomationStore, ostler_protocol::RpcError> {
        self.automation_store().ok_or_else(crate::refusals::no_automations)
    }

    pub fn record_store(&self) -> Option<&RecordStore> {
        self.registry()?.port::<RecordStore>()
    }

    pub fn policies(&self) -> Option<&Policies> {
        self.registry()?.port::<Policies>()
    }

    pub fn vault(&self) -> Option<&Vault> {
        self.registry()?.port::<Vault>()
    }

    pub fn mcp_servers(&self) -> Option<JsonObject> {
        self.options.mcp_servers.read()
    }

    /// Returns a new unique id.
    pub fn new_id(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    /// Returns a new unique id that follows those of earlier milliseconds, for rows that are stored in great numbers: their
    /// index writes one page for all rows of a commit instead of one for each.
    pub fn new_ascending_id(&self) -> String {
        let now = self.clock.now();
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let nanoseconds = u32::try_from(now.subsec_nanosecond()).unwrap_or_default();
        uuid::Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, seconds, nanoseconds)).to_string()
    }

    pub fn next_connection(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }

    pub fn next_opener(&self) -> u64 {
        self.next_opener.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether new sessions and turns are rejected.
    pub fn is_stopping(&self) -> bool {
        self.stage() >= Stage::Stopping
    }

    /// Rejects new sessions and turns while nothing can be stored; `None` accepts them again.
    pub fn set_lost_storage(&self, why: Option<String>) {
        self.storage_losses.fetch_add(why.is_some().into(), Ordering::Relaxed);
        *self.lost_storage.write() = why;
        self.storage_changed.notify_waiters();
    }

    /// Returns why nothing can be stored, or why nobody knows for whom, if that is the case.
    pub fn lost_storage(&self) -> Option<String> {
        let unread = || self.unread_users.load(Ordering::Relaxed).then(|| UNREAD_USERS.to_owned());
        self.lost_lease().or_else(|| self.lost_storage.read().clone()).or_else(unread)
    }

    /// Rejects sessions and turns while the stored users are unknown.
    pub fn set_unread_users(&self, are_unread: bool) {
        self.storage_losses.fetch_add(are_unread.into(), Ordering::Relaxed);
        self.unread_users.store(are_unread, Ordering::Relaxed);
        self.storage_changed.notify_waiters();
    }

    /// Rejects connections, sessions and turns while the host has no lease in its cluster; `None` accepts them again.
    pub fn set_lost_lease(&self, why: Option<String>) {
        self.storage_losses.fetch_add(why.is_some().into(), Ordering::Relaxed);
        *self.lost_lease.write() = why;
        self.storage_changed.notify_waiters();
    }

    /// Returns how often storing became impossible: a failure after this number has grown can be one of storing.
    pub fn storage_losses(&self) -> u64 {
        self.storage_losses.load(Ordering::Relaxed)
    }

    /// Waits until data can be stored. Returns `false` if the host stops before.
    pub async fn can_store(&self) -> bool {
        while self.lost_storage().is_some() {
            if self.is_stopping() {
                return false;
            }
            // Looks again in case the host stops.
            let _ = timeout(LOOK_AGAIN, self.storage_changed.notified()).await;
        }
        true
    }

    /// Returns why the host serves no sessions, if it has lost its lease in its cluster.
    pub fn lost_lease(&self) -> Option<String> {
        self.lost_lease.read().clone()
    }

    /// Sets whether advanced tools are offered, from the next session on.
    pub fn set_advanced_tools(&self, offered: bool) {
        self.advanced_tools.store(offered, Ordering::Relaxed);
    }

    /// Sets the recorder of the frames of every connection, or removes it.
    pub fn record_frames(&self, recorder: Option<Arc<dyn FrameRecorder>>) {
        self.wire.set(recorder);
    }

    pub fn advanced_tools(&self) -> bool {
        self.advanced_tools.load(Ordering::Relaxed)
    }

    /// Sets the host's access to the local system. Without it, no files of this host can be mounted into a machine.
    pub fn set_local_system(&self, local_system: Arc<dyn LocalSystem>) {
        let _ = self.local_system.set(local_system);
    }

    /// Sets the folders for the plugins of clients. Without them, none are copied.
    pub fn set_plugin_folders(&self, folders: Arc<dyn PluginFolders>) {
        let _ = self.plugin_folders.set(folders);
    }

    /// Logs an error of a plugin with the plugin's name.
    pub fn report_failed(&self, owner: &Registrant, what: &str, why: &Thrown) {
        self.log.warn(format_args!("{owner}: {what} failed: {}", why.for_log()));
    }
}

/// Changes of runs and sessions, as listings show them.
#[derive(Debug)]
pub struct Feeds {
    /// Changes of runs. Removals by retention or with an automation are not included.
    pub runs: Feed<AutomationRunSummary>,
    /// Changes of sessions.
    pub sessions: Feed<SessionSummary>,
}

impl Feeds {
    fn new(clock: &Clock) -> Self {
        let start = clock.now().as_microsecond();
        Self { runs: Feed::new(start), sessions: Feed::new(start) }
    }

    /// Has readers look whether they may still read.
    pub fn recheck(&self) {
        self.runs.wake();
        self.sessions.wake();
    }
}

/// The number from which a host counts its actions: the microsecond of its start, which no earlier host can have
/// reached.
fn first_number(clock: &Clock) -> u64 {
    u64::try_from(clock.now().as_microsecond()).unwrap_or_default()
}

/// How far the first numbers of hosts of a cluster are apart at most.
const FARTHEST: u64 = 1 << 36;

/// Returns a random distance between the numbers of hosts of a cluster, which can start at the same time. A client that
/// moves to another host must not receive a replay of that host's actions after a number of the first.
fn random_distance() -> u64 {
    let random = uuid::Uuid::new_v4().as_u128() % u128::from(FARTHEST);
    u64::try_from(random).unwrap_or_default()
}

/// Returns a log whose lines listeners receive.
fn heard(log: Log, core: Weak<Core>) -> Log {
    log.through(move |log, level, line| {
        log.write(level, line);
        if let Some(core) = core.upgrade()
            && core.events.listened(EventName::Log)
        {
            core.events.raise(Event::Log { line: line.to_owned() });
        }
    })
}
