//! One endpoint: whose tools, which token, and what its backend wants of it.

use std::collections::HashSet;
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

/// What a server says of itself.
#[derive(Debug)]
pub(super) struct About {
    pub name: String,
    pub version: String,
}

/// The tools of one session, under a path and a token of their own.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// The last part of its path.
    pub id: String,
    pub tools: SessionTools,
    pub about: Arc<About>,
    key: Secret<String>,
    token: Token,
    openers: Mutex<Openers>,
    /// How often the tools had changed when they were last listed.
    listed: AtomicU64,
    /// The number of the one stream; a change ends the one before.
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
            stream: watch::Sender::new(0),
        }
    }

    /// What a backend is told to show.
    pub fn token(&self) -> &str {
        self.key.reveal()
    }

    /// Whether a token is its own. Compared in constant time.
    pub fn admits(&self, given: &str) -> bool {
        self.token.is(given)
    }

    /// Holds it open for a backend, in the way it wants.
    pub fn open_for(&self, opener: u64, options: ToolsServerOptions) {
        let mut openers = self.openers.lock();
        openers.by.insert(opener);
        openers.options = options;
    }

    /// Lets go of it for a backend; nobody's is closed.
    pub fn close_for(&self, opener: u64) {
        let mut openers = self.openers.lock();
        if openers.by.remove(&opener) && openers.by.is_empty() {
            self.stream.send_modify(|number| *number += 1);
        }
    }

    /// Whether somebody holds it and its session is there.
    pub fn is_open(&self) -> bool {
        !self.openers.lock().by.is_empty() && !self.tools.changes().borrow().gone
    }

    /// Whether its backend asked to be told of changes.
    pub fn notifies(&self) -> bool {
        self.openers.lock().options.tools_changed == Some(ToolsChanged::Notify)
    }

    /// Every tool there is now.
    pub fn list(&self) -> Vec<BoundTool> {
        self.listed.store(self.tools.changes().borrow().moved, Ordering::Release);
        self.tools.list()
    }

    /// How often the tools had changed when they were last listed.
    pub fn listed(&self) -> u64 {
        self.listed.load(Ordering::Acquire)
    }

    /// Begins the one stream, in place of the one before.
    pub fn begin_stream(&self) -> (u64, watch::Receiver<u64>) {
        let mut mine = 0;
        self.stream.send_modify(|number| {
            *number += 1;
            mine = *number;
        });
        (mine, self.stream.subscribe())
    }

    /// Calls a tool; `None` where there is none of that name.
    pub async fn call(&self, name: &str, input: Value) -> Option<ToolOutcome> {
        let tool = self.tools.list().into_iter().find(|tool| tool.definition.name == name)?;
        let run_client = self.openers.lock().options.run_client.clone();
        Some(match (tool.run, run_client) {
            (Some(run), _) => outcome(run.call((input, None)).await, tool.definition.output_schema.is_some()),
            (None, Some(run)) => outcome(run.unbounded((name.to_owned(), input)).await, false).of_client(),
            (None, None) => ToolOutcome::failed(no_client(name)),
        })
    }
}
