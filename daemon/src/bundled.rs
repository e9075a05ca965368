//! The bundled plugins; there are no built-in backends.

use ostler_contract::Plugin;
use ostler_contract::points::Agent;
use ostler_processes::supervisor::SUPERVISE;

use crate::cli::ENTER;
use crate::parts::console::Changes;
use crate::parts::postgres::Retention;
use crate::parts::{acp, console, containers, git, github, postgres};

/// Returns the specs of all bundled plugins, also of those that this program was built without.
pub fn plugins() -> Vec<Plugin> {
    plugins_with(Changes::default(), Retention::default())
}

/// Returns all bundled plugins. `changes` notify pages of the console, and `retention` has the rules for ended runs.
pub fn plugins_with(changes: Changes, retention: Retention) -> Vec<Plugin> {
    vec![
        acp::plugin(command("mcp-bridge"), supervisor(), ostler_loader::options::misfit),
        ostler_plugin_bot::plugin(),
        console::plugin(changes),
        containers::plugin(command(ENTER)),
        ostler_plugin_echo::plugin(),
        git::plugin(),
        github::plugin(),
        postgres::plugin(retention),
        ostler_plugin_terminal::plugin(supervisor()),
        ostler_plugin_webhook::plugin(),
    ]
}

/// Whether this program was built without a bundled plugin.
pub fn is_left_out(spec: &str) -> bool {
    plugins().iter().any(|plugin| plugin.spec == spec && plugin.left_out.is_some())
}

/// Returns an internal command of this program, for plugins: `mcp-bridge` serves a session's tools to an agent on
/// stdio, [`ENTER`] runs a process in a machine.
fn command(name: &str) -> Option<Vec<String>> {
    let program = std::env::current_exe().ok()?;
    Some(vec![program.to_str()?.to_owned(), name.to_owned()])
}

/// Returns the internal command that supervises agents and marks programs in terminals. It runs this very program, even
/// if its file was replaced since.
fn supervisor() -> Option<Vec<String>> {
    Some(vec!["/proc/self/exe".to_owned(), SUPERVISE.to_owned()])
}

/// The built-in backends of the daemon: none. A custom build adds its backends here.
pub fn agents() -> Vec<Agent> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use ostler_contract::json;
    use ostler_contract::points::Tool;
    use ostler_testkit::MemoryHost;

    use super::*;

    #[tokio::test]
    async fn nothing_that_comes_with_the_host_asks_for_the_operators_leave() {
        let builder = MemoryHost::builder().session_tools().records(ostler_ports::memory_records());
        // The one with the stores needs a database.
        let is_loaded = |plugin: &Plugin| plugin.spec != postgres::NAME && plugin.left_out.is_none();
        let plugins = plugins().into_iter().filter(is_loaded);
        let host = plugins.fold(builder, |builder, plugin| builder.plugin(plugin, json!({})));
        let host = host.start().await;
        let tools = host.registry().all::<Tool>();
        assert!(!tools.is_empty());
        assert!(tools.iter().all(|tool| tool.advanced_permission.is_none()), "{tools:?}");
    }
}
