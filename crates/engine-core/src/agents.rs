//! The descriptions of the backends, before and after each has answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::shared::Core;
use ostler_contract::limit;
use ostler_contract::points::{Agent, Offered, Tool};
use ostler_contract::registry::{Owned, Registry};
use ostler_protocol::wire::state::{
    AgentCapabilities, AgentInfo, MultipleChatsCapability, MultipleWorkingDirectoriesCapability,
    ToolDefinition,
};

/// A tool of the host with its definition in the form of the protocol, shared by all sessions.
#[derive(Debug, Clone)]
pub struct OfferedTool {
    pub tool: Owned<Tool>,
    pub definition: Arc<ToolDefinition>,
}

impl OfferedTool {
    fn new(tool: &Owned<Tool>) -> Self {
        Self { tool: tool.clone(), definition: Arc::new((&tool.definition).into()) }
    }
}

impl Core {
    /// Returns the backend of that name.
    pub fn agent(&self, provider: &str) -> Option<Owned<Agent>> {
        self.registry()?.all::<Agent>().iter().find(|agent| *agent.provider == *provider).cloned()
    }

    /// Returns the backends that clients can name, in the order of the listing.
    pub fn listed_agents(&self) -> impl Iterator<Item = &Owned<Agent>> {
        let all = self.registry().map(|registry| registry.all::<Agent>()).unwrap_or_default();
        all.iter().filter(|agent| agent.unlisted != Some(true))
    }

    /// Returns the backend of that name, if clients can name it.
    pub fn listed_agent(&self, provider: &str) -> Option<Owned<Agent>> {
        self.listed_agents().find(|agent| *agent.provider == *provider).cloned()
    }

    /// Returns the default backend, the first registered one.
    pub fn first_agent(&self) -> Option<Owned<Agent>> {
        self.listed_agents().next().cloned()
    }

    /// Returns the tools for every session.
    pub fn offered_tools(&self) -> impl Iterator<Item = &OfferedTool> {
        let read = |registry: &Registry| registry.all::<Tool>().iter().map(OfferedTool::new).collect();
        let all = self.registry().map(|registry| self.tools.get_or_init(|| read(registry)));
        let advanced = self.advanced_tools();
        let all = all.into_iter().flatten();
        all.filter(move |tool| advanced || tool.tool.advanced_permission != Some(true))
    }

    /// Requests the description of each backend once and publishes each answer as it arrives.
    pub async fn probe_agents(self: Arc<Self>) {
        let Some(registry) = self.registry() else { return };
        let probes = registry.all::<Agent>().iter().map(|agent| self.probe_again(agent));
        futures::future::join_all(probes).await;
    }

    /// Requests the description of a backend, and publishes it if it has changed: some know it once a session has begun. The
    /// answer to a later request stands, whichever arrives first.
    pub async fn probe_again(&self, agent: &Agent) {
        let Some(probe) = &agent.probe else { return };
        let asked = self.probes.fetch_add(1, Ordering::Relaxed);
        let provider = agent.provider.to_string();
        let offered = match probe.within(limit::BACKEND_PROBE, ()).await {
            Ok(offered) => offered,
            Err(why) => {
                return self.log.warn(format_args!("backend {provider} could not say what it offers: {why}"));
            }
        };
        // Locked until it is published, so that no other backend's description is lost.
        let mut known = self.offered.write();
        match known.get_mut(&provider) {
            Some((later, _)) if *later > asked => return,
            Some((before, same)) if *same == offered => return *before = asked,
            _ => {}
        }
        let mut agents = self.root.agents();
        show(&mut agents, &provider, &offered);
        known.insert(provider, (asked, offered));
        self.root.set_agents(&self.fanout, agents);
    }
}

/// Sets what a backend offers in the list of backends, which has no unlisted ones.
fn show(agents: &mut [AgentInfo], provider: &str, offered: &Offered) {
    if let Some(info) = agents.iter_mut().find(|info| info.provider == provider) {
        info.models = offered.models.iter().map(|model| model.listed(provider)).collect();
        info.customizations.clone_from(&offered.customizations);
    }
}

pub fn agent_info(agent: &Agent) -> AgentInfo {
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
