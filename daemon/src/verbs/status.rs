//! `ostler status`: where the daemon runs.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_contract::{Value, json};

use crate::answer::Answer;
use crate::client::Connection;
use crate::exit::Exit;
use crate::place::Place;
use crate::record::{self, Record};

/// The command of a plugin that lists the agents that run.
pub const PROCESSES: &str = "x-acp/processes";
/// How long it may take.
pub const PROCESSES_LIMIT: Duration = Duration::from_secs(3);

/// Says where it runs; exit 1 where none does.
///
/// # Errors
/// Exit 2 for a configuration file that is named and not there.
pub async fn status(place: &Place) -> Result<Answer, Exit> {
    let folders = place.folders()?;
    let Some(record) = record::running(&folders) else {
        let mut none = Answer::none_running("running");
        if let Some(pid) = record::starting(&folders) {
            none.text = format!("None running: starting (pid {pid}).\n");
            none.json["starting"] = pid.into();
        }
        return Ok(none);
    };
    let Record { pid, url, paths, started_at, state, automations, .. } = &record;
    let mut lines = vec![
        format!("ostler on {url} (pid {pid}), started {started_at}"),
        format!("serving {}", paths.join(", ")),
    ];
    lines.extend(automations.clone());
    lines.extend(state.as_ref().map(|state| format!("state in {}", state.display())));
    lines.extend(record.said.iter().cloned());
    let mut json = status_json(&record);
    if let Some(agents) = agents(&record).await {
        lines.extend(agent_lines(&agents));
        json["agents"] = agents;
    }
    Ok(Answer::new(lines, json).named([url]))
}

/// The agents that run and the memory they occupy; nothing where the daemon does not tell.
async fn agents(record: &Record) -> Option<Value> {
    let asked = async {
        let daemon = Connection::open(&record.connect_url, "ostler-status").await.ok()?;
        Some(daemon.request(PROCESSES, json!({})).await.ok()?["agents"].take())
    };
    tokio::time::timeout(PROCESSES_LIMIT, asked).await.ok().flatten()
}

/// One line for each agent: its sessions, processes and memory.
fn agent_lines(agents: &Value) -> Vec<String> {
    let mut sums: BTreeMap<&str, (usize, u64, u64)> = BTreeMap::new();
    for row in agents.as_array().into_iter().flatten() {
        let (sessions, processes, memory) =
            sums.entry(row["provider"].as_str().unwrap_or_default()).or_default();
        *sessions += 1;
        *processes += row["processes"].as_u64().unwrap_or_default();
        *memory += row["memoryBytes"].as_u64().unwrap_or_default();
    }
    let plural = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let line = |(provider, (sessions, processes, memory)): (&str, (usize, u64, u64))| {
        let sessions = plural(sessions as u64, "session");
        let processes = processes.to_string() + if processes == 1 { " process" } else { " processes" };
        format!("agent {provider}: {sessions}, {processes}, {} MB", memory >> 20)
    };
    sums.into_iter().map(line).collect()
}

/// The same as JSON; the token is not in it.
pub fn status_json(record: &Record) -> Value {
    let mut json = json!({
        "pid": record.pid, "url": record.url, "paths": record.paths, "startedAt": record.started_at,
    });
    if let Some(automations) = &record.automations {
        json["automations"] = automations.clone().into();
    }
    if let Some(state) = &record.state {
        json["state"] = state.display().to_string().into();
    }
    if !record.said.is_empty() {
        json["said"] = json!(record.said);
    }
    json
}
