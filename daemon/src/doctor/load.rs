//! Checks of the configured plugins and their backends.

use ostler_contract::{JsonObject, Value};
use ostler_engine::Log;
use ostler_loader::{Hidden, State as PluginState};

use super::{Check, State};
use crate::client::Connection;
use crate::compose::compose;
use crate::config::{ConfigFiles, StorageLocation};
use crate::exit::Exit;
use crate::place::Place;
use crate::plugins::{self, Row};
use crate::settings::Settings;
use crate::verbs::agent;

const PLUGINS: &str = "plugins";
const AGENTS: &str = "agents";

/// Checks every configured plugin by importing it.
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

/// Checks the backends of the running daemon, otherwise of a host in memory that does not serve. Marks plugins that
/// this host could not load in `plugins`, which has one check for each.
pub(super) async fn agents(
    settings: &Settings,
    running: bool,
    daemon: Option<&Connection>,
    plugins: &mut Vec<Check>,
) -> Vec<Check> {
    let fix = "ostler plugin install <package or path of a plugin with a backend>";
    let found = match daemon {
        Some(daemon) => of_daemon(daemon).await,
        // It does not answer, and its plugins must not be started a second time.
        None if running => return Vec::new(),
        None => loaded(settings, plugins).await,
    };
    match found {
        Ok((names, mut checks)) => {
            checks.push(match names.is_empty() {
                true => Check::error(AGENTS, "no backend is loaded; the daemon will refuse to start", fix),
                false => Check::ok(AGENTS, names.join(", ")),
            });
            checks
        }
        Err(why) => {
            vec![Check::error(AGENTS, why.to_string(), "see ostler logs, or ostler plugin check <plugin>")]
        }
    }
}

/// Returns the backends of the running daemon, and those that cannot be used.
async fn of_daemon(daemon: &Connection) -> Result<(Vec<String>, Vec<Check>), Exit> {
    let names = daemon.agents().await?.into_iter().map(|agent| agent.provider).collect();
    let listed = agent::of_daemon(daemon, agent::LIST, JsonObject::new()).await?;
    Ok((names, not_installed(listed.as_ref())))
}

/// Returns the backends that a start would load, and what it would skip.
async fn loaded(settings: &Settings, plugins: &mut Vec<Check>) -> Result<(Vec<String>, Vec<Check>), Exit> {
    let settings = Settings {
        sessions: StorageLocation::Memory,
        automations: StorageLocation::Memory,
        wire: None,
        ..settings.clone()
    };
    let hidden = Hidden::default();
    let composed = compose(&settings, &Log::new(|_| {}), &hidden).await?;
    let names = composed.host.core.listed_agents().map(|agent| agent.provider.to_string()).collect();
    let mut skipped = composed.skipped.clone();
    for (check, plugin) in plugins.iter_mut().zip(&composed.plugins) {
        let Some(problem) = plugin.problem.as_ref().filter(|_| plugin.state == PluginState::Skipped) else {
            continue;
        };
        let line = hidden.hide(&problem.to_string()).into_owned();
        skipped.retain(|other| *other != line);
        // Problems of its import or its options are already reported.
        if check.state == State::Ok {
            let fix = format!("find the cause with: ostler plugin check {}", plugin.spec);
            *check = Check::error(PLUGINS, line, fix);
        }
    }
    let fix = "find the cause with: ostler plugin check <plugin>";
    plugins.extend(skipped.into_iter().map(|line| Check::error(PLUGINS, line, fix)));
    let listed = agent::of_host(&composed, &hidden, agent::LIST, JsonObject::new()).await;
    composed.host.close().await;
    Ok((names, not_installed(listed?.as_ref())))
}

/// Returns the ACP agents whose program is missing.
fn not_installed(listed: Option<&Value>) -> Vec<Check> {
    let rows = listed.and_then(|listed| listed["agents"].as_array()).into_iter().flatten();
    rows.filter(|row| row["installed"] == false)
        .map(|row| {
            let text = |member: &str| row[member].as_str().unwrap_or_default();
            let (provider, command) = (text("provider"), text("command"));
            let fix = match row["install"].as_str() {
                Some(install) => install.to_owned(),
                None => {
                    format!("install it, or correct agents.{provider}.command in the options of @ostler/acp")
                }
            };
            Check::error(AGENTS, format!("{provider}: {command} is not installed"), fix)
        })
        .collect()
}
