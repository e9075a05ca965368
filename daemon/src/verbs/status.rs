//! `ostler status`: prints where the daemon runs.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_contract::json;
use ostler_telemetry::printable::one_line;

use crate::answer::Answer;
use crate::api::problem_shapes::Problem;
use crate::api::shapes::{AgentProcesses, DaemonStatus, Status};
use crate::client::Connection;
use crate::daemon_file::{self, Record};
use crate::exit::Exit;
use crate::place::Place;
use crate::problems;

/// The plugin command that lists running agents.
pub const PROCESSES: &str = "x-acp/processes";
/// The limit of its answer.
pub const PROCESSES_LIMIT: Duration = Duration::from_secs(3);

/// Prints where it runs; exit 1 if none runs.
///
/// # Errors
/// Exit 2 if a named configuration file does not exist.
pub async fn status(place: &Place) -> Result<Answer, Exit> {
    if let Some(remote) = place.remote()? {
        let shown: DaemonStatus = remote.get("/api/status").await?;
        let answer = with_problems(shown.status.answer(), &shown.problems);
        let json = json!(shown);
        let answer = Answer { json, ..answer };
        let told = |problem: &String| shown.problems.iter().any(|known| known.found == *problem);
        let untold = shown.problem.iter().filter(|problem| !told(problem)).cloned();
        return Ok(untold.fold(answer, Answer::note));
    }
    let folders = place.folders()?;
    let Some(record) = daemon_file::running(&folders) else {
        let mut none = Answer::none_running("running");
        if let Some(pid) = daemon_file::starting(&folders) {
            none.text = format!("None running: starting (pid {pid}).\n");
            none.json["starting"] = pid.into();
        }
        return Ok(none);
    };
    let mut status = Status::of(&record);
    status.agents = agents(&record).await;
    let problems = problems::here(&record).await;
    let mut answer = with_problems(status.answer(), &problems);
    answer.json["problems"] = json!(problems);
    Ok(answer)
}

/// Adds what is wrong now to the lines.
fn with_problems(mut answer: Answer, problems: &[Problem]) -> Answer {
    for line in problems::lines(problems) {
        answer.text.push_str(&(one_line(&line) + "\n"));
    }
    answer
}

/// Returns the running agents and their memory; `None` if the daemon does not report them.
async fn agents(record: &Record) -> Option<Vec<AgentProcesses>> {
    let asked = async {
        let daemon = Connection::open(&record.connect_url, "ostler-status").await.ok()?;
        serde_json::from_value(daemon.request(PROCESSES, json!({})).await.ok()?["agents"].take()).ok()
    };
    tokio::time::timeout(PROCESSES_LIMIT, asked).await.ok().flatten()
}

/// Returns one line for each agent: its sessions, processes and memory.
fn agent_lines(agents: &[AgentProcesses]) -> Vec<String> {
    let mut sums: BTreeMap<&str, (usize, u64, u64)> = BTreeMap::new();
    for row in agents {
        let (sessions, processes, memory) = sums.entry(row.provider.as_str()).or_default();
        *sessions += 1;
        *processes += row.processes;
        *memory += row.memory_bytes;
    }
    let plural = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let line = |(provider, (sessions, processes, memory)): (&str, (usize, u64, u64))| {
        let sessions = plural(sessions as u64, "session");
        let processes = processes.to_string() + if processes == 1 { " process" } else { " processes" };
        format!("agent {provider}: {sessions}, {processes}, {} MB", memory >> 20)
    };
    sums.into_iter().map(line).collect()
}

impl Status {
    /// Returns the record of a daemon without its token.
    pub fn of(record: &Record) -> Self {
        Self {
            pid: record.pid,
            url: record.url.clone(),
            public_url: record.public_url.clone(),
            paths: record.paths.clone(),
            started_at: record.started_at.clone(),
            automations: record.automations.clone(),
            state: record.state.as_ref().map(|state| state.display().to_string()),
            said: record.said.clone(),
            agents: None,
        }
    }

    /// Returns the record in the form of the output.
    pub fn answer(&self) -> Answer {
        let Self { pid, url, public_url, paths, started_at, automations, state, said, agents } = self;
        let mut lines = vec![
            format!("ostler on {url} (pid {pid}), started {started_at}"),
            format!("serving {}", paths.join(", ")),
        ];
        lines.extend(public_url.as_ref().map(|url| format!("public URL {url}")));
        lines.extend(automations.clone());
        lines.extend(state.as_ref().map(|state| format!("state in {state}")));
        lines.extend(said.iter().cloned());
        lines.extend(agent_lines(agents.as_deref().unwrap_or_default()));
        Answer::new(lines, json!(self)).named([url])
    }
}
