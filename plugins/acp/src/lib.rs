//! `@ostler/acp`: agents that speak the Agent Client Protocol (ACP), as backends.
//!
//! Each configured agent is one provider. A chat's conversation is one agent process: [`agent`] runs it,
//! [`session`] drives its ACP session, and [`updates`] translates what it reports into the host's actions.

#![forbid(unsafe_code)]

mod account;
mod agent;
mod agent_connection;
mod answers;
mod backend;
mod buffers;
mod check;
mod command_turn;
mod commands;
mod elicitation;
mod emitter;
mod errors;
mod files;
mod limits;
mod lines;
mod machine;
mod masks;
mod mcp;
mod opening;
mod options;
mod parsed;
mod permissions;
mod presets;
mod prompt;
mod protocol;
mod proxy;
mod reading;
mod session;
mod settings;
mod sign_in;
mod standing;
mod stored;
mod terminals;
mod tool_content;
mod transcript;
mod updates;
mod weight;

use std::sync::Arc;

use ostler_contract::{Call, Options, Plugin, PluginHost, Thrown, json};
use ostler_processes::Scopes;

use buffers::Buffers;
use commands::{Configuration, ConfiguredAgent};
use options::{Configured, LeftOut, Runtime};
use session::Shared;
use settings::Catalogue;
use standing::{APPROVALS, Standing};

/// The scopes that agents run in.
static SCOPES: Scopes = Scopes::new("ostler-agent", "OSTLER_AGENT_SCOPE");

/// Returns how many processes of each agent run, by its provider.
pub fn agent_processes() -> std::collections::BTreeMap<String, usize> {
    SCOPES.running()
}

/// The collection of the facts that agents reported.
const AGENTS: &str = "acp-agents";

pub use elicitation::Misfit;
pub use errors::NOT_SIGNED_IN;
pub use mcp::{BRIDGE_TOKEN, BRIDGE_URL};
pub use ostler_processes::supervisor;

/// The name of the plugin in a configuration.
pub const NAME: &str = "@ostler/acp";

/// The ids of the bundled presets, which the option `presets` enables, in order.
pub fn bundled_presets() -> Vec<String> {
    presets::Presets::bundled(&mut Vec::new()).ids().map(str::to_owned).collect()
}

/// The plugin. `bridge` is the command that serves a session's tools endpoint, passed in the variables [`BRIDGE_URL`]
/// and [`BRIDGE_TOKEN`], as an MCP server on stdio, for agents that cannot connect to one over HTTP. `supervisor` is
/// the command that runs [`supervisor::main`]. `misfit` validates users' answers to questions of agents.
pub fn plugin(bridge: Option<Vec<String>>, supervisor: Option<Vec<String>>, misfit: Misfit) -> Plugin {
    Plugin::new(NAME, move |host, options| {
        let commands = (bridge.clone(), supervisor.clone());
        Box::pin(async move { apply(&host, &options, commands, misfit) })
    })
    .title("ACP agents")
    .defaults(json!({}))
    .options_schema(options::schema())
}

fn apply(
    host: &PluginHost,
    options: &Options,
    (bridge, supervisor): (Option<Vec<String>>, Option<Vec<String>>),
    misfit: Misfit,
) -> Result<(), Thrown> {
    let Configured { agents, problems, mut left_out, presets, runtime } = options::read(options)?;
    let runtime = Runtime { bridge, supervisor, ..runtime };
    for line in
        problems.into_iter().chain(left_out.iter().filter(|left| left.said.is_none()).map(LeftOut::line))
    {
        host.problem(line)?;
    }
    let stored = host.records(AGENTS.to_owned(), None)?;
    let approvals = host.records(APPROVALS.to_owned(), None)?;
    let runtime = Arc::new(runtime);
    if !agents.is_empty() {
        SCOPES.sweep();
        host.log(format!(
            "agents are contained in {}",
            SCOPES.containment(runtime.scope, runtime.supervisor.is_some())
        ))?;
        host.register_close(Call::new(|()| async {
            SCOPES.kill_all().await;
            Ok(())
        }))?;
    }
    let buffers = Buffers::default();
    let mut known = Vec::new();
    for agent in agents {
        for line in &agent.warnings {
            host.log(line.clone())?;
        }
        let provider = agent.provider.clone();
        let catalogue = Arc::new(Catalogue::stored(&provider, stored.clone()));
        let agent = Arc::new(agent);
        let standing = Arc::new(Standing::new(&provider, approvals.clone()));
        let shared = Shared {
            host: host.clone(),
            agent: agent.clone(),
            runtime: runtime.clone(),
            catalogue: catalogue.clone(),
            standing,
            deleted: Arc::default(),
            buffers: buffers.clone(),
            sends_late: Arc::default(),
            misfit,
        };
        let registered = Arc::new(());
        let held = Arc::downgrade(&registered);
        let backend = backend::agent(shared, registered);
        match host.register_agent(backend) {
            Ok(()) => known.push(ConfiguredAgent { agent, catalogue, held }),
            Err(why) => {
                let place = format!("agents.{provider}");
                let refused = LeftOut { place, provider, why: why.message, misnamed: true, said: None };
                host.problem(refused.line())?;
                left_out.push(refused);
            }
        }
    }
    commands::buffers(host, buffers)?;
    commands::register(host, Configuration { agents: known, left_out, presets }, runtime)
}
