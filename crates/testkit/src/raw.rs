//! A client that sends and receives JSON text.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::{Value, json};
use ostler_engine::Connection;
use ostler_engine::outbox::Closed;

/// The time limit of an answer.
const LIMIT: Duration = Duration::from_secs(60);

/// A client that sends JSON text and reads frames in their order.
#[derive(Debug)]
pub struct RawClient {
    /// The connection.
    pub connection: Arc<Connection>,
    ready: VecDeque<Value>,
    next: u64,
}

impl RawClient {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self { connection, ready: VecDeque::new(), next: 1 }
    }

    /// Sends a frame unchanged.
    pub async fn send(&self, frame: &str) {
        self.connection.receive_frame(frame).await;
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()).await;
    }

    /// Dispatches an action with a `clientSeq`.
    pub async fn dispatch(&self, channel: &str, seq: i64, action: Value) {
        let params = json!({ "channel": channel, "clientSeq": seq, "action": action });
        self.notify("dispatchAction", params).await;
    }

    /// Initializes the client with the newest protocol versions.
    pub async fn initialize(&mut self, name: &str) -> Value {
        let params =
            json!({ "channel": "ahp-root://", "clientId": name, "protocolVersions": ["1.0.0", "0.9.0"] });
        self.request("initialize", params).await.expect("let in")
    }

    /// Sends a request and waits for its answer. Frames that arrive before it stay readable.
    ///
    /// # Errors
    /// The error object of the host's answer.
    ///
    /// # Panics
    /// If there is no answer.
    pub async fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let answer = self.try_request(method, params).await;
        answer.unwrap_or_else(|| panic!("{method}: the connection ended"))
    }

    /// Like [`Self::request`]; returns `None` if the connection ends before the answer.
    ///
    /// # Panics
    /// If there is no answer.
    pub async fn try_request(&mut self, method: &str, params: Value) -> Option<Result<Value, Value>> {
        let id = self.next;
        self.next += 1;
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&frame.to_string()).await;
        let mut before = VecDeque::new();
        loop {
            let frame = self.next_frame().await?;
            if frame["id"] == json!(id) {
                before.append(&mut self.ready);
                self.ready = before;
                return Some(match frame.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(frame["result"].clone()),
                });
            }
            before.push_back(frame);
        }
    }

    /// Returns the next frame, or `None` once the connection has ended.
    ///
    /// # Panics
    /// If no frame arrives for a long time.
    pub async fn next_frame(&mut self) -> Option<Value> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            let mut items = Vec::new();
            let drained = tokio::time::timeout(LIMIT, self.connection.outbox.drain(&mut items)).await;
            if drained.expect("a frame in time").is_some() {
                return None;
            }
            for item in items {
                for frame in item.frames() {
                    self.ready.push_back(serde_json::from_slice(frame).expect("a frame is JSON"));
                }
            }
        }
    }

    /// Returns the frames that are available without waiting.
    ///
    /// # Panics
    /// If a frame is not JSON.
    pub async fn ready_frames(&mut self) -> Vec<Value> {
        let mut items = Vec::new();
        // Lets pending writers run first.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let drain = self.connection.outbox.drain(&mut items);
        tokio::select! {
            biased;
            _ = drain => {}
            () = std::future::ready(()) => {}
        }
        let frames = items.iter().flat_map(|item| item.frames().to_vec());
        self.ready
            .extend(frames.map(|frame| serde_json::from_slice::<Value>(&frame).expect("a frame is JSON")));
        self.ready.drain(..).collect()
    }

    /// Returns the params of the next action and skips other frames.
    ///
    /// # Panics
    /// If no action arrives.
    pub async fn next_action(&mut self) -> Value {
        loop {
            let frame = self.next_frame().await.expect("the connection is open");
            if frame["method"] == "action" {
                return frame["params"].clone();
            }
        }
    }

    /// Reads actions until one has this type. Returns all of them, that one last.
    pub async fn actions_until(&mut self, name: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let action = self.next_action().await;
            let done = action["action"]["type"] == name;
            seen.push(action);
            if done {
                return seen;
            }
        }
    }

    /// Waits for the end of the connection and returns the reason.
    ///
    /// # Panics
    /// If it does not end.
    pub async fn ended(&mut self) -> Closed {
        self.ready.clear();
        let mut items = Vec::new();
        loop {
            let drained = tokio::time::timeout(LIMIT, self.connection.outbox.drain(&mut items)).await;
            if let Some(why) = drained.expect("an end in time") {
                return why;
            }
        }
    }
}
