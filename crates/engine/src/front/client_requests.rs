//! Requests of the host to clients. Each has a time limit, and the number of concurrent requests per connection is
//! limited.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ostler_engine_core::tasks;
use ostler_engine_users::users::clients::Answer;
use ostler_protocol::message::encode;
use ostler_protocol::{Id, RpcError, Value};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::front::connection::Connection;

const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The maximum number of unanswered requests to one connection.
const WAITING_MAX: usize = 64;

/// The unanswered requests to one connection.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<PendingRequests>);

#[derive(Debug, Default)]
struct PendingRequests {
    next: u64,
    answers: HashMap<u64, oneshot::Sender<Answer>>,
    closed: bool,
}

/// An unanswered request; dropping it discards its answer.
struct PendingRequest<'a> {
    id: u64,
    requests: &'a Requests,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.requests.0.lock().answers.remove(&self.id);
    }
}

impl Requests {
    fn open(&self, client: &str) -> Result<(PendingRequest<'_>, oneshot::Receiver<Answer>), RpcError> {
        let (id, wait) = self.begin(client)?;
        Ok((PendingRequest { id, requests: self }, wait))
    }

    fn begin(&self, client: &str) -> Result<(u64, oneshot::Receiver<Answer>), RpcError> {
        let mut waiting = self.0.lock();
        if waiting.closed {
            return Err(disconnected(client));
        }
        if waiting.answers.len() >= WAITING_MAX {
            let why = format!("client {client} has {WAITING_MAX} requests to answer; try again later");
            return Err(RpcError::internal(why));
        }
        let id = waiting.next;
        waiting.next += 1;
        let (answer, wait) = oneshot::channel();
        waiting.answers.insert(id, answer);
        Ok((id, wait))
    }

    /// Handles a client's answer. An answer without a request is ignored.
    pub(crate) fn answer(&self, id: &Id, outcome: Answer) {
        let Id::Number(id) = id else { return };
        let waiting = id.as_u64().and_then(|id| self.0.lock().answers.remove(&id));
        if let Some(waiting) = waiting {
            let _ = waiting.send(outcome);
        }
    }

    /// Ends all requests because the client disconnected.
    pub(crate) fn close(&self) {
        let mut waiting = self.0.lock();
        waiting.closed = true;
        waiting.answers.clear();
    }
}

fn disconnected(client: &str) -> RpcError {
    RpcError::not_found(format!("client {client} disconnected"))
}

impl Connection {
    /// Passes on a request of another host. `head` and `tail` are its frame before and after the id; `then` receives the
    /// client's answer, or why there is none.
    pub(crate) fn pass_on(
        self: &Arc<Self>,
        head: &str,
        tail: &str,
        then: impl FnOnce(Answer) + Send + 'static,
    ) {
        let client = self.client_id().unwrap_or_default();
        let (id, answered) = match self.requests.begin(&client) {
            Ok(begun) => begun,
            Err(refused) => return then(Err(refused)),
        };
        self.outbox.send(format!("{head}{id}{tail}"));
        let connection = self.clone();
        tasks::spawn(async move {
            let _asked = PendingRequest { id, requests: &connection.requests };
            // The other host waits as long.
            match tokio::time::timeout(ANSWER_LIMIT, answered).await {
                Ok(Ok(answer)) => then(answer),
                Ok(Err(_)) => then(Err(disconnected(&client))),
                Err(_) => {}
            }
        });
    }

    /// Sends a request to the client; returns its answer, or its error unchanged.
    ///
    /// # Errors
    /// The client's error; `-32008` once it has disconnected; `-32603` if it does not answer in time.
    pub(crate) async fn ask(&self, method: &str, params: &Value) -> Answer {
        let client = self.client_id().unwrap_or_default();
        let (asked, answered) = self.requests.open(&client)?;
        let frame = encode::request(&Id::from(asked.id), method, params);
        self.outbox.send(frame.map_err(|error| RpcError::internal(error.to_string()))?);
        match tokio::time::timeout(ANSWER_LIMIT, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(disconnected(&client)),
            Err(_) => Err(RpcError::internal(format!(
                "client {client} did not answer {method} within {} seconds",
                ANSWER_LIMIT.as_secs()
            ))),
        }
    }
}
