//! The connection to an agent: JSON-RPC over its stdin and stdout. The only user of crate `agent-client-protocol`;
//! what passes is JSON, read by [`crate::protocol`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_client_protocol::v1::{ConnectionTo, Dispatch, Responder};
use agent_client_protocol::{Agent, Client, Error, ErrorCode, Lines, RequestCancellation, UntypedMessage};
use futures::Stream;
use ostler_contract::{Value, json};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};

use crate::protocol::Update;

/// The version of the protocol that is spoken.
pub const PROTOCOL_VERSION: u64 = 1;
/// The longest message, in bytes. A longer one ends the connection.
const LONGEST: usize = 16 << 20;
/// How many messages wait for the conversation. While they do nothing more is read, and an agent that sends faster waits.
const WAITING: usize = 32;
/// How many lines in a row may be no message. More end the connection.
const NOISE: usize = 10_000;
/// How much of a line that is no message is retained for an error.
const NOISE_SHOWN: usize = 200;

/// What an agent sends of its own accord.
#[derive(Debug)]
pub enum Incoming {
    /// A `session/update`.
    Update {
        /// The agent's id of the session.
        session: String,
        /// What happened.
        update: Update,
    },
    /// A request, to be answered.
    Request(Request),
    /// What was asked at an address is answered there: the agent's name for it.
    ElicitationComplete(String),
}

/// A request of an agent. One that is dropped is answered with an error.
#[derive(Debug)]
pub struct Request {
    /// Its method.
    pub method: String,
    /// Its parameters.
    pub params: Value,
    responder: Responder<Value>,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// The other side answered with an error.
    Refused {
        /// The JSON-RPC code.
        code: i32,
        /// The error's message.
        message: String,
        /// The error's data.
        data: Option<Value>,
    },
    /// The connection closed before the answer.
    Closed,
}

impl Failure {
    /// The method is not available.
    pub fn unknown_method(method: &str) -> Self {
        Self::Refused {
            code: ErrorCode::METHOD_NOT_FOUND.value(),
            message: format!("{method} is not a method of this client"),
            data: None,
        }
    }

    /// The parameters do not fit.
    pub fn bad_params(why: impl Into<String>) -> Self {
        Self::Refused { code: ErrorCode::INVALID_PARAMS.value(), message: why.into(), data: None }
    }

    /// The request could not be carried out.
    pub fn internal(why: impl Into<String>) -> Self {
        Self::Refused { code: ErrorCode::INTERNAL_ERROR.value(), message: why.into(), data: None }
    }

    /// Whether the agent asks to be signed in first.
    pub fn is_auth_required(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == ErrorCode::AUTH_REQUIRED.value())
    }
}

impl Request {
    /// Answers it. An agent that no longer listens does not mind.
    pub fn answer(self, outcome: Result<Value, Failure>) {
        let _ = match outcome {
            Ok(result) => self.responder.respond(result),
            Err(Failure::Refused { code, message, data }) => {
                let error = Error::new(code, message);
                self.responder.respond_with_error(match data {
                    Some(data) => error.data(data),
                    None => error,
                })
            }
            Err(Failure::Closed) => self.responder.respond_with_error(Error::internal_error()),
        };
    }

    /// A watch for the agent taking the request back with `$/cancel_request`.
    pub fn withdrawal(&self) -> Withdrawal {
        Withdrawal(self.responder.cancellation())
    }
}

/// Resolves when an agent takes a request back.
pub struct Withdrawal(RequestCancellation);

impl Withdrawal {
    /// Waits until the request is taken back.
    pub async fn wait(self) {
        self.0.cancelled().await;
    }
}

/// A connection to a running agent. Dropping the last of its clones closes the agent's stdin.
#[derive(Debug, Clone)]
pub struct Wire {
    connection: ConnectionTo<Agent>,
    noise: Noise,
    // The foreground of the connection waits for this to be dropped.
    _open: Arc<oneshot::Sender<()>>,
}

/// The first line of stdout that was no message.
#[derive(Debug, Clone, Default)]
struct Noise(Arc<Mutex<Option<String>>>);

