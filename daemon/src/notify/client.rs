//! An in-memory client that reads a session's pending requests and answers them as a user. It uses a connection like
//! any other client's, so the same grants are checked.

use std::sync::Arc;
use std::time::Duration;

use ostler_contract::{Value, json};
use ostler_engine::outbox::Item;
use ostler_engine::{Connection, Front, Principal};
use ostler_protocol::origins::WayIn;
use ostler_protocol::wire::state::{ChatState, SessionState};
use tokio::time::{Instant, timeout_at};

use super::request::Request;

/// The time limit of one step of the host.
const LIMIT: Duration = Duration::from_secs(15);
/// The name of the connection.
const CLIENT: &str = "ostler-notify";

/// Why a client cannot continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// The host rejected the request, with this reason.
    Refused(String),
    /// The host did not answer in time.
    Slow,
}

/// The current state of a session.
#[derive(Debug)]
pub struct Now {
    pub title: String,
    /// Its pending requests.
    pub requests: Vec<Request>,
}

/// The client of one connection.
#[derive(Debug)]
pub struct Client {
    connection: Arc<Connection>,
    /// Items that the host wrote and that are not yet processed.
    items: Vec<Item>,
    next: u64,
    name: String,
}

impl Client {
    /// Connects as a principal.
    ///
    /// # Errors
    /// The host does not answer.
    pub async fn open(front: &Arc<Front>, principal: Principal, way: WayIn) -> Result<Self, Failed> {
        let connection = Connection::open(front, principal, way);
        let name = format!("{CLIENT}-{}", uuid::Uuid::new_v4().simple());
        let mut client = Self { connection, items: Vec::new(), next: 1, name: name.clone() };
        let versions = ostler_protocol::wire::SUPPORTED_PROTOCOL_VERSIONS;
        client
            .request(
                "initialize",
                json!({ "channel": "ahp-root://", "clientId": name, "protocolVersions": versions }),
            )
            .await?;
        Ok(client)
    }

    /// Returns the title and the pending requests of a session.
    ///
    /// # Errors
    /// The session does not exist, or the principal may not see it.
    pub async fn session(&mut self, session: &str) -> Result<Now, Failed> {
        let mut answer = self.request("subscribe", json!({ "channel": session })).await?;
        let state = answer["snapshot"]["state"].take();
        let state: SessionState = serde_json::from_value(state)
            .map_err(|_| Failed::Refused(format!("the state of {session} could not be read")))?;
        Ok(Now { requests: Request::all(&state).collect(), title: state.title })
    }

    /// Returns the state of a chat with at most so many of its last turns.
    ///
    /// # Errors
    /// The chat does not exist, or the principal may not see it.
    pub async fn chat(&mut self, chat: &str, turns: usize) -> Result<ChatState, Failed> {
        let params = json!({ "channel": chat, "view": { "turns": turns } });
        let mut answer = self.request("subscribe", params).await?;
        serde_json::from_value(answer["snapshot"]["state"].take())
            .map_err(|_| Failed::Refused(format!("the state of {chat} could not be read")))
    }

    /// Sends an action to a chat and waits until the host has accepted it.
    ///
    /// # Errors
    /// The reason why the host rejected it.
    pub async fn dispatch(&mut self, chat: &str, action: &Value) -> Result<(), Failed> {
        // Only subscribers of a chat receive the echo of an action.
        self.request("subscribe", json!({ "channel": chat, "view": { "turns": 1 } })).await?;
        let params = json!({ "channel": chat, "clientSeq": 1, "action": action });
        let frame = json!({ "jsonrpc": "2.0", "method": "dispatchAction", "params": params });
        self.connection.receive_frame(&frame.to_string()).await;
        let end = Instant::now() + LIMIT;
        let name = self.name.clone();
        let own = |frame: &Value| {
            let params = &frame["params"];
            let own = frame["method"] == "action"
                && params["origin"]["clientId"] == *name
                && params["origin"]["clientSeq"] == 1;
            own.then(|| params["rejectionReason"].as_str().map(str::to_owned))
        };
        match self.wait(end, own).await? {
            None => Ok(()),
            Some(why) => Err(Failed::Refused(why)),
        }
    }

    async fn request(&mut self, method: &str, params: Value) -> Result<Value, Failed> {
        let id = self.next;
        self.next += 1;
        let frame = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        let end = Instant::now() + LIMIT;
        let sent = self.connection.receive_frame(&frame);
        timeout_at(end, sent).await.map_err(|_| Failed::Slow)?;
        let answer = |frame: &Value| {
            (frame["id"] == id).then(|| match frame.get("error") {
                Some(error) => {
                    let why = error["message"].as_str().unwrap_or("the host refuses");
                    Err(Failed::Refused(why.to_owned()))
                }
                None => Ok(frame["result"].clone()),
            })
        };
        self.wait(end, answer).await?
    }

    /// Waits for a matching frame and drops the frames before it.
    async fn wait<T>(&mut self, end: Instant, wanted: impl Fn(&Value) -> Option<T>) -> Result<T, Failed> {
        loop {
            let frames = self.items.iter().flat_map(Item::frames);
            let mut values = frames.filter_map(|frame| serde_json::from_slice::<Value>(frame).ok());
            let found = values.find_map(|frame| wanted(&frame));
            self.items.clear();
            if let Some(found) = found {
                return Ok(found);
            }
            let drained = timeout_at(end, self.connection.outbox.drain(&mut self.items)).await;
            if drained.map_err(|_| Failed::Slow)?.is_some() {
                return Err(Failed::Slow);
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.close();
    }
}
