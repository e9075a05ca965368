//! The configured plugins, and the backends they bring.

use ostler_engine::Log;
use ostler_loader::Hidden;

use super::{Check, State};
use crate::client::Connection;
use crate::compose::compose;
use crate::config::{ConfigFiles, Keep};
use crate::place::Place;
use crate::plugins::{self, Row};
use crate::settings::Settings;

const PLUGINS: &str = "plugins";
const AGENTS: &str = "agents";

/// Every configured plugin, imported and asked what it is.
pub(super) async fn plugins(at: &Place, files: &ConfigFiles) -> Vec<Check> {
    let rows = plugins::fresh(at, files).await;
    if rows.is_empty() {
        let fix = "add the bundled one with: ostler plugin install @ostler/echo";
        return vec![Check::warning(PLUGINS, "no plugins are configured", fix)];
    }
    rows.iter().map(plugin).collect()
}

fn plugin(row: &Row) -> Check {
    let name = row.name();
    let problem = row.problem.clone().unwrap_or_default();
    let fix = match row.state {
        "ready" => return Check::ok(PLUGINS, name),
        "disabled" => return Check::ok(PLUGINS, format!("{name} is disabled")),
        "missing" if problem.contains("Did you mean") => {
            format!(
                "correct the name in the configuration, or remove it with: ostler plugin remove {}",
                row.entry.name
            )
        }
        "missing" => format!("ostler plugin install {0}, or ostler plugin remove {0}", row.entry.name),
        "incompatible" => format!("ostler plugin update {name}"),
        "unconfigured" => format!("ostler plugin config {name} <key> <value>"),
        _ => format!("find the cause with: ostler plugin check {}", row.entry.name),
    };
    Check::error(PLUGINS, format!("{name}: {problem}"), fix)
}

/// The backends: of the daemon that runs, else of a host that is put together in memory and serves nobody.
pub(super) async fn agents(
    settings: &Settings,
    running: bool,
    daemon: Option<&Connection>,
    before: &[Check],
) -> Vec<Check> {
    let fix = "ostler plugin install <package or path of a plugin with a backend>";
    let (names, mut checks): (Vec<String>, _) = match daemon {
        Some(daemon) => match daemon.agents().await {
            Ok(agents) => (agents.into_iter().map(|agent| agent.provider).collect(), Vec::new()),
            Err(why) => return vec![Check::error(AGENTS, why.to_string(), "see ostler logs")],
        },
        // It does not answer, and its plugins are not started a second time beside it.
        None if running => return Vec::new(),
        None => loaded(settings, before).await,
    };
    match names.is_empty() {
        true => {
            checks.push(Check::error(AGENTS, "no backend is loaded; the daemon will refuse to start", fix))
        }
        false => checks.push(Check::ok(AGENTS, names.join(", "))),
    }
    checks
}

/// What a start would load: the backends, and what it would leave out.
async fn loaded(settings: &Settings, before: &[Check]) -> (Vec<String>, Vec<Check>) {
    let settings =
        Settings { sessions: Keep::Memory, automations: Keep::Memory, wire: None, ..settings.clone() };
    let fix = "find the cause with: ostler plugin check <plugin>";
    // Told already, as what its import or its options lack.
    let told = |line: &str| {
        let found = before.iter().filter(|check| check.state == State::Error).map(|check| &check.found);
        found.filter_map(|found| found.split_once(": ")).any(|(_, problem)| line.contains(problem))
    };
    match compose(&settings, &Log::new(|_| {}), &Hidden::default()).await {
        Ok(composed) => {
            let names = composed.host.core.listed_agents().map(|agent| agent.provider.to_string()).collect();
            let skipped = composed.skipped.iter().filter(|line| !told(line));
            let checks = skipped.map(|line| Check::error(PLUGINS, line.as_str(), fix)).collect();
            composed.host.close().await;
            (names, checks)
        }
        Err(why) => (Vec::new(), vec![Check::error(AGENTS, why.to_string(), fix)]),
    }
}