impl Wire {
    /// Connects to an agent's pipes. What it sends arrives in the receiver, in order, before the answers that follow it.
    ///
    /// # Errors
    /// The connection closed immediately.
    pub async fn connect(
        stdin: ChildStdin,
        stdout: ChildStdout,
    ) -> Result<(Self, mpsc::Receiver<Incoming>), Failure> {
        let (tell, incoming) = mpsc::channel(WAITING);
        let (handed, connection) = oneshot::channel();
        let (open, closed) = oneshot::channel::<()>();
        let noise = Noise::default();
        let lines = Lines::new(outgoing(stdin), incoming_lines(stdout, noise.clone(), tell.clone()));
        let receive =
            async move |message: Dispatch<UntypedMessage, UntypedMessage>,
                        _connection: ConnectionTo<Agent>| { receive(message, &tell).await };
        let builder = Client
            .v1()
            .name("ostler")
            .on_receive_dispatch(receive, agent_client_protocol::on_receive_dispatch!());
        tokio::spawn(async move {
            let foreground = async move |connection: ConnectionTo<Agent>| {
                let gone = connection.clone();
                let _ = handed.send(connection);
                tokio::select! {
                    _ = closed => {}
                    () = gone.incoming_closed() => {}
                }
                Ok(())
            };
            // How the connection ended is in the process's status and in the answers that fail.
            let _ = builder.connect_with(lines, foreground).await;
        });
        let connection = connection.await.map_err(|_| Failure::Closed)?;
        Ok((Self { connection, noise, _open: Arc::new(open) }, incoming))
    }

    /// Sends a request; resolves with its answer. Everything the agent sent before the answer is in the receiver then.
    pub fn request(
        &self,
        method: &str,
        params: Value,
    ) -> impl Future<Output = Result<Value, Failure>> + Send + use<> {
        let message = UntypedMessage { method: method.to_owned(), params };
        let sent = self.connection.send_request(message);
        async move {
            sent.block_task().await.map_err(|error| {
                if agent_client_protocol::is_incoming_transport_closed(&error)
                    || agent_client_protocol::is_connection_terminated(&error)
                {
                    return Failure::Closed;
                }
                Failure::Refused { code: error.code.value(), message: error.message, data: error.data }
            })
        }
    }

    /// Sends a notification. An agent that no longer listens does not mind.
    pub fn notify(&self, method: &str, params: Value) {
        let _ = self.connection.send_notification(UntypedMessage { method: method.to_owned(), params });
    }

    /// The first line of stdout that was no message.
    pub fn noise(&self) -> Option<String> {
        self.noise.0.lock().clone()
    }
}

async fn receive(
    message: Dispatch<UntypedMessage, UntypedMessage>,
    tell: &mpsc::Sender<Incoming>,
) -> Result<(), Error> {
    match message {
        Dispatch::Response(result, router) => router.route_with_result(result),
        Dispatch::Notification(message) => {
            let (method, params) = message.into_parts();
            let incoming = match method.as_str() {
                "session/update" => Incoming::Update {
                    session: params.get("sessionId").and_then(Value::as_str).unwrap_or_default().to_owned(),
                    update: Update::read(params.get("update").unwrap_or(&Value::Null)),
                },
                "elicitation/complete" => Incoming::ElicitationComplete(
                    params.get("elicitationId").and_then(Value::as_str).unwrap_or_default().to_owned(),
                ),
                // Extensions of agents, and what the connection itself handles.
                _ => return Ok(()),
            };
            // A conversation that ended does not mind.
            let _ = tell.send(incoming).await;
            Ok(())
        }
        Dispatch::Request(message, responder) => {
            let (method, params) = message.into_parts();
            let request = Request { method, params, responder };
            if let Err(mpsc::error::SendError(Incoming::Request(request))) =
                tell.send(Incoming::Request(request)).await
            {
                request.answer(Err(Failure::internal("the session is closed")));
            }
            Ok(())
        }
    }
}

/// Writes each line to the agent.
fn outgoing(stdin: ChildStdin) -> Pin<Box<dyn futures::Sink<String, Error = io::Error> + Send>> {
    Box::pin(futures::sink::unfold(stdin, |mut stdin, mut line: String| async move {
        line.push('\n');
        stdin.write_all(line.as_bytes()).await?;
        stdin.flush().await?;
        Ok::<_, io::Error>(stdin)
    }))
}

/// Reads the agent's messages, each a line. Lines that are no JSON object are left out; the first is retained.
fn incoming_lines(
    stdout: ChildStdout,
    noise: Noise,
    waiting: mpsc::Sender<Incoming>,
) -> impl Stream<Item = io::Result<String>> + Send {
    let ended = AtomicBool::new(false);
    futures::stream::unfold((BufReader::new(stdout), ended), move |(mut stdout, ended)| {
        let (noise, waiting) = (noise.clone(), waiting.clone());
        async move {
            if ended.load(Ordering::Relaxed) {
                return None;
            }
            let mut wasted = 0;
            loop {
                let line = match next_line(&mut stdout).await {
                    Ok(Some(line)) => line,
                    Ok(None) => return None,
                    Err(why) => {
                        ended.store(true, Ordering::Relaxed);
                        return Some((Err(why), (stdout, ended)));
                    }
                };
                match shape(&line) {
                    Shape::Call => {
                        // Room for one more, which is given back: the handler takes it. A closed conversation has room.
                        let _ = waiting.reserve().await;
                        return Some((Ok(line), (stdout, ended)));
                    }
                    Shape::Answer => return Some((Ok(line), (stdout, ended))),
                    Shape::Noise => {
                        if !line.trim().is_empty() {
                            let shown = line.trim().chars().take(NOISE_SHOWN).collect();
                            noise.0.lock().get_or_insert(shown);
                        }
                        wasted += 1;
                        if wasted > NOISE {
                            ended.store(true, Ordering::Relaxed);
                            let why = io::Error::other("the agent's output is not ACP");
                            return Some((Err(why), (stdout, ended)));
                        }
                    }
                }
            }
        }
    })
}

