//! Opening an agent's session: a new one, or the one a conversation had.

use std::path::PathBuf;
use std::sync::Arc;

use ostler_contract::points::ClientPlugin;
use ostler_contract::{JsonObject, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use crate::agent::{Running, Surroundings};
use crate::agent_connection::{Failure, Incoming, Request};
use crate::errors::{AgentError, words};
use crate::machine;
use crate::mcp::{self, Endpoint};
use crate::options::{AgentOptions, Runtime};
use crate::protocol::{Chunk, Content, Update, Voice, member};
use crate::settings::{self, Setting};
use crate::transcript::Transcript;

/// The maximum number of retained messages before an agent's session is open, and their memory in bytes. It is less
/// than the queue of the conversation, so that the answer that opens the session is read.
const EARLY: usize = 1024;
const EARLY_BYTES: usize = 1 << 20;

/// The limit of a user's answer before the session is open.
const USER_LIMIT: Duration = Duration::from_secs(600);

/// The inputs of opening a session.
#[derive(Debug, Clone)]
pub struct Plan {
    pub agent: Arc<AgentOptions>,
    /// What all agents share.
    pub runtime: Arc<Runtime>,
    pub at: Surroundings,
    /// More directories.
    pub additional: Vec<PathBuf>,
    /// The session's tools endpoint.
    pub endpoint: Option<Endpoint>,
    pub plugins: Vec<ClientPlugin>,
    /// The configured MCP servers.
    pub mcp_servers: Option<JsonObject>,
    /// The agent's id of the session to continue.
    pub resume: Option<String>,
    /// Requests to continue it at which the agent ended before.
    pub failed_at: Vec<&'static str>,
    /// The agent's id of the session to fork; if the agent cannot fork, it receives the turns as text.
    pub fork: Option<String>,
    /// Whether the host does not know that session, so that its turns are read and a new session is no substitute.
    pub imported: bool,
    /// Receives requests of the agent before its session is open; without it they are rejected.
    pub questions: Option<mpsc::Sender<Request>>,
}

/// An open session.
#[derive(Debug)]
pub struct Opened {
    /// Its agent.
    pub running: Running,
    /// The messages of the agent.
    pub incoming: mpsc::Receiver<Incoming>,
    /// The agent's id.
    pub session: String,
    /// The session's settings.
    pub settings: Vec<Setting>,
    /// The messages before the session was open that belong to it.
    pub early: Vec<Incoming>,
    /// Whether the agent knows the conversation so far.
    pub continued: bool,
    /// Lines for the log.
    pub notes: Vec<String>,
    /// The turns of an imported session.
    pub replayed: Transcript,
}

/// Why no session is open.
#[derive(Debug)]
pub enum Unopened {
    /// The agent ended, hung or used too much memory at the request for its earlier session. It may open a new one.
    Resuming {
        /// What it was asked.
        method: &'static str,
        /// The other request for it, if the agent supports one and has not received it.
        other: Option<&'static str>,
        /// The failure.
        why: AgentError,
    },
    /// Anything else.
    Failed(AgentError),
}

impl From<AgentError> for Unopened {
    fn from(why: AgentError) -> Self {
        Self::Failed(why)
    }
}

impl From<Unopened> for AgentError {
    fn from(unopened: Unopened) -> Self {
        match unopened {
            Unopened::Resuming { why, .. } | Unopened::Failed(why) => why,
        }
    }
}

/// Starts the agent and opens a session.
///
/// # Errors
/// The agent cannot be started, or rejects a new session. None of its processes remains.
pub async fn open(plan: Plan) -> Result<Opened, Unopened> {
    let Plan { agent, runtime, at, .. } = &plan;
    let (running, mut incoming) = Running::start(agent, runtime, at).await?;
    let opened = session(&plan, &running, &mut incoming).await;
    match opened {
        Ok(Session { id, answer, early, continued, notes, replayed }) => {
            let settings = settings::read(&answer);
            Ok(Opened { running, incoming, session: id, settings, early, continued, notes, replayed })
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
    pub answer: Value,
    early: Vec<Incoming>,
    continued: bool,
    notes: Vec<String>,
    replayed: Transcript,
}

/// Opens a session with a running agent.
///
/// # Errors
/// The agent rejects a new session, or ends.
pub async fn session(
    plan: &Plan,
    running: &Running,
    incoming: &mut mpsc::Receiver<Incoming>,
) -> Result<Session, Unopened> {
    let facts = running.facts.clone();
    let (servers, mut notes) = mcp::servers(
        plan.endpoint.as_ref(),
        plan.mcp_servers.as_ref(),
        &facts,
        plan.runtime.bridge.as_deref(),
    );
    let (cwd, additional) = match &plan.at.computer {
        Some(computer) => machine::directories(computer, &plan.at.cwd, &plan.additional).await,
        None => (plan.at.cwd.clone(), plan.additional.clone()),
    };
    let mut params = json!({ "cwd": cwd, "mcpServers": servers });
    match (additional.is_empty(), facts.directories) {
        (true, _) => {}
        (false, true) => params["additionalDirectories"] = json!(additional),
        (false, false) => notes.push("the agent works in one directory; the others are left out".to_owned()),
    }
    let plugins: Vec<&ClientPlugin> = plan.plugins.iter().filter(|plugin| plugin.enabled).collect();
    match plan.at.computer {
        _ if plugins.is_empty() => {}
        Some(_) => notes.push("the agent runs in a machine; the plugins of clients are left out".to_owned()),
        None => params["_meta"] = plugins_meta(&plugins, plan.agent.plugins_at.as_deref()),
    }
    let mut asking = Asking { running, incoming, questions: plan.questions.as_ref(), notes };
    if let Some(method) = sign_in(plan) {
        asking.ask("authenticate", json!({ "methodId": method }), Early::Settings).await?;
    }
    if let Some(id) = &plan.resume {
        let mut methods = [("session/resume", facts.resume), ("session/load", facts.load)];
        if plan.imported {
            // Only a load replays the turns.
            methods.reverse();
        }
        let methods = methods.into_iter().filter(|(method, able)| *able && !plan.failed_at.contains(method));
        let mut methods = methods.map(|(method, _)| method);
        while let Some(method) = methods.next() {
            let mut params = params.clone();
            params["sessionId"] = id.as_str().into();
            match asking.ask(method, params, Early::Settings).await {
                Ok((answer, early, replayed)) => {
                    return Ok(Session {
                        id: id.clone(),
                        answer,
                        early,
                        continued: true,
                        notes: asking.notes,
                        replayed,
                    });
                }
                Err(AgentError::Refused { failure, .. }) if !plan.imported => {
                    asking.notes.push(format!("{method} failed: {}", words(&failure)))
                }
                Err(
                    why @ (AgentError::Ended { .. } | AgentError::Silent { .. } | AgentError::Memory { .. }),
                ) if !plan.imported => return Err(Unopened::Resuming { method, other: methods.next(), why }),
                Err(why) => return Err(why.into()),
            }
        }
    }
    if let Some(source) = plan.fork.as_ref().filter(|_| facts.fork) {
        let mut params = params.clone();
        params["sessionId"] = source.as_str().into();
        match asking.ask("session/fork", params, Early::Settings).await {
            Ok((answer, early, replayed)) => {
                if let Some(id) = member::<String>(&answer, "sessionId") {
                    return Ok(Session { id, answer, early, continued: true, notes: asking.notes, replayed });
                }
                asking.notes.push("session/fork failed: its answer has no sessionId".to_owned());
            }
            Err(AgentError::Refused { failure, .. }) => {
                asking.notes.push(format!("session/fork failed: {}", words(&failure)))
            }
            Err(why) => return Err(why.into()),
        }
    }
    if plan.imported {
        let failure = Failure::internal("it can neither load nor resume a session");
        return Err(AgentError::Refused { method: "session/load", failure }.into());
    }
    let (answer, early, _) = asking.ask("session/new", params, Early::All).await?;
    let id: String = member(&answer, "sessionId").ok_or_else(|| AgentError::Refused {
        method: "session/new",
        failure: Failure::internal("its answer has no sessionId"),
    })?;
    let early = early
        .into_iter()
        .filter(|message| !matches!(message, Incoming::Update { session, .. } if *session != id))
        .collect();
    Ok(Session { id, answer, early, continued: false, notes: asking.notes, replayed: Transcript::default() })
}

/// Returns the `_meta` with plugins for an agent: under a name of this host, and in the agent's own member.
fn plugins_meta(plugins: &[&ClientPlugin], agents: Option<&[String]>) -> Value {
    let told: Vec<Value> =
        plugins.iter().map(|plugin| json!({ "name": plugin.name, "path": plugin.path })).collect();
    let mut meta = json!({ "ostler.clientPlugins": told });
    if let Some(members) = agents {
        let local: Vec<Value> =
            plugins.iter().map(|plugin| json!({ "type": "local", "path": plugin.path })).collect();
        let place = members.iter().fold(&mut meta, |at, member| &mut at[member.as_str()]);
        *place = local.into();
    }
    meta
}

/// The method that signs in before a session is opened: the configured one, or the one for the configured key.
fn sign_in(plan: &Plan) -> Option<&str> {
    let Plan { agent, at, .. } = plan;
    let has = |key: &String| at.lent.contains_key(key) || agent.env.contains_key(key);
    let of_key = agent.needs.key_method.as_deref().filter(|_| agent.needs.key.as_ref().is_some_and(has));
    agent.authenticate.as_deref().or(of_key)
}

/// The updates before an answer that are retained.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Early {
    /// All, which belong to the session of the answer.
    All,
    /// Those that are not a replay, because the host already has the turns.
    Settings,
}

/// The inputs of requests before a session is open.
struct Asking<'a> {
    running: &'a Running,
    incoming: &'a mut mpsc::Receiver<Incoming>,
    questions: Option<&'a mpsc::Sender<Request>>,
    /// Lines for the log.
    notes: Vec<String>,
}

impl Asking<'_> {
    /// Sends a request and receives the agent's messages before its answer. While a user is asked, the limit of the
    /// user applies.
    async fn ask(
        &mut self,
        method: &'static str,
        params: Value,
        retained: Early,
    ) -> Result<(Value, Vec<Incoming>, Transcript), AgentError> {
        let mut earlier =
            Earlier { retained, messages: Vec::new(), bytes: 0, left_out: 0, replay: Replay::default() };
        let mut until = Instant::now() + self.running.limit();
        let asked = self.running.wire.request(method, params);
        tokio::pin!(asked);
        let answer = loop {
            tokio::select! {
                answer = &mut asked => match answer {
                    Ok(answer) => break answer,
                    Err(failure) => return Err(self.running.error(method, failure).await),
                },
                Some(message) = self.incoming.recv() => match message {
                    Incoming::Request(request) => {
                        let for_user = request.is_for_a_user();
                        if forward(self.questions, request).await && for_user {
                            until = Instant::now() + USER_LIMIT;
                        }
                    }
                    message => earlier.take(message),
                },
                () = tokio::time::sleep_until(until) => return Err(self.running.silent(method)),
            }
        };
        // Messages before the answer are in the receiver by now.
        while let Ok(message) = self.incoming.try_recv() {
            match message {
                Incoming::Request(request) => drop(forward(self.questions, request).await),
                message => earlier.take(message),
            }
        }
        if earlier.left_out > 0 {
            let count = earlier.left_out;
            self.notes.push(format!(
                "{count} updates that the agent sent before its session was open are left out"
            ));
        }
        Ok((answer, earlier.messages, earlier.replay.end()))
    }
}

