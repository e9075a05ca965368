//! The connection to an agent: JSON-RPC over its stdin and stdout. The only user of crate `agent-client-protocol`;
//! messages are JSON, parsed by [`crate::protocol`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::{ConnectionTo, Dispatch, Responder};
use agent_client_protocol::{Agent, Client, Error, ErrorCode, Lines, RequestCancellation, UntypedMessage};
use futures::{Stream, StreamExt};
use ostler_contract::{Budget, Charge, Value, json};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};

use crate::answers::{Answers, OpenRequest, UNANSWERED};
use crate::limits;
use crate::masks::Masks;
use crate::parsed::{Name, Parsed};
use crate::protocol::Update;
use crate::reading::{Unread, incoming_lines, values_of_an_agent};
use crate::weight::text_size;
pub use crate::weight::weight;

/// The supported version of the protocol.
pub const PROTOCOL_VERSION: u64 = 1;
/// The number of messages that wait for the conversation, at which the agent is not read.
const WAITING: usize = 32;
/// Their maximum memory, in bytes; a larger one waits alone.
const WAITING_BYTES: usize = 2 << 20;
/// How long the output of an agent that no longer reads can be open before the connection ends.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// A message of an agent that is not an answer.
#[derive(Debug)]
pub enum Incoming {
    /// A `session/update`.
    Update {
        /// The agent's id of the session.
        session: String,
        /// What happened.
        update: Update,
        /// The length of its text, in bytes.
        size: usize,
        /// The memory it takes.
        charge: Charge,
    },
    /// A request, to be answered.
    Request(Request),
    /// A question with a URL was answered at that URL; contains the agent's name for it.
    ElicitationComplete(String),
    /// Something of its messages exceeds a limit and is left out; contains the line for the log.
    LeftOut(String),
}

/// A request of an agent. One that is dropped is answered with an error.
#[derive(Debug)]
pub struct Request {
    pub method: String,
    /// Its parameters.
    pub params: Value,
    responder: Responder<Value>,
    charge: Option<Charge>,
    answers: Answers,
    _open: OpenRequest,
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

    /// The parameters are invalid.
    pub fn bad_params(why: impl Into<String>) -> Self {
        Self::Refused { code: ErrorCode::INVALID_PARAMS.value(), message: why.into(), data: None }
    }

    /// The request could not be carried out.
    pub fn internal(why: impl Into<String>) -> Self {
        Self::Refused { code: ErrorCode::INTERNAL_ERROR.value(), message: why.into(), data: None }
    }

    /// Returns whether the agent requires a sign-in.
    pub fn is_auth_required(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == ErrorCode::AUTH_REQUIRED.value())
    }
}

impl Request {
    /// Answers it. Ignores a closed connection.
    pub fn answer(self, outcome: Result<Value, Failure>) {
        self.charged(outcome, None);
    }

    /// Answers it once the agent has read enough earlier answers.
    pub async fn answer_in_turn(self, outcome: Result<Value, Failure>) {
        let size = outcome.as_ref().map(weight).unwrap_or_default();
        let charge = self.answers.take(size).await;
        self.charged(outcome, charge);
    }

