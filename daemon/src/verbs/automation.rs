//! `ostler automation …`: the automations of the running daemon, and their runs.

use std::collections::HashSet;

use clap::Subcommand;
use ostler_contract::{Value, json};
use ostler_protocol::run_list::{Run, RunFilter, RunList};
use ostler_protocol::wire::state::{AutomationRunSummary, SessionSummary};
use ostler_protocol::{names, uri};
use serde::Deserialize as _;

use super::ask;
use crate::answer::Answer;
use crate::api::list_shapes::{INPUT_NEEDED, SESSIONS, Session, SessionFilter, SessionList, WAITING};
use crate::client::Connection;
use crate::client::automations::{id_of, outcome_words, run_json, run_line, run_word, triggers};
use crate::client::follow::outcome;
use crate::client::screen::{Screen, first_line};
use crate::exit::Exit;
use crate::place::Place;
use crate::query_flags::QueryFlags;
use crate::remote::Remote;
use crate::schedules;

/// The command of the protocol that lists runs.
const RUNS: &str = "x-ostler/runs/list";
/// The state of a run whose turn has not ended.
const RUNNING: &str = "running";

/// The `ostler automation` commands.
#[derive(Debug, Clone, Subcommand)]
pub enum AutomationVerb {
    /// List automations with their triggers and last run
    List,
    /// Show an automation's definition and last runs
    Show {
        /// Id or URI of the automation
        id: String,
    },
    /// List the runs of one or all automations, newest first
    Runs(QueryFlags<RunFilter>),
    /// Start a run now
    Run {
        /// Id or URI of the automation
        id: String,
        /// Print the run until it ends
        #[arg(short, long)]
        follow: bool,
    },
    /// Enable the triggers of an automation
    Enable {
        /// Id or URI of the automation
        id: String,
    },
    /// Remove an automation with its runs
    Rm {
        /// Id or URI of the automation
        id: String,
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
    },
    /// Disable the triggers of an automation
    Disable {
        /// Id or URI of the automation
        id: String,
    },
}

/// Runs the command.
///
/// # Errors
/// Exit 2 for an invalid argument, 1 if no daemon runs.
pub async fn automation(at: &Place, verb: AutomationVerb) -> Result<Answer, Exit> {
    let daemon = async || Connection::required(at).await;
    match verb {
        AutomationVerb::List => list(&daemon().await?).await,
        AutomationVerb::Show { id } => show(&daemon().await?, &id).await,
        AutomationVerb::Runs(QueryFlags(filter)) => runs(at, &filter).await,
        AutomationVerb::Run { id, follow } => run(at, &daemon().await?, &id, follow).await,
        AutomationVerb::Rm { id, yes } => rm(at, &daemon().await?, &id, yes).await,
        AutomationVerb::Enable { id } => enable(&daemon().await?, &id, true).await,
        AutomationVerb::Disable { id } => enable(&daemon().await?, &id, false).await,
    }
}

async fn list(daemon: &Connection) -> Result<Answer, Exit> {
    let mut entries = daemon.automations().await?;
    let states = entries.iter().filter_map(|entry| Some(outcome(&entry.runs.first()?.lifecycle).0));
    let waiting = waiting(daemon, states).await;
    entries.sort_by(|one, other| id_of(one).cmp(id_of(other)));
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    for entry in &entries {
        let definition = &entry.definition;
        let last = entry.runs.first().map(|run| run_row(run, &waiting));
        let mut line = format!("{}: {}", id_of(entry), definition.title);
        if !definition.enabled {
            line.push_str(", disabled");
        }
        let triggers = triggers(entry);
        line.push_str(&match triggers.is_empty() {
            true => ", manual only".to_owned(),
            false => format!(", on {}", triggers.join(", on ")),
        });
        if let Some(next) = &entry.next_run_at {
            line.push_str(&format!(", next {next}"));
        }
        if let Some(last) = &last {
            let text = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
            line.push_str(&format!(", last run {} {}", run_word(last), text("at")));
        }
        lines.push(line);
        rows.push(json!({
            "id": id_of(entry), "resource": entry.resource, "title": definition.title,
            "enabled": definition.enabled, "triggers": definition.triggers, "nextRunAt": entry.next_run_at,
            "lastRun": last,
        }));
    }
    if lines.is_empty() {
        lines.push("no automations; add one with: ostler webhook add <id> --automation".to_owned());
    }
    Ok(Answer::new(lines, rows.into()).named(entries.iter().map(id_of)))
}

