//! The connection to an agent: JSON-RPC over its stdin and stdout. The only user of crate `agent-client-protocol`;
//! what passes is JSON, read by [`crate::protocol`].

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use agent_client_protocol::v1::{ConnectionTo, Dispatch, Responder};
use agent_client_protocol::{Agent, Client, Error, ErrorCode, Lines, RequestCancellation, UntypedMessage};
use futures::{Stream, StreamExt};
use ostler_contract::{Budget, Charge, Value, json};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};

use crate::errors::plain;
use crate::masks::Masks;
use crate::protocol::Update;
use crate::weight::text_size;
pub use crate::weight::weight;

/// The version of the protocol that is spoken.
pub const PROTOCOL_VERSION: u64 = 1;
/// The longest message, in bytes. A longer one ends the connection.
const LONGEST: usize = 16 << 20;
/// How many messages wait for the conversation. While they do nothing more is read, and an agent that sends faster waits.
const WAITING: usize = 32;
/// How much memory they may take, in bytes; a larger one waits alone.
const WAITING_BYTES: usize = 2 << 20;
/// How many requests of an agent may be without an answer that it has read. More are refused.
const UNANSWERED: usize = 256;
/// How much the answers may take that an agent has not read, in bytes. More wait to be made.
const UNREAD: usize = 8 << 20;
/// How many messages an agent may leave unread. More end the connection.
const UNREAD_MESSAGES: usize = 20_000;
/// How many lines in a row may be no message. More end the connection.
const NOISE: usize = 10_000;
/// How long an agent that takes no more messages may have its output open before the connection ends.
const LAST_OUTPUT: Duration = Duration::from_secs(1);
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
        /// How much text it has, in bytes.
        size: usize,
        /// The memory it takes.
        charge: Charge,
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
    charge: Option<Charge>,
    answers: Answers,
    _open: OpenRequest,
}

/// Counts a request until it is answered.
#[derive(Debug)]
struct OpenRequest(Arc<AtomicUsize>);

impl OpenRequest {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What was sent to an agent and is not written yet, in order.
#[derive(Debug, Clone)]
struct Answers(Arc<Unwritten>);

#[derive(Debug)]
struct Unwritten {
    /// Each with what it is charged.
    messages: Mutex<VecDeque<Option<Charge>>>,
    /// What answers are charged to.
    budget: Budget,
    /// How many requests are open.
    open: Arc<AtomicUsize>,
}

impl Answers {
    fn new() -> Self {
        let (messages, open) = (Mutex::default(), Arc::default());
        Self(Arc::new(Unwritten { messages, budget: Budget::new(UNREAD), open }))
    }

    fn sent(&self, charge: Option<Charge>) {
        self.0.messages.lock().push_back(charge);
    }

    fn written(&self) {
        // Of what the connection sends by itself nothing is here.
        self.0.messages.lock().pop_front();
    }

    fn unwritten(&self) -> usize {
        self.0.messages.lock().len()
    }