    fn charged(self, outcome: Result<Value, Failure>, charge: Option<Charge>) {
        self.answers.sent(charge);
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

    /// Answers with the reason `why` no user can be asked, or that the method is not available.
    pub fn decline(self, why: &str) {
        let outcome = match self.method.as_str() {
            "session/request_permission" => Ok(json!({ "outcome": { "outcome": "cancelled" } })),
            "elicitation/create" => Ok(json!({ "action": "cancel" })),
            _ => Err(Failure::internal(why)),
        };
        self.answer(outcome);
    }

    /// Returns whether a user answers it.
    pub fn is_for_a_user(&self) -> bool {
        matches!(self.method.as_str(), "session/request_permission" | "elicitation/create")
    }

    /// Frees its parsed parameters, because it can wait long for a user.
    pub fn release(&mut self) {
        self.params = Value::Null;
        self.charge = None;
    }

    /// Returns a future that resolves when the agent cancels the request with `$/cancel_request`.
    pub fn withdrawal(&self) -> Withdrawal {
        Withdrawal(self.responder.cancellation())
    }
}

/// Resolves when an agent cancels a request.
pub struct Withdrawal(RequestCancellation);

impl Withdrawal {
    /// Waits until the request is cancelled.
    pub async fn wait(self) {
        self.0.cancelled().await;
    }
}

/// A connection to a running agent. Dropping the last of its clones closes the agent's stdin.
#[derive(Debug, Clone)]
pub struct Wire {
    connection: ConnectionTo<Agent>,
    noise: Noise,
    broken: Broken,
    answers: Answers,
    masks: Masks,
    // The foreground of the connection waits for this to be dropped.
    _open: Arc<oneshot::Sender<()>>,
}

/// The first line of stdout that was not a message.
#[derive(Debug, Clone, Default)]
pub struct Noise(Arc<Mutex<Option<String>>>);

impl Noise {
    /// Returns the line, if there was one.
    pub fn first(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock()
    }
}

/// Why the agent's output is no longer read, if the agent did not close it.
#[derive(Debug, Clone, Default)]
struct Broken(Arc<Mutex<Option<String>>>);

impl Wire {
    /// Connects to an agent's pipes. Errors and notices are masked. Its messages arrive in the receiver, in order,
    /// before the answers that follow them.
    ///
    /// # Errors
    /// The connection closed immediately.
    pub async fn connect(
        stdin: ChildStdin,
        stdout: ChildStdout,
        offer: Offer,
        masks: Masks,
    ) -> Result<(Self, mpsc::Receiver<Incoming>), Failure> {
        let (tell, incoming) = mpsc::channel(WAITING);
        let (handed, connection) = oneshot::channel();
        let (open, closed) = oneshot::channel::<()>();
        let (noise, answers, gate) = (Noise::default(), Answers::new(), Gate::default());
        let broken = Broken::default();
        let (reading, read) = watch::channel(());
        let parsed = Parsed::default();
        let unread = Unread {
            noise: noise.clone(),
            masks: masks.clone(),
            gate: gate.clone(),
            answers: answers.clone(),
            tell: tell.clone(),
            values: values_of_an_agent(),
            parsed: parsed.clone(),
        };
        let incoming_lines = incoming_lines((stdout, reading), unread);
        let lines = Lines::new(outgoing(stdin, answers.clone(), read), noted(incoming_lines, broken.clone()));
        let (waiting, answered) = (Budget::new(WAITING_BYTES), answers.clone());
        let handler = Handler { tell, waiting, gate, parsed, answers: answered, offer, masks: masks.clone() };
        let receive =
            async move |message: Dispatch<UntypedMessage, UntypedMessage>,
                        _connection: ConnectionTo<Agent>| { handler.receive(message).await };
        let builder = Client
            .v1()
            .name("ostler")
            .on_receive_dispatch(receive, agent_client_protocol::on_receive_dispatch!());
        let ended = answers.clone();
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
            // How the connection ended is in the process's status, in `broken` and in the answers that fail.
            let _ = builder.connect_with(lines, foreground).await;
            // The answers can no longer be read.
            ended.close();
        });
        let connection = connection.await.map_err(|_| Failure::Closed)?;
        Ok((Self { connection, noise, broken, answers, masks, _open: Arc::new(open) }, incoming))
    }

    /// Sends a request; resolves with its answer. Everything the agent sent before the answer is in the receiver then.
    pub fn request(
        &self,
        method: &str,
        params: Value,
    ) -> impl Future<Output = Result<Value, Failure>> + Send + use<> {
        let message = UntypedMessage { method: method.to_owned(), params };
        self.answers.sent(None);
        let masks = self.masks.clone();
        let sent = self.connection.send_request(message);
        async move {
            sent.block_task().await.map_err(|error| {
                if agent_client_protocol::is_incoming_transport_closed(&error)
                    || agent_client_protocol::is_connection_terminated(&error)
                {
                    return Failure::Closed;
                }
                Failure::Refused {
                    code: error.code.value(),
                    message: masks.hide(&error.message),
                    data: error.data.map(|data| masks.hide_value(data)),
                }
            })
        }
    }

    /// Sends a notification. Ignores a closed connection.
    pub fn notify(&self, method: &str, params: Value) {
        self.answers.sent(None);
        let _ = self.connection.send_notification(UntypedMessage { method: method.to_owned(), params });
    }

    /// The first line of stdout that was not a message.
    pub fn noise(&self) -> Option<String> {
        self.noise.first().clone()
    }

    /// Why the agent's output is no longer read, if the agent did not close it.
    pub fn broken(&self) -> Option<String> {
        self.broken.0.lock().clone()
    }
}

