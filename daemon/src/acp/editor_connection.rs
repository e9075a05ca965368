//! The connection to the editor: JSON-RPC over stdin and stdout. The only user of crate `agent-client-protocol` in this
//! crate; messages are passed on as JSON.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use agent_client_protocol::v1::{ConnectionTo, Dispatch, Responder};
use agent_client_protocol::{
    Agent, Client, Error, ErrorCode, Lines, RequestCancellationHandle, UntypedMessage,
};
use futures::Stream;
use ostler_contract::Value;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot, watch};

/// The supported version of the protocol.
pub const PROTOCOL_VERSION: u64 = 1;
/// The longest message, in bytes. A longer one ends the connection.
const LONGEST: usize = 32 << 20;
/// The queue for an editor that does not read, in bytes, above which the daemon is not read.
const UNREAD: usize = 4 << 20;
/// The number of messages that wait for the bridge, at which the editor is not read.
const WAITING: usize = 64;

/// A message of the editor.
#[derive(Debug)]
pub enum Incoming {
    /// A request, to be answered.
    Request(Request),
    Notification {
        method: String,
        /// Its parameters.
        params: Value,
    },
}

/// A request of the editor.
#[derive(Debug)]
pub struct Request {
    pub method: String,
    /// Its parameters.
    pub params: Value,
    responder: Responder<Value>,
    backlog: Backlog,
}

/// Why the editor did not answer a request.
#[derive(Debug, Clone)]
pub enum EditorError {
    /// It answered with an error.
    Refused(String),
    /// It closed its end.
    Closed,
}

/// Why a request fails.
#[derive(Debug, Clone)]
pub struct Failure {
    code: i32,
    message: String,
}

impl Failure {
    /// The method is not available.
    pub fn unknown_method(method: &str) -> Self {
        Self { code: ErrorCode::METHOD_NOT_FOUND.value(), message: format!("unknown method {method}") }
    }

    /// The parameters are invalid.
    pub fn bad_params(why: impl Into<String>) -> Self {
        Self { code: ErrorCode::INVALID_PARAMS.value(), message: why.into() }
    }

    /// The session does not exist.
    pub fn not_found(why: impl Into<String>) -> Self {
        const RESOURCE_NOT_FOUND: i32 = -32002;
        Self { code: RESOURCE_NOT_FOUND, message: why.into() }
    }

    /// The agent requires a sign-in. Editors offer one for this code alone.
    pub fn auth_required(why: impl Into<String>) -> Self {
        Self { code: ErrorCode::AUTH_REQUIRED.value(), message: why.into() }
    }

    /// The request could not be carried out.
    pub fn internal(why: impl Into<String>) -> Self {
        Self { code: ErrorCode::INTERNAL_ERROR.value(), message: why.into() }
    }
}

impl Request {
    /// Resolves when the editor cancels it with `$/cancel_request`.
    pub fn withdrawal(&self) -> impl Future<Output = ()> + Send + use<> {
        let cancellation = self.responder.cancellation();
        async move { cancellation.cancelled().await }
    }

    /// Answers it. Ignores a closed connection.
    pub fn answer(self, outcome: Result<Value, Failure>) {
        let _ = match outcome {
            Ok(result) => {
                self.backlog.add(&result);
                self.responder.respond(result)
            }
            Err(Failure { code, message }) => {
                self.backlog.add(&Value::Null);
                self.responder.respond_with_error(Error::new(code, message))
            }
        };
    }
}

/// The sizes of the messages that were sent and not written yet, in order.
#[derive(Debug, Clone)]
struct Backlog(Arc<Waiting>);

#[derive(Debug)]
struct Waiting {
    sizes: Mutex<(VecDeque<usize>, usize)>,
    room: watch::Sender<bool>,
}

impl Backlog {
    fn new() -> Self {
        Self(Arc::new(Waiting { sizes: Mutex::default(), room: watch::Sender::new(true) }))
    }

    fn add(&self, message: &Value) {
        let size = message.to_string().len();
        let mut sizes = self.0.sizes.lock();
        sizes.0.push_back(size);
        sizes.1 += size;
        if sizes.1 > UNREAD {
            self.0.room.send_if_modified(|room| std::mem::replace(room, false));
        }
    }

    fn written(&self) {
        let mut sizes = self.0.sizes.lock();
        // The sizes of messages that the connection sends by itself are unknown.
        let size = sizes.0.pop_front().unwrap_or_default();
        sizes.1 -= size;
        if sizes.1 <= UNREAD / 2 {
            self.0.room.send_if_modified(|room| !std::mem::replace(room, true));
        }
    }
}

/// A connection to the editor.
#[derive(Debug, Clone)]
pub struct Wire {
    connection: ConnectionTo<Client>,
    backlog: Backlog,
}

