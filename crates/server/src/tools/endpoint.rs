//! One endpoint: its session's tools, its token, and the options of its backend.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ostler_contract::points::{BoundTool, ToolsChanged, ToolsServerOptions};
use ostler_contract::tools_endpoint::no_client;
use ostler_contract::{Secret, Value};
use ostler_engine::sessions::SessionTools;
use parking_lot::Mutex;
use tokio::sync::watch;
use uuid::Uuid;

use super::message::{ToolOutcome, outcome};
use crate::guard::Token;

/// How many agents an endpoint remembers the latest list of. An agent has a name for each of its starts.
const AGENTS: usize = 64;
/// The longest name of an agent, in bytes.
const AGENT_NAME: usize = 64;

/// The description of the server.
#[derive(Debug)]
pub(super) struct About {
    pub name: String,
    pub version: String,
}

/// The tools of one session, under a separate path and token.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// The last part of its path.
    pub id: String,
    pub tools: SessionTools,
    pub about: Arc<About>,
    key: Secret<String>,
    token: Token,
    openers: Mutex<Openers>,
    /// The change count of the tools at the latest listing.
    listed: AtomicU64,
    /// The tools in the latest list of each agent, the earliest list first.
    lists: Mutex<VecDeque<(String, HashSet<u64>)>>,
    /// The number of the current stream; a change ends the previous one.
    stream: watch::Sender<u64>,
}

/// The openers of an endpoint that have not closed it, and the options of the latest.
#[derive(Debug, Default)]
struct Openers {
    by: HashSet<u64>,
    options: ToolsServerOptions,
}

impl Endpoint {
    pub fn new(tools: SessionTools, about: Arc<About>) -> Self {
        let key = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let listed = AtomicU64::new(tools.changes().borrow().moved);
        Self {
            id: Uuid::new_v4().simple().to_string(),
            token: Token::new(key.clone()),
            key: Secret::new(key),
            tools,
            about,
            openers: Mutex::default(),
            listed,
            lists: Mutex::default(),
            stream: watch::Sender::new(0),
        }
    }

    /// Returns the token for the backend.
    pub fn token(&self) -> &str {
        self.key.reveal()
    }

    /// Returns whether a token is its token. Compared in constant time.
    pub fn admits(&self, given: &str) -> bool {
        self.token.is(given)
    }

    /// Opens it for a backend, with the backend's options.
    pub fn open_for(&self, opener: u64, options: ToolsServerOptions) {
        let mut openers = self.openers.lock();
        openers.by.insert(opener);
        openers.options = options;
    }

    /// Closes it for a backend. It ends when the last one closes it.
    pub fn close_for(&self, opener: u64) {
        let mut openers = self.openers.lock();
        if openers.by.remove(&opener) && openers.by.is_empty() {
            self.stream.send_modify(|number| *number += 1);
        }
    }

    /// Returns whether a backend has it open and its session exists.
    pub fn is_open(&self) -> bool {
        !self.openers.lock().by.is_empty() && !self.tools.changes().borrow().gone
    }

    /// Returns whether its backend requested notifications of changes.
    pub fn notifies(&self) -> bool {
        self.openers.lock().options.tools_changed == Some(ToolsChanged::Notify)
    }

    /// Returns all current tools, for the agent of this name.
    pub fn list(&self, agent: Option<&str>) -> Vec<BoundTool> {
        self.listed.store(self.tools.changes().borrow().moved, Ordering::Release);
        let tools = self.tools.list();
        if let Some(agent) = agent.filter(|agent| agent.len() <= AGENT_NAME) {
            let list = (agent.to_owned(), tools.iter().map(mark).collect());
            let mut lists = self.lists.lock();
            lists.retain(|(of, _)| of != agent);
            if lists.len() == AGENTS {
                lists.pop_front();
            }
            lists.push_back(list);
        }
        tools
    }

    /// Returns whether the agent's latest list lacks a tool as it is now.
    pub fn is_outdated(&self, agent: &str) -> bool {
        let lists = self.lists.lock();
        let list = lists.iter().find(|(of, _)| of == agent);
        list.is_some_and(|(_, list)| self.tools.list().iter().any(|tool| !list.contains(&mark(tool))))
    }

    /// The change count of the tools at the latest listing.
    pub fn listed(&self) -> u64 {
        self.listed.load(Ordering::Acquire)
    }

    /// Begins the stream and ends the previous one.
    pub fn begin_stream(&self) -> (u64, watch::Receiver<u64>) {
        let mut mine = 0;
        self.stream.send_modify(|number| {
            *number += 1;
            mine = *number;
        });
        (mine, self.stream.subscribe())
    }

    /// Calls a tool; `None` if it does not exist.
    pub async fn call(&self, name: &str, input: Value) -> Option<ToolOutcome> {
        let tool = self.tools.list().into_iter().find(|tool| tool.definition.name == name)?;
        if let Err(why) = self.tools.may_call() {
            return Some(ToolOutcome::failed(why));
        }
        let run_client = self.openers.lock().options.run_client.clone();
        Some(match (tool.run, run_client) {
            (Some(run), _) => outcome(run.call((input, None)).await, tool.definition.output_schema.is_some()),
            (None, Some(run)) => outcome(run.unbounded((name.to_owned(), input)).await, false).of_client(),
            (None, None) => ToolOutcome::failed(no_client(name)),
        })
    }
}

/// Returns a hash of what an agent is told about a tool.
fn mark(tool: &BoundTool) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(&*tool.definition).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}
