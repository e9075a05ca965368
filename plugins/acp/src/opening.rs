//! Opening an agent's session: a new one, or the one a conversation had.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ostler_contract::{JsonObject, Value, json};
use tokio::sync::mpsc;

use crate::agent::Running;
use crate::errors::{AgentError, words};
use crate::mcp::{self, Endpoint};
use crate::options::{AgentOptions, Runtime};
use crate::protocol::{Update, member};
use crate::settings::{self, Setting};
use crate::wire::Incoming;

/// How many messages are retained that an agent sends before its session is open.
const EARLY: usize = 1024;

/// What a session is opened with.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The agent.
    pub agent: Arc<AgentOptions>,
    /// What all agents share.
    pub runtime: Arc<Runtime>,
    /// Where it works.
    pub cwd: PathBuf,
    /// More directories.
    pub additional: Vec<PathBuf>,
    /// Variables of the session.
    pub env: BTreeMap<String, String>,
    /// The session's tools endpoint.
    pub endpoint: Option<Endpoint>,
    /// The configured MCP servers.
    pub mcp_servers: Option<JsonObject>,
    /// The agent's id of the session to continue.
    pub resume: Option<String>,
}

/// A session that is open.
#[derive(Debug)]
pub struct Opened {
    /// Its agent.
    pub running: Running,
    /// What the agent sends.
    pub incoming: mpsc::Receiver<Incoming>,
    /// The agent's id.
    pub session: String,
    /// The session's settings.
    pub settings: Vec<Setting>,
    /// What the agent sent before the session was open, as far as it belongs to it.
    pub early: Vec<Incoming>,
    /// Whether the agent knows the conversation so far.
    pub continued: bool,
    /// Lines for the log.
    pub notes: Vec<String>,
}

/// Starts the agent and opens a session.
///
/// # Errors
/// The agent cannot be started, or refuses a new session. Nothing of it runs then.
pub async fn open(plan: Plan) -> Result<Opened, AgentError> {
    let Plan { agent, runtime, cwd, env, .. } = &plan;
    let (running, mut incoming) = Running::start(agent, runtime, cwd, env).await?;
    let opened = session(&plan, &running, &mut incoming).await;
    match opened {
        Ok(Session { id, answer, early, continued, notes }) => {
            let settings = settings::read(&answer);
            Ok(Opened { running, incoming, session: id, settings, early, continued, notes })
        }
        Err(why) => {
            running.close().await;
            Err(why)
        }
    }
}

/// An agent's answer to the request that opened its session.
#[derive(Debug)]
pub struct Session {
    /// The agent's id.
    pub id: String,
    /// The answer.
    pub answer: Value,
    early: Vec<Incoming>,
    continued: bool,
    notes: Vec<String>,
}

/// Opens a session with an agent that runs.
///
/// # Errors
/// The agent refuses a new session, or ends.
pub async fn session(
    plan: &Plan,
    running: &Running,
    incoming: &mut mpsc::Receiver<Incoming>,
) -> Result<Session, AgentError> {
    let facts = running.facts.clone();
    let (servers, mut notes) = mcp::servers(
        plan.endpoint.as_ref(),
        plan.mcp_servers.as_ref(),
        &facts,
        plan.runtime.bridge.as_deref(),
    );
    let mut params = json!({ "cwd": plan.cwd, "mcpServers": servers });
    match (plan.additional.is_empty(), facts.directories) {
        (true, _) => {}
        (false, true) => params["additionalDirectories"] = json!(plan.additional),
        (false, false) => notes.push("the agent works in one directory; the others are left out".to_owned()),
    }
    if let Some(method) = &plan.agent.authenticate {
        ask(running, incoming, "authenticate", json!({ "methodId": method }), Early::Settings).await?;
    }
    if let Some(id) = &plan.resume {
        let methods = [("session/resume", facts.resume), ("session/load", facts.load)];
        for (method, _) in methods.into_iter().filter(|(_, able)| *able) {
            let mut params = params.clone();
            params["sessionId"] = id.as_str().into();
            match ask(running, incoming, method, params, Early::Settings).await {
                Ok((answer, early)) => {
                    return Ok(Session { id: id.clone(), answer, early, continued: true, notes });
                }
                Err(AgentError::Refused { failure, .. }) => {
                    notes.push(format!("{method} failed: {}", words(&failure)))
                }
                Err(why) => return Err(why),
            }
        }
    }
    let (answer, early) = ask(running, incoming, "session/new", params, Early::All).await?;
    let id: String = member(&answer, "sessionId").ok_or_else(|| AgentError::Refused {
        method: "session/new",
        failure: crate::wire::Failure::internal("its answer has no sessionId"),
    })?;
    let early = early
        .into_iter()
        .filter(|message| !matches!(message, Incoming::Update { session, .. } if *session != id))
        .collect();
    Ok(Session { id, answer, early, continued: false, notes })
}

/// Which updates are retained that come before an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Early {
    /// All: they belong to the session whose id the answer names.
    All,
    /// Those that are no replay: the host has the turns already.
    Settings,
}

/// Sends a request and takes what the agent sends before its answer.
async fn ask(
    running: &Running,
    incoming: &mut mpsc::Receiver<Incoming>,
    method: &'static str,
    params: Value,
    retained: Early,
) -> Result<(Value, Vec<Incoming>), AgentError> {
    let mut early = Vec::new();
    let mut take = |message: Incoming| {
        let replayed = match &message {
            Incoming::Update { update, .. } => !matches!(
                update,
                Update::Commands(_)
                    | Update::Mode(_)
                    | Update::ConfigOptions(_)
                    | Update::Title(_)
                    | Update::Notice(_)
            ),
            _ => false,
        };
        if early.len() < EARLY && (retained == Early::All || !replayed) {
            early.push(message);
        }
    };
    let asked = running.ask(method, params);
    tokio::pin!(asked);
    let answer = loop {
        tokio::select! {
            answer = &mut asked => break answer?,
            Some(message) = incoming.recv() => take(message),
        }
    };
    // What was sent before the answer is in the receiver by now.
    while let Ok(message) = incoming.try_recv() {
        take(message);
    }
    Ok((answer, early))
}
