//! A check of one agent: starts it, reads its capabilities, and ends it, without a session of the host.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::agent::{AgentFacts, AuthMethod, Running, Surroundings};
use crate::agent_connection::{Failure, Incoming};
use crate::errors::AgentError;
use crate::masks::Masks;
use crate::opening::{self, Plan};
use crate::options::{AgentOptions, Runtime};
use crate::protocol::{Chunk, Content, Update, Voice};
use crate::settings::{self, Catalogue, MODE, MODEL, Setting};

/// The limit of the answer to a check's prompt.
const PROMPT_LIMIT: Duration = Duration::from_secs(300);
/// How much of the answer is retained, in bytes.
const ANSWER_RETAINED: usize = 16 << 10;

/// Starts the agent and opens a separate session in an empty folder. With a prompt, also runs one turn, without
/// permissions. Returns what the agent supports and what is missing. Ends early if the caller has `left`.
pub async fn check(
    agent: &Arc<AgentOptions>,
    runtime: &Arc<Runtime>,
    catalogue: &Catalogue,
    prompt: Option<String>,
    left: impl Future<Output = ()> + Send,
) -> Value {
    tokio::pin!(left);
    catalogue.load().await;
    let mut report = json!({
        "provider": agent.provider, "name": agent.name, "command": agent.command_line(), "state": "ready",
    });
    if !agent.warnings.is_empty() {
        report["warnings"] = agent.warnings.clone().into();
    }
    if let Err(why) = run(agent, runtime, catalogue, prompt, left, &mut report).await {
        report["state"] = state(&why).into();
        report["problem"] = why.what(agent).into();
        if let (AgentError::NotInstalled, Some(install)) = (&why, &agent.install) {
            report["install"] = install.as_str().into();
        }
        if let AgentError::SignIn { methods, .. } = &why {
            report["authMethods"] = auth_methods(methods, agent);
        }
    }
    agent.masks.secrets().hide_value(report)
}

async fn run(
    agent: &Arc<AgentOptions>,
    runtime: &Arc<Runtime>,
    catalogue: &Catalogue,
    prompt: Option<String>,
    mut left: Pin<&mut (impl Future<Output = ()> + Send)>,
    report: &mut Value,
) -> Result<(), AgentError> {
    let folder = tempfile::tempdir().map_err(|why| AgentError::NotStarted(why.to_string()))?;
    let at = Surroundings::alone(folder.path());
    let begun = Instant::now();
    let (running, mut incoming) = tokio::select! {
        started = Running::start(agent, runtime, &at) => started?,
        () = &mut left => return Err(unwanted("initialize")),
    };
    report["millis"] = json!({ "initialize": millis(begun) });
    describe(report, &running.facts, agent);
    catalogue.learn_facts(agent, &running.facts);
    let plan = Plan {
        agent: agent.clone(),
        runtime: runtime.clone(),
        at,
        additional: Vec::new(),
        plugins: Vec::new(),
        endpoint: None,
        mcp_servers: None,
        resume: None,
        failed_at: Vec::new(),
        fork: None,
        imported: false,
        questions: None,
    };
    let outcome = tokio::select! {
        outcome = converse(&plan, &running, &mut incoming, catalogue, prompt, report) => outcome,
        () = &mut left => Err(unwanted("session/prompt")),
    };
    drop(incoming);
    running.close().await;
    catalogue.store().await;
    outcome
}

/// The caller has left.
fn unwanted(method: &'static str) -> AgentError {
    AgentError::Refused { method, failure: Failure::internal("the caller has disconnected".to_owned()) }
}