/// Locked while a message waits for room in the conversation, so that nothing more is read.
pub type Gate = Arc<tokio::sync::Mutex<()>>;

/// Receives the agent's requests and notifications.
struct Handler {
    tell: mpsc::Sender<Incoming>,
    /// The budget of messages that wait for the conversation.
    waiting: Budget,
    gate: Gate,
    parsed: Parsed,
    answers: Answers,
    offer: Offer,
    masks: Masks,
}

impl Handler {
    async fn receive(&self, message: Dispatch<UntypedMessage, UntypedMessage>) -> Result<(), Error> {
        let name = match &message {
            Dispatch::Notification(message) => Name::Notification(message.method.clone()),
            Dispatch::Request(_, responder) => Name::of_id(responder.id()),
            Dispatch::Response(_, router) => Name::of_id(router.id()),
        };
        let received = self.take(message).await;
        self.parsed.taken(&name);
        received
    }

    async fn take(&self, message: Dispatch<UntypedMessage, UntypedMessage>) -> Result<(), Error> {
        match message {
            Dispatch::Response(result, router) => router.route_with_result(result),
            Dispatch::Notification(message) => {
                let (method, params) = message.into_parts();
                let _waiting = self.gate.lock().await;
                let incoming = match method.as_str() {
                    "session/update" => {
                        let Some(charge) = self.waiting.take(weight(&params)).await else { return Ok(()) };
                        if let Some(line) = params.get("update").and_then(limits::left_out) {
                            let _ = self.tell.send(Incoming::LeftOut(line)).await;
                        }
                        Incoming::Update {
                            session: params
                                .get("sessionId")
                                .and_then(Value::as_str)
                                .unwrap_or_default()
                                .to_owned(),
                            update: Update::read(params.get("update").unwrap_or(&Value::Null))
                                .masked(&self.masks),
                            size: text_size(&params),
                            charge,
                        }
                    }
                    "elicitation/complete" => Incoming::ElicitationComplete(
                        params.get("elicitationId").and_then(Value::as_str).unwrap_or_default().to_owned(),
                    ),
                    // Extensions of agents, and what the connection itself handles.
                    _ => return Ok(()),
                };
                // The conversation may have ended.
                let _ = self.tell.send(incoming).await;
                Ok(())
            }
            Dispatch::Request(message, responder) => {
                let (method, params) = message.into_parts();
                let busy = self.answers.stay_too_many().await;
                let (answers, _open) = (self.answers.clone(), OpenRequest::new(&self.answers));
                let mut request = Request { method, params, responder, charge: None, answers, _open };
                if !self.offer.serves(&request.method) {
                    let failure = Failure::unknown_method(&request.method);
                    request.answer(Err(failure));
                    return Ok(());
                }
                if busy {
                    let why = format!("{UNANSWERED} requests wait for answers that are read");
                    request.answer(Err(Failure::internal(why)));
                    return Ok(());
                }
                let _waiting = self.gate.lock().await;
                request.charge = self.waiting.take(weight(&request.params)).await;
                if let Err(mpsc::error::SendError(Incoming::Request(request))) =
                    self.tell.send(Incoming::Request(request)).await
                {
                    request.answer(Err(Failure::internal("the session is closed")));
                }
                Ok(())
            }
        }
    }
}

