//! The host: one registry, one sequence, the sessions and automations, and their entry points.

mod closing;
mod cluster;
mod gauges;
mod problems;
mod unread_users;

pub use cluster::ClusterState;
pub use gauges::Gauges;

use std::sync::Arc;

use ostler_contract::Registry;
use ostler_contract::points::PullRequests;
use ostler_engine_automations::Automations;
use ostler_engine_core::agents::agent_info;
use ostler_engine_core::clock::Clock;
use ostler_engine_core::log::Log;
use ostler_engine_core::options::HostOptions;
use ostler_engine_core::shared::Core;
use ostler_engine_core::stage::Stage;
use ostler_engine_core::tasks;
use ostler_engine_core::yaml::Yaml;
use ostler_engine_sessions::{Sessions, continue_unfinished};
use ostler_engine_users::resources::Resources;
use ostler_engine_users::usage::Ledger;
use ostler_engine_users::users::Living;
use ostler_engine_users::users::access::Access;
use ostler_engine_users::users::principal::Gate;
use ostler_engine_workspace::Workspace;

use crate::channels::Channels;
use crate::front::Front;

/// The host: its parts, from the lowest layer to the highest.
#[derive(Debug)]
pub struct Host {
    /// Shared services.
    pub core: Arc<Core>,
    /// Users and grants.
    pub access: Arc<Access>,
    pub usage: Arc<Ledger>,
    pub(crate) workspace: Arc<Workspace>,
    pub sessions: Arc<Sessions>,
    /// Automations and runs.
    pub automations: Arc<Automations>,
    /// Channels that belong to no session and no automation.
    pub channels: Arc<Channels>,
    /// The entry points.
    pub front: Arc<Front>,
}

impl Host {
    /// Creates a host against which plugins can be applied; [`Host::build`] makes it serve.
    pub fn new(options: HostOptions, clock: Clock, log: Log, yaml: Yaml, gate: Gate) -> Arc<Self> {
        let core = Core::new(options, clock, log, yaml);
        let access = Access::new(core.clone(), gate);
        let usage = Ledger::new(core.clone(), access.clone());
        let resources = Resources::new(core.clone(), access.clone(), usage.clone());
        let workspace = Workspace::new(core.clone(), access.clone(), usage.clone());
        let sessions =
            Sessions::new(core.clone(), access.clone(), usage.clone(), resources, workspace.clone());
        let automations = Automations::new(core.clone(), access.clone(), sessions.clone());
        let channels = Channels::new(core.clone(), access.clone());
        let front = Front::new(sessions.clone(), automations.clone(), channels.clone());
        Arc::new(Self { core, access, usage, workspace, sessions, automations, channels, front })
    }

    /// Sets the registry, once, and loads everything from the stores.
    pub async fn build(&self, registry: Registry) {
        let log = self.core.unheard_log.clone();
        if !self.core.set_registry(registry) {
            return;
        }
        let Some(registry) = self.core.registry() else { return };
        self.core.events.start(registry, log);
        let agents = self.core.listed_agents().map(|agent| agent_info(agent)).collect();
        if let Some(people) = self.access.gate.people() {
            self.core.root.ask_for(people.sign_in());
        }
        if let Some(github) = registry.port::<PullRequests>() {
            self.core.root.offer(github.resource.0.clone());
        }
        let meta = self.front.advertised().await;
        self.core.root.fill(agents, meta);
        if self.workspace.terminal_store().is_some() {
            self.core.root.serve_terminals();
        }
        let hosts_changed = self.follow_cluster();
        self.follow_validity();
        self.sessions.open_sessions().await;
        if self.core.cluster().is_some() {
            if let Err(why) = self.sessions.count_listed().await {
                self.core.log.warn(format_args!("the sessions of the store could not be counted: {why}"));
            }
            self.front.join_cluster();
        }
        self.core.root.set_active_sessions(&self.core.fanout, self.sessions.count());
        self.access.look_at_policies().await;
        self.core.reach(Stage::Built);
        self.automations.clone().load_automations().await;
        tasks::spawn(self.core.clone().probe_agents());
        // The runs are known by now, so that those whose messages wait are told apart.
        tasks::spawn(continue_unfinished(Arc::downgrade(&self.sessions), hosts_changed));
    }

    /// Disconnects every client.
    pub fn disconnect_clients(&self) {
        for connection in self.access.clients.open() {
            connection.close();
        }
    }

    /// Ends what is no longer authorized, after the users have changed or a page has signed out.
    pub fn review_authority(&self) {
        for living in Living::ALL {
            match living {
                Living::Connection => {
                    for connection in self.access.clients.open() {
                        connection.review();
                    }
                }
                Living::EventStream => self.core.feeds.recheck(),
                Living::RunningTurn => self.sessions.review_turns(),
                // With the running turns of their sessions.
                Living::AgentWork | Living::BotCall => {}
                Living::LentToken => self.sessions.review_lent_tokens(),
                Living::Terminal => self.workspace.review_terminals(),
                // With their connection.
                Living::Subscription => {}
                // They ask whenever they are used.
                Living::SignIn
                | Living::NotificationLink
                | Living::PluginConnection
                | Living::QueuedMessage
                | Living::SteeringMessage
                | Living::ToolsEndpoint
                | Living::Bot
                | Living::Schedule => {}
            }
        }
    }
}
