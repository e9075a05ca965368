//! The host: one registry, one sequence, the sessions and automations, and the doors into them.

mod closing;

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};

use ostler_contract::points::PullRequests;
use ostler_contract::{JsonObject, Registry};
use parking_lot::Mutex;

use crate::automations::{Automations, SessionObserver};
use crate::channels::plugin::PluginChannels;
use crate::channels::root_settings::OwnSettings;
use crate::channels::telemetry::Exports;
use crate::core::agents::agent_info;
use crate::core::clock::Clock;
use crate::core::log::Log;
use crate::core::options::HostOptions;
use crate::core::shared::Core;
use crate::core::stage::Stage;
use crate::core::yaml::Yaml;
use crate::resources::Resources;
use crate::sessions::{OpenToolsServer, Sessions};
use crate::usage::Ledger;
use crate::users::access::Access;
use crate::users::principal::Gate;
use crate::workspace::Workspace;

/// The host.
#[derive(Debug)]
pub struct Host {
    pub(crate) core: Arc<Core>,
    /// Who may do what.
    pub access: Arc<Access>,
    /// What work cost.
    pub usage: Arc<Ledger>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) workspace: Arc<Workspace>,
    /// Sessions.
    pub sessions: Sessions,
    /// Automations and runs.
    pub automations: Automations,
    pub(crate) announcements: Mutex<Option<Vec<String>>>,
    pub(crate) collections: Mutex<HashMap<String, ostler_contract::PluginId>>,
    pub(crate) plugin_channels: PluginChannels,
    /// Which backends were said to declare a setting a plugin contributes.
    pub(crate) settings_declared: Mutex<HashSet<(String, String)>>,
    pub(crate) telling: Exports,
    me: Weak<Host>,
    tools_server: OnceLock<OpenToolsServer>,
    pub(crate) own_settings: OnceLock<Arc<dyn OwnSettings>>,
    pub(crate) meta: OnceLock<JsonObject>,
}

/// For the transition: parts that still take the host reach the shared services through it.
impl Deref for Host {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Host {
    /// A host that plugins may already be applied against; [`Host::build`] makes it serve.
    pub fn new(options: HostOptions, clock: Clock, log: Log, yaml: Yaml, gate: Gate) -> Arc<Self> {
        let core = Core::new(options, clock, log, yaml);
        let access = Access::new(core.clone(), gate);
        let usage = Ledger::new(core.clone(), access.clone());
        let resources = Resources::new(core.clone(), access.clone(), usage.clone());
        let workspace = Workspace::new(core.clone(), access.clone(), usage.clone());
        let host = Arc::new_cyclic(|me| Self {
            core,
            access,
            usage,
            resources,
            workspace,
            sessions: Sessions::observed_by(Arc::new(SessionObserver::new(me.clone()))),
            automations: Automations::default(),
            announcements: Mutex::new(Some(Vec::new())),
            collections: Mutex::default(),
            plugin_channels: PluginChannels::default(),
            settings_declared: Mutex::default(),
            telling: Exports::default(),
            me: me.clone(),
            tools_server: OnceLock::new(),
            own_settings: OnceLock::new(),
            meta: OnceLock::new(),
        });
        host.workspace.set_sessions(host.me.clone());
        host
    }

    /// Takes the registry, once, and everything the stores hold.
    pub async fn build(&self, registry: Registry) {
        let log = self.unheard_log.clone();
        if !self.set_registry(registry) {
            return;
        }
        let Some(registry) = self.registry() else { return };
        self.events.start(registry, Arc::new(move |line| log.line(line)));
        let agents = self.listed_agents().map(|agent| agent_info(agent)).collect();
        if let Some(people) = self.access.gate.people() {
            self.root.ask_for(people.sign_in());
        }
        if let Some(github) = registry.port::<PullRequests>() {
            self.root.offer(github.resource.0.clone());
        }
        let meta = self.advertised().await;
        self.root.fill(agents, meta);
        if self.workspace.terminal_store().is_some() {
            self.root.serve_terminals();
        }
        self.open_sessions().await;
        self.root.set_active_sessions(&self.fanout, self.sessions.count());
        self.access.warn_of_no_policies().await;
        self.reach(Stage::Built);
        if let Some(me) = self.me.upgrade() {
            me.clone().load_automations().await;
            self.automations.loaded.send_replace(true);
            tokio::spawn(me.core.clone().probe_agents());
        }
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

    /// The host for something it owns itself.
    pub(crate) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    /// Ends what nobody may have any more, after what the host knows of people has changed.
    pub fn people_changed(&self) {
        for connection in self.access.clients.open() {
            connection.drop_forbidden();
        }
    }
}