/// Writes each line to the agent.
///
/// `read` closes when all of its output is read. A failed write ends the connection, and usually means that the agent has
/// ended: what it wrote before is read first.
fn outgoing(
    stdin: ChildStdin,
    answers: Answers,
    read: watch::Receiver<()>,
) -> Pin<Box<dyn futures::Sink<String, Error = io::Error> + Send>> {
    Box::pin(futures::sink::unfold((stdin, read), move |(mut stdin, mut read), mut line: String| {
        let answers = answers.clone();
        async move {
            line.push('\n');
            let written = async {
                stdin.write_all(line.as_bytes()).await?;
                stdin.flush().await
            };
            if let Err(why) = written.await {
                let _ = tokio::time::timeout(LAST_OUTPUT, read.changed()).await;
                return Err(why);
            }
            answers.written();
            Ok::<_, io::Error>((stdin, read))
        }
    }))
}

/// Records the error that ends the messages.
fn noted(
    lines: impl Stream<Item = io::Result<String>> + Send,
    broken: Broken,
) -> impl Stream<Item = io::Result<String>> + Send {
    lines.inspect(move |line| {
        if let Err(why) = line {
            broken.0.lock().get_or_insert(why.to_string());
        }
    })
}

/// The capabilities of this client, which `initialize` announces. Requests for others are not served.
#[derive(Debug, Clone)]
pub struct Offer(Value);

/// The requests of agents, each with the capability that must be announced for it; empty for what every client serves.
const REQUESTS: &[(&str, &str)] = &[
    ("session/request_permission", ""),
    ("elicitation/create", "/elicitation"),
    ("fs/read_text_file", "/fs/readTextFile"),
    ("fs/write_text_file", "/fs/writeTextFile"),
    ("terminal/create", "/terminal"),
    ("terminal/output", "/terminal"),
    ("terminal/wait_for_exit", "/terminal"),
    ("terminal/kill", "/terminal"),
    ("terminal/release", "/terminal"),
];

impl Offer {
    /// Files and terminals only for agents that run on this host.
    pub fn new(here: bool, subagents: bool) -> Self {
        let mut capabilities = json!({
            "fs": { "readTextFile": here, "writeTextFile": here },
            "terminal": here,
            "session": { "compaction": {}, "notices": {}, "configOptions": { "boolean": {} } },
            "elicitation": { "form": {}, "url": {} },
            // Some agents have no other sign-in method.
            "auth": { "terminal": true },
        });
        if subagents {
            capabilities["subagents"] = json!({});
        }
        Self(capabilities)
    }

    /// Returns it in the form for `initialize`.
    pub fn capabilities(&self) -> Value {
        self.0.clone()
    }

    /// Whether a request is served.
    pub fn serves(&self, method: &str) -> bool {
        let announced = |capability: &str| match self.0.pointer(capability) {
            Some(Value::Bool(on)) => *on,
            Some(value) => value.is_object(),
            None => false,
        };
        REQUESTS.iter().any(|(name, capability)| *name == method && announced(capability))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use agent_client_protocol::v1::schema::CLIENT_METHOD_NAMES;

    use ostler_contract::budget::VALUE;

    use super::*;

    fn names(of: impl serde::Serialize) -> BTreeSet<String> {
        let Value::Object(names) = serde_json::to_value(of).unwrap() else { panic!("no names") };
        names.values().map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_request_of_the_schema_needs_what_is_announced_for_it() {
        let notifications = ["session/update", "elicitation/complete"];
        let known = REQUESTS.iter().map(|(name, _)| *name).chain(notifications);
        assert_eq!(names(CLIENT_METHOD_NAMES), known.map(str::to_owned).collect());
        for (here, withheld) in [(true, 0), (false, 7)] {
            let offer = Offer::new(here, false);
            let refused = REQUESTS.iter().filter(|(name, _)| !offer.serves(name));
            assert_eq!(refused.count(), withheld);
        }
        let offer = Offer::new(true, true);
        for other in ["session/update", "session/prompt", "terminal/", "terminal/other", ""] {
            assert!(!offer.serves(other), "{other}");
        }
        let mut without = offer;
        without.0["elicitation"] = Value::Null;
        assert!(!without.serves("elicitation/create"));
    }

    #[test]
    fn a_message_weighs_its_text_and_its_values() {
        use crate::weight::EACH;

        let message = json!({ "a": ["text", null], "b": 1 });
        assert_eq!((text_size(&message), weight(&message)), (6 + 5 * EACH, 6 + 5 * VALUE));
    }
}
