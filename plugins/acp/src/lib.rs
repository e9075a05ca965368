//! `@ostler/acp`: agents that speak the Agent Client Protocol (ACP), as backends.
//!
//! Each configured agent is one provider. A chat's conversation is one agent process: [`agent`] runs it,
//! [`session`] drives its ACP session, and [`updates`] translates what it reports into the host's actions.

#![forbid(unsafe_code)]

mod agent;
mod backend;
mod elicitation;
mod errors;
mod files;
mod mcp;
mod opening;
mod options;
mod permissions;
mod presets;
mod process;
mod prompt;
mod protocol;
mod session;
mod settings;
mod terminals;
mod tool_content;
mod transcript;
mod updates;
mod wire;

use std::sync::Arc;

use ostler_contract::{Call, Options, Plugin, PluginHost, Thrown, json};

use options::Configured;

/// The collection of what agents reported of themselves.
const AGENTS: &str = "acp-agents";

/// The plugin.
pub fn plugin() -> Plugin {
    Plugin::new("@ostler/acp", |host, options| Box::pin(async move { apply(&host, &options) }))
        .title("ACP agents")
        .defaults(json!({}))
        .options_schema(options::schema())
}

fn apply(host: &PluginHost, options: &Options) -> Result<(), Thrown> {
    let Configured { agents, problems, runtime } = options::read(options)?;
    for line in problems {
        host.problem(line)?;
    }
    if agents.is_empty() {
        return Ok(());
    }
    process::sweep();
    host.log(format!("agents are contained in {}", process::containment(runtime.scope)))?;
    let stored = host.records(AGENTS.to_owned(), None)?;
    host.register_close(Call::now(|()| {
        process::kill_all();
        Ok(())
    }))?;
    let runtime = Arc::new(runtime);
    for agent in agents {
        let provider = agent.provider.clone();
        if let Err(why) = host.register_agent(backend::agent(host, agent, runtime.clone(), stored.clone())) {
            host.problem(format!("agents.{provider}: {}", why.message))?;
        }
    }
    Ok(())
}