impl Wire {
    /// Connects to an editor's pipes. The receiver receives its messages in order, and ends with the connection.
    pub async fn open(
        input: impl tokio::io::AsyncRead + Unpin + Send + 'static,
        output: impl tokio::io::AsyncWrite + Unpin + Send + 'static,
    ) -> Option<(Self, mpsc::Receiver<Incoming>)> {
        let (tell, incoming) = mpsc::channel(WAITING);
        let (handed, connection) = oneshot::channel();
        let backlog = Backlog::new();
        let (counted, charged) = (backlog.clone(), backlog.clone());
        let lines = Lines::new(outgoing(output, counted), incoming_lines(input));
        let receive = async move |message: Dispatch<UntypedMessage, UntypedMessage>,
                                  _: ConnectionTo<Client>| {
            receive(message, &tell, &charged).await
        };
        let builder = Agent
            .v1()
            .name("ostler")
            .on_receive_dispatch(receive, agent_client_protocol::on_receive_dispatch!());
        tokio::spawn(async move {
            let foreground = async move |connection: ConnectionTo<Client>| {
                let _ = handed.send(connection.clone());
                connection.incoming_closed().await;
                Ok(())
            };
            let _ = builder.connect_with(lines, foreground).await;
        });
        Some((Self { connection: connection.await.ok()?, backlog }, incoming))
    }

    /// Waits until the editor has closed its end.
    pub async fn closed(&self) {
        self.connection.incoming_closed().await;
    }

    /// Returns whether there is room for more, because the editor reads.
    pub fn room(&self) -> watch::Receiver<bool> {
        self.backlog.0.room.subscribe()
    }

    /// Sends a request, which the handle can cancel.
    pub fn request(
        &self,
        method: &str,
        params: Value,
    ) -> (impl Future<Output = Result<Value, EditorError>> + Send + use<>, RequestCancellationHandle) {
        self.backlog.add(&params);
        let sent = self.connection.send_request(UntypedMessage { method: method.to_owned(), params });
        let cancellation = sent.cancellation_handle();
        let answer = async move {
            sent.block_task().await.map_err(|error| {
                let closed = agent_client_protocol::is_incoming_transport_closed(&error)
                    || agent_client_protocol::is_connection_terminated(&error);
                if closed { EditorError::Closed } else { EditorError::Refused(error.message) }
            })
        };
        (answer, cancellation)
    }

    /// Sends a notification. Ignores a closed connection.
    pub fn notify(&self, method: &str, params: Value) {
        self.backlog.add(&params);
        let _ = self.connection.send_notification(UntypedMessage { method: method.to_owned(), params });
    }
}

/// Cancels a sent request.
pub fn take_back(cancellation: &RequestCancellationHandle) {
    let _ = cancellation.cancel();
}

pub type Cancellation = RequestCancellationHandle;

async fn receive(
    message: Dispatch<UntypedMessage, UntypedMessage>,
    tell: &mpsc::Sender<Incoming>,
    backlog: &Backlog,
) -> Result<(), Error> {
    let incoming = match message {
        Dispatch::Response(result, router) => return router.route_with_result(result),
        Dispatch::Notification(message) => {
            let (method, params) = message.into_parts();
            Incoming::Notification { method, params }
        }
        Dispatch::Request(message, responder) => {
            let (method, params) = message.into_parts();
            Incoming::Request(Request { method, params, responder, backlog: backlog.clone() })
        }
    };
    if let Err(mpsc::error::SendError(Incoming::Request(request))) = tell.send(incoming).await {
        request.answer(Err(Failure::internal("ostler acp is ending")));
    }
    Ok(())
}

fn outgoing(
    output: impl tokio::io::AsyncWrite + Unpin + Send + 'static,
    backlog: Backlog,
) -> Pin<Box<dyn futures::Sink<String, Error = io::Error> + Send>> {
    Box::pin(futures::sink::unfold(output, move |mut output, mut line: String| {
        let backlog = backlog.clone();
        async move {
            line.push('\n');
            output.write_all(line.as_bytes()).await?;
            output.flush().await?;
            backlog.written();
            Ok::<_, io::Error>(output)
        }
    }))
}

/// The editor's messages, one per line.
fn incoming_lines(
    input: impl tokio::io::AsyncRead + Unpin + Send + 'static,
) -> impl Stream<Item = io::Result<String>> + Send {
    futures::stream::unfold(Some(BufReader::new(input)), |input| async move {
        let mut input = input?;
        loop {
            let mut line = Vec::new();
            let limit = u64::try_from(LONGEST + 1).unwrap_or(u64::MAX);
            match (&mut input).take(limit).read_until(b'\n', &mut line).await {
                Ok(0) => return None,
                Ok(_) if line.len() > LONGEST => {
                    let why = io::Error::other(format!("a message is longer than {LONGEST} bytes"));
                    return Some((Err(why), None));
                }
                Ok(_) => {}
                Err(why) => return Some((Err(why), None)),
            }
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            if !text.is_empty() {
                return Some((Ok(text), Some(input)));
            }
        }
    })
}