async fn show(daemon: &Connection, name: &str) -> Result<Answer, Exit> {
    let entry = daemon.automation(name).await?;
    let definition = &entry.definition;
    let enabled = if definition.enabled { "enabled" } else { "disabled" };
    let mut lines = vec![format!("{}: {}, {enabled}", id_of(&entry), definition.title)];
    if let Some(provider) = &definition.session.provider {
        lines.push(format!("backend {provider}"));
    }
    lines.extend(triggers(&entry).into_iter().map(|trigger| format!("on {trigger}")));
    let own = definition.meta.as_ref().and_then(|meta| meta.get(names::HOST));
    if let Some(operation) = own.and_then(|own| own.get("after")?.as_str()) {
        lines.push(format!("after each run {operation}"));
    }
    let schedules = schedules::schedules(&entry);
    let in_words =
        schedules.iter().filter_map(|schedule| Some((&schedule.expression, schedule.in_words.as_ref()?)));
    lines.extend(in_words.map(|(expression, words)| format!("{expression} is {words}")));
    let next = schedules::next(&entry, jiff::Timestamp::now());
    lines.extend(next.iter().map(|time| format!("next {} {}", time.local, time.time_zone)));
    lines.extend(definition.message.text.trim_end().lines().map(|line| format!("> {line}")));
    let shown_runs = || entry.runs.iter().take(5);
    let waiting = waiting(daemon, shown_runs().map(|run| outcome(&run.lifecycle).0)).await;
    let runs: Vec<Value> = shown_runs().map(|run| run_row(run, &waiting)).collect();
    lines.extend(runs.iter().map(run_line));
    let mut shown = serde_json::to_value(&entry).unwrap_or_default();
    shown["id"] = id_of(&entry).into();
    shown["schedules"] = json!(schedules);
    shown["nextRuns"] = json!(next);
    Ok(Answer::new(lines, shown).named([id_of(&entry)]))
}

async fn runs(at: &Place, filter: &RunFilter) -> Result<Answer, Exit> {
    let named = filter.automation.as_deref();
    let (list, waiting): (RunList, _) = match at.remote()? {
        Some(remote) => {
            let list = remote.get_selected("/api/runs", filter).await?;
            let waiting = waiting_elsewhere(&remote, &list).await;
            (list, waiting)
        }
        None => {
            let daemon = Connection::required(at).await?;
            let listed = daemon.request(RUNS, json!(filter)).await?;
            let list: RunList = serde_json::from_value(listed)
                .map_err(|error| Exit::machine(format!("the daemon returned no list of runs: {error}")))?;
            if let (true, Some(name)) = (list.runs.is_empty(), named) {
                // The runs of an automation whose file was removed are still listed.
                daemon.automation(name).await?;
            }
            let waiting = waiting(&daemon, list.runs.iter().map(|run| &*run.state)).await;
            (list, waiting)
        }
    };
    let mut lines: Vec<String> =
        list.runs.iter().map(|run| listed_line(run, named.is_none(), &waiting)).collect();
    let is_whole = RunFilter { automation: None, limit: None, ..filter.clone() } == RunFilter::default();
    if lines.is_empty() && list.next.is_none() {
        lines.push(match named.filter(|_| is_whole) {
            Some(name) => format!("no runs of {name} yet; start one with: ostler automation run {name}"),
            None => "no matching runs".to_owned(),
        });
    }
    let names: Vec<String> = list.runs.iter().map(|run| run.uri.clone()).collect();
    let mut json = json!(list);
    for run in json["runs"].as_array_mut().into_iter().flatten() {
        if run["session"].as_str().is_some_and(|session| waiting.contains(session)) && run["state"] == RUNNING
        {
            run["waiting"] = true.into();
        }
    }
    let answer = Answer::new(lines, json).named(names);
    Ok(match &list.next {
        Some(next) => answer.note(format!("there may be older runs; list them with: --cursor {next}")),
        None => answer,
    })
}

/// A run as a row, with whether its session waits for input.
fn run_row(run: &AutomationRunSummary, waiting: &HashSet<String>) -> Value {
    let mut row = run_json(run);
    if state_word(outcome(&run.lifecycle).0, run.primary_session.as_deref(), waiting) == INPUT_NEEDED {
        row["waiting"] = true.into();
    }
    row
}

/// A run as a line.
fn listed_line(run: &Run, names_automation: bool, waiting: &HashSet<String>) -> String {
    let at = run.ended_at.as_ref().or(run.started_at.as_ref()).unwrap_or(&run.accepted_at);
    let state = state_word(&run.state, run.session.as_deref(), waiting);
    let mut line = format!("{} {state}, {at}", run.uri);
    if names_automation {
        line.push_str(&format!(", automation {}", run.automation));
    }
    if let Some(session) = &run.session {
        line.push_str(&format!(", session {session}"));
    }
    let done = run.after.as_ref().and_then(|after| after.message.as_deref());
    line.push_str(&outcome_words(run.error.as_deref(), done));
    line
}