    /// Whether the agent asks for more than it takes.
    fn are_too_many(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) + self.unwritten() >= UNANSWERED
    }
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
        self.charged(outcome, None);
    }

    /// Answers it once the agent has read so much of earlier answers that there is room for this one.
    pub async fn answer_in_turn(self, outcome: Result<Value, Failure>) {
        let size = outcome.as_ref().map(weight).unwrap_or_default();
        let charge = self.answers.0.budget.take(size).await;
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

    /// Answers that no user is there to be asked, and that nothing else is available: `why`.
    pub fn decline(self, why: &str) {
        let outcome = match self.method.as_str() {
            "session/request_permission" => Ok(json!({ "outcome": { "outcome": "cancelled" } })),
            "elicitation/create" => Ok(json!({ "action": "cancel" })),
            _ => Err(Failure::internal(why)),
        };
        self.answer(outcome);
    }

    /// Whether a user answers it.
    pub fn is_for_a_user(&self) -> bool {
        matches!(self.method.as_str(), "session/request_permission" | "elicitation/create")
    }

    /// Gives its parameters back, which were read: it may wait long for a user.
    pub fn release(&mut self) {
        self.params = Value::Null;
        self.charge = None;
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
    broken: Broken,
    answers: Answers,
    masks: Masks,
    // The foreground of the connection waits for this to be dropped.
    _open: Arc<oneshot::Sender<()>>,
}

/// The first line of stdout that was no message.
#[derive(Debug, Clone, Default)]
struct Noise(Arc<Mutex<Option<String>>>);

/// Why the agent's output is no longer read, where it did not close it itself.
#[derive(Debug, Clone, Default)]
struct Broken(Arc<Mutex<Option<String>>>);

impl Wire {
    /// Connects to an agent's pipes. What it says in errors and notices passes the masks. What it sends arrives in the receiver, in order, before the answers that follow it.
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
        let incoming_lines =
            incoming_lines((stdout, reading), (noise.clone(), masks.clone()), gate.clone(), answers.clone());
        let lines = Lines::new(outgoing(stdin, answers.clone(), read), noted(incoming_lines, broken.clone()));
        let (waiting, answered) = (Budget::new(WAITING_BYTES), answers.clone());
        let handler = Handler { tell, waiting, gate, answers: answered, offer, masks: masks.clone() };
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
            // Nobody reads what waits to be answered.
            ended.0.budget.close();
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

    /// Sends a notification. An agent that no longer listens does not mind.
    pub fn notify(&self, method: &str, params: Value) {
        self.answers.sent(None);
        let _ = self.connection.send_notification(UntypedMessage { method: method.to_owned(), params });
    }

    /// The first line of stdout that was no message.
    pub fn noise(&self) -> Option<String> {
        self.noise.0.lock().clone()
    }

    /// Why the agent's output is no longer read, where it did not close it itself.
    pub fn broken(&self) -> Option<String> {
        self.broken.0.lock().clone()
    }
}

/// Held while a message waits for room in the conversation. Nothing more is read then.
type Gate = Arc<tokio::sync::Mutex<()>>;

/// Takes what the agent sends of its own accord.
struct Handler {
    tell: mpsc::Sender<Incoming>,
    /// What waits for the conversation is charged to it.
    waiting: Budget,
    gate: Gate,
    answers: Answers,
    offer: Offer,
    masks: Masks,
}

impl Handler {
    async fn receive(&self, message: Dispatch<UntypedMessage, UntypedMessage>) -> Result<(), Error> {
        match message {
            Dispatch::Response(result, router) => router.route_with_result(result),
            Dispatch::Notification(message) => {
                let (method, params) = message.into_parts();
                let _waiting = self.gate.lock().await;
                let incoming = match method.as_str() {
                    "session/update" => {
                        let Some(charge) = self.waiting.take(weight(&params)).await else { return Ok(()) };
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
                // A conversation that ended does not mind.
                let _ = self.tell.send(incoming).await;
                Ok(())
            }
            Dispatch::Request(message, responder) => {
                let (method, params) = message.into_parts();
                let busy = self.answers.are_too_many();
                let (answers, _open) = (self.answers.clone(), OpenRequest::new(&self.answers.0.open));
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

/// Notes the error that ends the messages.
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

/// Reads the agent's messages, each a line. Lines that are no JSON object are left out; the first is retained.
///
/// `reading` is dropped at their end.
fn incoming_lines(
    (stdout, reading): (ChildStdout, watch::Sender<()>),
    (noise, masks): (Noise, Masks),
    gate: Gate,
    answers: Answers,
) -> impl Stream<Item = io::Result<String>> + Send {
    let ended = AtomicBool::new(false);
    futures::stream::unfold((BufReader::new(stdout), ended, reading), move |(mut stdout, ended, reading)| {
        let (noise, masks) = (noise.clone(), masks.clone());
        let (gate, answers) = (gate.clone(), answers.clone());
        async move {
            if ended.load(Ordering::Relaxed) {
                return None;
            }
            drop(gate.lock().await);
            if answers.unwritten() > UNREAD_MESSAGES {
                ended.store(true, Ordering::Relaxed);
                return Some((
                    Err(io::Error::other(format!("it left more than {UNREAD_MESSAGES} messages unread"))),
                    (stdout, ended, reading),
                ));
            }
            let mut wasted = 0;
            loop {
                let line = match next_line(&mut stdout).await {
                    Ok(Some(line)) => line,
                    Ok(None) => return None,
                    Err(why) => {
                        ended.store(true, Ordering::Relaxed);
                        return Some((Err(why), (stdout, ended, reading)));
                    }
                };
                if is_message(&line) {
                    return Some((Ok(line), (stdout, ended, reading)));
                }
                if !line.trim().is_empty() {
                    let mut first = noise.0.lock();
                    first.get_or_insert_with(|| {
                        // It may have ended in the middle of a line.
                        masks.hide_in_beginning(&plain(line.trim())).chars().take(NOISE_SHOWN).collect()
                    });
                }
                wasted += 1;
                if wasted > NOISE {
                    ended.store(true, Ordering::Relaxed);
                    let why = io::Error::other(format!("more than {NOISE} lines in a row were no messages"));
                    return Some((Err(why), (stdout, ended, reading)));
                }
            }
        }
    })
}

/// Whether a line is a request, a notification or an answer.
fn is_message(line: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Members {
        method: Option<serde::de::IgnoredAny>,
        id: Option<serde::de::IgnoredAny>,
    }
    let members = serde_json::from_str::<Members>(line);
    members.is_ok_and(|members| members.method.is_some() || members.id.is_some())
}

async fn next_line(stdout: &mut BufReader<ChildStdout>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let limit = u64::try_from(LONGEST + 1).unwrap_or(u64::MAX);
    if stdout.take(limit).read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    if line.len() > LONGEST {
        return Err(io::Error::other(format!("it sent a message of more than {} MiB", LONGEST >> 20)));
    }
    while matches!(line.last(), Some(b'\n' | b'\r')) {
        line.pop();
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

/// What this client offers an agent. It is announced with `initialize`; no request for anything else is served.
#[derive(Debug, Clone)]
pub struct Offer(Value);

/// The requests of agents, each with the capability that has to be announced for it; an empty one for what every client
/// serves.
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
            // Some agents name no other way to sign in.
            "auth": { "terminal": true },
        });
        if subagents {
            capabilities["subagents"] = json!({});
        }
        Self(capabilities)
    }

    /// As `initialize` announces it.
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
        let message = json!({ "a": ["text", null], "b": 1 });
        assert_eq!((text_size(&message), weight(&message)), (6, 6 + 5 * VALUE));
    }
}