enum Shape {
    /// A request or a notification.
    Call,
    /// An answer.
    Answer,
    /// No message.
    Noise,
}

fn shape(line: &str) -> Shape {
    #[derive(serde::Deserialize)]
    struct Members {
        method: Option<serde::de::IgnoredAny>,
        id: Option<serde::de::IgnoredAny>,
    }
    match serde_json::from_str::<Members>(line) {
        Ok(Members { method: Some(_), .. }) => Shape::Call,
        Ok(Members { id: Some(_), .. }) => Shape::Answer,
        _ => Shape::Noise,
    }
}

async fn next_line(stdout: &mut BufReader<ChildStdout>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let limit = u64::try_from(LONGEST + 1).unwrap_or(u64::MAX);
    if stdout.take(limit).read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    if line.len() > LONGEST {
        return Err(io::Error::other(format!("a message of the agent is longer than {LONGEST} bytes")));
    }
    while matches!(line.last(), Some(b'\n' | b'\r')) {
        line.pop();
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

/// What this client offers agents: files and terminals only to those that run on this host.
pub fn client_capabilities(here: bool, subagents: bool) -> Value {
    let mut capabilities = json!({
        "fs": { "readTextFile": here, "writeTextFile": here },
        "terminal": here,
        "session": { "compaction": {}, "notices": {}, "configOptions": { "boolean": {} } },
        "elicitation": { "form": {}, "url": {} },
        // Some agents name no other way to sign in.
        "auth": { "terminal": true },
    });
    if subagents {
        capabilities["subagents"] = json!({});
    }
    capabilities
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES};

    use super::*;

    /// Every method an agent may call, and where it is handled.
    const SERVED: &[(&str, &str)] = &[
        ("session/request_permission", "session/messages.rs"),
        ("session/update", "wire.rs"),
        ("fs/write_text_file", "files.rs"),
        ("fs/read_text_file", "files.rs"),
        ("terminal/create", "terminals.rs"),
        ("terminal/output", "terminals.rs"),
        ("terminal/release", "terminals.rs"),
        ("terminal/wait_for_exit", "terminals.rs"),
        ("terminal/kill", "terminals.rs"),
        ("elicitation/create", "session/messages.rs"),
        ("elicitation/complete", "wire.rs"),
    ];

    /// Every method of an agent, and where it is called.
    const CALLED: &[(&str, &str)] = &[
        ("initialize", "agent.rs"),
        ("authenticate", "opening.rs"),
        ("logout", "users sign out with the agent's own command"),
        ("session/new", "opening.rs"),
        ("session/load", "opening.rs"),
        ("session/resume", "opening.rs"),
        ("session/list", "the host lists its own sessions"),
        ("session/delete", "session/lifecycle.rs"),
        ("session/close", "session/lifecycle.rs"),
        ("session/prompt", "session/turns.rs"),
        ("session/cancel", "session/turns.rs"),
        ("session/set_mode", "settings.rs"),
        ("session/set_config_option", "settings.rs"),
    ];

    fn names(of: impl serde::Serialize) -> Vec<String> {
        let Value::Object(names) = serde_json::to_value(of).unwrap() else { panic!("no names") };
        let mut names: Vec<String> = names.values().map(|name| name.as_str().unwrap().to_owned()).collect();
        names.sort_unstable();
        names
    }

    fn known(table: &[(&str, &str)]) -> Vec<String> {
        let mut names: Vec<String> = table.iter().map(|(name, _)| (*name).to_owned()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn every_method_of_the_schema_has_a_place_or_a_reason() {
        assert_eq!(names(CLIENT_METHOD_NAMES), known(SERVED));
        assert_eq!(names(AGENT_METHOD_NAMES), known(CALLED));
        for table in [SERVED, CALLED] {
            for (name, place) in table.iter().filter(|(_, place)| place.ends_with(".rs")) {
                let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(place);
                let text = std::fs::read_to_string(&file).unwrap();
                assert!(text.contains(&format!("\"{name}\"")), "{name} is not in {place}");
            }
        }
    }
}