async fn run(at: &Place, daemon: &Connection, name: &str, follow: bool) -> Result<Answer, Exit> {
    let entry = daemon.automation(name).await?;
    let run = daemon.run_automation(&entry.resource).await?;
    if !follow {
        let json = json!({ "run": run, "automation": entry.resource });
        return Ok(Answer::new([format!("started run {run}")], json).named([run]));
    }
    let mut screen = Screen::of(&at.common);
    screen.line(format_args!("started run {run}"));
    let end = daemon.follow_run(&run, &mut |seen| screen.see(seen)).await?;
    let mut answer = Answer::new([end.line()], end.json()).named([run]);
    answer.code = u8::from(!end.completed());
    Ok(answer)
}

async fn rm(at: &Place, daemon: &Connection, name: &str, yes: bool) -> Result<Answer, Exit> {
    let entry = daemon.automation(name).await?;
    let id = id_of(&entry);
    ask::sure(at, yes, &format!("Remove automation {id} ({})?", first_line(&entry.definition.title)))?;
    let running = running(daemon, id).await?;
    daemon.remove_automation(&entry.resource).await?;
    let json = json!({ "id": id, "resource": entry.resource, "removed": true, "continues": running });
    let continues = running.iter().map(|session| {
        let id = uri::session_id(session).unwrap_or(session);
        format!("Session {session} of a run continues; cancel its turn with: ostler session cancel {id}")
    });
    Ok(Answer::new([format!("Removed {id} with its runs.")].into_iter().chain(continues), json).named([id]))
}

/// The sessions of an automation's runs that have not ended.
async fn running(daemon: &Connection, id: &str) -> Result<Vec<String>, Exit> {
    let mut filter = RunFilter {
        automation: Some(id.to_owned()),
        state: Some(RUNNING.to_owned()),
        limit: Some(500),
        ..RunFilter::default()
    };
    let mut sessions = Vec::new();
    loop {
        let listed = daemon.request(RUNS, json!(filter)).await?;
        let page: RunList = serde_json::from_value(listed)
            .map_err(|error| Exit::machine(format!("the daemon returned no list of runs: {error}")))?;
        sessions.extend(page.runs.into_iter().filter_map(|run| run.session));
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return Ok(sessions);
        }
    }
}

/// The sessions that wait for input, if any of these runs is running. Asked for once, and only then; a caller that may not list
/// sessions reads that the runs are running.
async fn waiting(daemon: &Connection, mut states: impl Iterator<Item = &str>) -> HashSet<String> {
    if !states.any(|state| state == RUNNING) {
        return HashSet::new();
    }
    let waits = |row: &Value| {
        SessionSummary::deserialize(row).is_ok_and(|row| Session::of(&row, None).state == WAITING)
    };
    let rows = daemon.sessions(usize::MAX, waits).await.unwrap_or_default();
    rows.iter().filter_map(|row| row["resource"].as_str().map(str::to_owned)).collect()
}

/// The same, over the HTTP API.
async fn waiting_elsewhere(remote: &Remote, list: &RunList) -> HashSet<String> {
    let mut found = HashSet::new();
    if !list.runs.iter().any(|run| run.state == RUNNING) {
        return found;
    }
    let mut filter = SessionFilter { waiting: Some(true), limit: Some(500), ..SessionFilter::default() };
    loop {
        let Ok(page) = remote.get_selected::<SessionList>(SESSIONS, &filter).await else { return found };
        found.extend(page.sessions.into_iter().map(|session| session.uri));
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return found;
        }
    }
}

/// The state of a run, as messages name it.
fn state_word<'a>(state: &'a str, session: Option<&str>, waiting: &HashSet<String>) -> &'a str {
    match session.is_some_and(|session| waiting.contains(session)) {
        true if state == RUNNING => INPUT_NEEDED,
        _ => state,
    }
}

async fn enable(daemon: &Connection, name: &str, enabled: bool) -> Result<Answer, Exit> {
    let entry = daemon.automation(name).await?;
    daemon.enable(&entry.resource, enabled).await?;
    let id = id_of(&entry);
    let word = if enabled { "Enabled" } else { "Disabled" };
    let json = json!({ "id": id, "resource": entry.resource, "enabled": enabled });
    Ok(Answer::new([format!("{word} {id}.")], json).named([id]))
}