/// Passes a request on; without a receiver it is declined.
async fn forward(questions: Option<&mpsc::Sender<Request>>, request: Request) -> bool {
    let untaken = match questions {
        Some(questions) => questions.send(request).await.err().map(|mpsc::error::SendError(request)| request),
        None => Some(request),
    };
    let taken = untaken.is_none();
    if let Some(request) = untaken {
        request.decline("not available before the session is open");
    }
    taken
}

/// The messages of an agent before an answer.
struct Earlier {
    retained: Early,
    messages: Vec<Incoming>,
    /// The memory they take.
    bytes: usize,
    /// How many were dropped.
    left_out: usize,
    replay: Replay,
}

impl Earlier {
    fn take(&mut self, message: Incoming) {
        let retained = self.retained;
        if let Incoming::Update { update: Update::Chunk(chunk), .. } = &message
            && retained == Early::Settings
        {
            self.replay.take(chunk);
        }
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
        if retained == Early::Settings && replayed {
            return;
        }
        let size = match &message {
            Incoming::Update { charge, .. } => charge.bytes(),
            _ => 0,
        };
        if self.messages.len() >= EARLY || self.bytes + size > EARLY_BYTES {
            self.left_out += 1;
            return;
        }
        self.bytes += size;
        self.messages.push(message);
    }
}

/// The turns of a replay: an answer ends at the next user message.
#[derive(Debug, Default)]
struct Replay {
    turns: Transcript,
    message: String,
    answer: String,
}

impl Replay {
    fn take(&mut self, chunk: &Chunk) {
        let Content::Text(text) = &chunk.content else { return };
        match chunk.voice {
            Voice::User => {
                if !self.answer.is_empty() {
                    self.close();
                }
                append(&mut self.message, text);
            }
            Voice::Agent => append(&mut self.answer, text),
            Voice::Thought => {}
        }
    }

    fn close(&mut self) {
        let (message, answer) = (std::mem::take(&mut self.message), std::mem::take(&mut self.answer));
        if !message.is_empty() || !answer.is_empty() {
            self.turns.add(&message, &answer);
        }
    }

    fn end(mut self) -> Transcript {
        self.close();
        self.turns
    }
}

/// Adds text as far as a transcript retains it.
fn append(to: &mut String, text: &str) {
    if to.len() < crate::transcript::RETAINED {
        to.push_str(text);
    }
}
