//! Checks of the configured plugins and their backends.

use std::sync::Arc;

use ostler_contract::points::{AutomationStore, PortValue, RecordStore};
use ostler_contract::problems::ProblemKind;
use ostler_contract::registry::Registrant;
use ostler_contract::{JsonObject, Thrown, Value, limit};
use ostler_engine::Log;
use ostler_loader::{Hidden, State as PluginState};
use ostler_plugin_webhook::ENDPOINTS;
use ostler_ports::{FileAutomations, Report, StateDb};

use super::{Check, State};
use crate::api::problem_shapes::Problem;
use crate::bundled;
use crate::client::Connection;
use crate::compose::{Composed, compose};
use crate::config::{ConfigFiles, StorageLocation};
use crate::exit::Exit;
use crate::place::Place;
use crate::plugins::{self, Row};
use crate::settings::{Settings, entries};
use crate::verbs::agent;

const PLUGINS: &str = "plugins";
const AGENTS: &str = "agents";
/// The id of the plugin whose endpoints are records.
const WEBHOOK: &str = "webhook";

/// Checks every configured plugin by importing it.
pub(super) async fn plugins(at: &Place, files: &ConfigFiles) -> Vec<Check> {
    let rows = plugins::fresh(at, files).await;
    if rows.is_empty() {
        let fix = "add the bundled one with: ostler plugin install @ostler/echo";
        return vec![Check::warning(PLUGINS, "no plugins are configured", fix)];
    }
    let warnings = rows.iter().flat_map(|row| &row.unknown_options);
    let warnings = warnings.map(|unknown| Check::warning(PLUGINS, &*unknown.line, &*unknown.fix));
    rows.iter().map(plugin).chain(warnings).collect()
}

/// Puts what the running daemon could not load into the checks of [`plugins`], which begin with one for each plugin.
pub(super) fn mark(files: &ConfigFiles, plugins: &mut Vec<Check>, known: &[Problem]) {
    let known: Vec<&Problem> =
        known.iter().filter(|problem| problem.is_about(&[ProblemKind::Plugins])).collect();
    for (entry, check) in entries(files).iter().zip(plugins.iter_mut()) {
        let skipped = known.iter().find(|problem| problem.place == entry.name && problem.severity == "error");
        if let (State::Ok, Some(problem)) = (check.state, skipped) {
            *check = of_problem(problem);
        }
    }
    let others = of_problems(plugins, known.into_iter());
    plugins.extend(others);
}

/// Returns the checks of problems that no other check has found.
pub(super) fn of_problems<'a>(checks: &[Check], problems: impl Iterator<Item = &'a Problem>) -> Vec<Check> {
    let is_new = |problem: &&Problem| !checks.iter().any(|check| check.found.ends_with(&problem.found));
    problems.filter(is_new).map(of_problem).collect()
}

fn of_problem(problem: &Problem) -> Check {
    let what = ProblemKind::ALL.map(ProblemKind::name).into_iter().find(|name| *name == problem.kind);
    let state = if problem.severity == "error" { State::Error } else { State::Warning };
    Check { what: what.unwrap_or("host"), state, found: problem.found.clone(), fix: problem.fix.clone() }
}

fn plugin(row: &Row) -> Check {
    let name = row.name();
    let problem = row.problem.clone().unwrap_or_default();
    let fix = match row.state {
        "ready" => return Check::ok(PLUGINS, name),
        "disabled" => return Check::ok(PLUGINS, format!("{name} is disabled")),
        "missing" if bundled::is_left_out(&row.entry.name) => {
            format!("install a build with it, or ostler plugin remove {}", row.entry.name)
        }
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
    let automations = settings.automations;
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
    let unread = match automations {
        StorageLocation::File if is_of_files::<AutomationStore>(&composed) => {
            judge_files(&composed, &settings).await.err()
        }
        _ => None,
    };
    let unread_endpoints = judge_endpoints(&composed).await.err();
    let problems: Vec<Problem> = composed.host.problems().await.into_iter().map(Problem::of).collect();
    composed.host.close().await;
    let of_files = [ProblemKind::Automations, ProblemKind::Policies, ProblemKind::Records];
    let mut checks = not_installed(listed?.as_ref());
    checks.extend(of_problems(&[], problems.iter().filter(|problem| problem.is_about(&of_files))));
    let unread = [(ProblemKind::Automations, unread), (ProblemKind::Records, unread_endpoints)];
    checks.extend(unread.into_iter().filter_map(|(kind, why)| {
        Some(Check::error(kind.name(), why?.message, "make the folder of the configuration readable"))
    }));
    Ok((names, checks))
}

/// Whether the host's own store is in force. A plugin can have registered another one, whose content the running daemon checks.
fn is_of_files<P: PortValue>(composed: &Composed) -> bool {
    let registry = composed.host.core.registry();
    registry.is_some_and(|registry| registry.holder::<P>() == Some(&Registrant::Host))
}

/// Lists what is wrong with the endpoints in files. The plugin reads them when it begins to watch them, which nothing waits for.
async fn judge_endpoints(composed: &Composed) -> Result<(), Thrown> {
    let is_used = composed.plugins.iter().any(|plugin| plugin.id.as_ref().is_some_and(|id| **id == *WEBHOOK));
    let store = composed.host.core.record_store().filter(|_| is_used && is_of_files::<RecordStore>(composed));
    let Some(store) = store else { return Ok(()) };
    let asked = (ENDPOINTS.to_owned(), Default::default());
    store.collection.read(limit::STORE, asked).await.known()?.list.read(limit::STORE, ()).await.known()?;
    Ok(())
}

/// Lists what is wrong with the automations in files. Their runs stay where they are: this host only reads the definitions.
async fn judge_files(composed: &Composed, settings: &Settings) -> Result<(), Thrown> {
    let report = Report::quiet().keeping(composed.host.core.log.problems().clone());
    let store = FileAutomations::open(&settings.dir, StateDb::memory()?, report).await?;
    composed.host.automations.judge(&Arc::new(store).into_point()).await
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