async fn converse(
    plan: &Plan,
    running: &Running,
    incoming: &mut mpsc::Receiver<Incoming>,
    catalogue: &Catalogue,
    prompt: Option<String>,
    report: &mut Value,
) -> Result<(), AgentError> {
    let begun = Instant::now();
    let opened = opening::session(plan, running, incoming).await?;
    report["millis"]["session"] = millis(begun).into();
    let settings = settings::read(&opened.answer);
    catalogue.learn_defaults(&settings);
    describe_settings(report, &settings);
    if let Some(prompt) = prompt {
        let begun = Instant::now();
        report["answer"] = ask(running, incoming, (&opened.id, &prompt), running.masks()).await?;
        report["millis"]["prompt"] = millis(begun).into();
    }
    let facts = running.facts.clone();
    let of_session = json!({ "sessionId": opened.id });
    // Its stored session of the check is of no use to users.
    let parting = async {
        if facts.close {
            let _ = running.wire.request("session/close", of_session.clone()).await;
        }
        if facts.delete {
            let _ = running.wire.request("session/delete", of_session).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(2), parting).await;
    Ok(())
}

/// Runs one turn, and denies all requests of the agent.
async fn ask(
    running: &Running,
    incoming: &mut mpsc::Receiver<Incoming>,
    (session, prompt): (&str, &str),
    masks: &Masks,
) -> Result<Value, AgentError> {
    let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": prompt }] });
    let asked = running.wire.request("session/prompt", params);
    tokio::pin!(asked);
    let (mut said, mut cut) = (String::new(), false);
    let mut take = |message: Incoming| match message {
        Incoming::Update {
            update: Update::Chunk(Chunk { voice: Voice::Agent, content: Content::Text(text), .. }),
            ..
        } => match ANSWER_RETAINED.checked_sub(said.len()).filter(|room| *room > 0) {
            Some(room) => {
                let end = text.floor_char_boundary(room);
                said.push_str(&text[..end]);
                cut |= end < text.len();
            }
            None => cut = true,
        },
        Incoming::Request(request) => request.decline("not available during a check"),
        _ => {}
    };
    let timeout = tokio::time::sleep(PROMPT_LIMIT);
    tokio::pin!(timeout);
    let answer = loop {
        tokio::select! {
            answer = &mut asked => break answer,
            Some(message) = incoming.recv() => take(message),
            () = &mut timeout => {
                let why = Failure::internal(format!("no answer within {} seconds", PROMPT_LIMIT.as_secs()));
                return Err(AgentError::Refused { method: "session/prompt", failure: why });
            }
        }
    };
    while let Ok(message) = incoming.try_recv() {
        take(message);
    }
    match answer {
        Ok(answer) => {
            let said = match cut {
                true => masks.hide_in_beginning(&said),
                false => masks.hide(&said),
            };
            let why = masks.hide_value(answer.get("stopReason").cloned().unwrap_or_default());
            Ok(json!({ "text": said, "stopReason": why }))
        }
        Err(failure) => Err(running.error("session/prompt", failure).await),
    }
}

fn state(why: &AgentError) -> &'static str {
    match why {
        AgentError::NotInstalled => "notInstalled",
        AgentError::SignIn { .. } => "notSignedIn",
        _ => "failed",
    }
}

fn millis(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Adds the capabilities of an agent.
pub fn describe(row: &mut Value, facts: &AgentFacts, agent: &AgentOptions) {
    let mut supports = serde_json::to_value(facts).unwrap_or_default();
    if let Some(members) = supports.as_object_mut() {
        members.retain(|_, value| value.is_boolean());
    }
    row["agentName"] = json!(facts.name);
    row["version"] = json!(facts.version);
    row["supports"] = supports;
    row["missing"] = json!(missing(facts));
    row["authMethods"] = auth_methods(&facts.auth, agent);
}

/// Adds the models and modes among an agent's settings.
pub fn describe_settings(row: &mut Value, settings: &[Setting]) {
    for (member, category) in [("models", MODEL), ("modes", MODE)] {
        if let Some(setting) = settings.iter().find(|setting| setting.is(category)) {
            row[member] = setting.choices().into();
        }
    }
}

/// Returns sign-in methods in the form of the report.
pub fn auth_methods(methods: &[AuthMethod], agent: &AgentOptions) -> Value {
    let method = |method: &AuthMethod| {
        let mut shown = json!({ "id": method.id, "name": method.name });
        if let Some(description) = &method.description {
            shown["description"] = description.as_str().into();
        }
        if let Some(command) = method.command(agent) {
            shown["command"] = agent.masks.hide(&command).into();
        }
        shown
    };
    methods.iter().map(method).collect()
}

/// Returns missing capabilities of an agent, and what happens instead.
fn missing(facts: &AgentFacts) -> Vec<&'static str> {
    let rows = [
        (facts.mcp_http, "MCP over HTTP: the session's tools are offered to it over stdio"),
        (
            facts.resume || facts.load,
            "session/resume and session/load: after a restart it is told the latest turns as text",
        ),
        (facts.image, "images in prompts"),
        (facts.embedded, "embedded resources in prompts: they are sent as links"),
        (facts.directories, "additional directories: it works in the first one"),
    ];
    rows.into_iter().filter(|(has, _)| !has).map(|(_, line)| line).collect()
}

/// Returns whether the agent's program exists.
pub fn is_installed(agent: &AgentOptions) -> bool {
    ostler_processes::is_installed(&crate::agent::program(agent, &Surroundings::alone(Path::new("/"))))
}
