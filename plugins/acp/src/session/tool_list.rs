//! The list of the session's tools as the running agent knows it. An agent that does not request a changed list is restarted
//! between turns, if it can continue its session.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_contract::points::BoundTool;
use tokio::time::Instant;

use super::Conversation;
use crate::updates::Turn;

/// How long after a change of the tools a message waits for an agent to request the list.
const LISTED_WITHIN: Duration = Duration::from_secs(2);
/// How often the message asks whether it has.
const ASKED_EVERY: Duration = Duration::from_millis(50);
/// How long the message waits after that, because an agent that has the list may still have to tell its model.
const SETTLED_WITHIN: Duration = Duration::from_millis(500);

/// What is known about the list.
#[derive(Debug)]
pub(super) struct ToolList {
    /// The name of the running agent in its requests for the list.
    agent: String,
    /// When the tools changed for the last time.
    changed: Instant,
    /// When the waiting message asks again.
    asks_at: Option<Instant>,
    /// Whether the agent has requested the list for which the message waited.
    is_settling: bool,
    /// Whether the user knows that the agent works with an earlier list.
    is_told: bool,
}

impl ToolList {
    /// Creates it before an agent runs.
    pub fn new() -> Self {
        Self {
            agent: String::new(),
            changed: Instant::now(),
            asks_at: None,
            is_settling: false,
            is_told: false,
        }
    }

    /// Returns the address of the endpoint for an agent that is about to start.
    pub fn address(&mut self, url: &str) -> String {
        static STARTS: AtomicU64 = AtomicU64::new(0);
        self.agent = STARTS.fetch_add(1, Ordering::Relaxed).to_string();
        format!("{url}?agent={}", self.agent)
    }

    /// Returns when the waiting message asks again.
    pub fn asks_at(&self) -> Option<Instant> {
        self.asks_at
    }
}

impl Conversation {
    /// Sets the current tools of the session.
    pub(super) fn take_tools(&mut self, tools: Vec<BoundTool>) {
        self.tools = tools;
        if let Some(turn) = &mut self.turn {
            turn.set_tools(&self.tools);
        }
        (self.tool_list.changed, self.tool_list.is_told) = (Instant::now(), false);
    }

    /// Returns a turn that knows the tools.
    pub(super) fn with_tools(&self, mut turn: Turn) -> Turn {
        turn.set_tools(&self.tools);
        turn
    }

    /// Returns whether the waiting message has to wait because the agent has an earlier list of the tools: it may be about to
    /// request the new one, and otherwise it is started again. One that was started for this message is not.
    pub(super) async fn awaits_tools(&mut self) -> bool {
        let has_waited = self.tool_list.asks_at.take().is_some();
        let is_settled = std::mem::take(&mut self.tool_list.is_settling);
        let outdated = |agent: &String| {
            let server = self.endpoint.as_ref()?;
            server.outdated.call((agent.clone(),)).ok()
        };
        if self.starts > 0 {
            return false;
        }
        if outdated(&self.tool_list.agent) != Some(true) {
            let settles = has_waited && !is_settled;
            if settles {
                self.tool_list.is_settling = true;
                self.tool_list.asks_at = Some(Instant::now() + SETTLED_WITHIN);
            }
            return settles;
        }
        let (now, until) = (Instant::now(), self.tool_list.changed + LISTED_WITHIN);
        if now < until {
            self.tool_list.asks_at = Some(until.min(now + ASKED_EVERY));
            return true;
        }
        if self.live.as_ref().is_some_and(|live| live.running.facts.resume || live.running.facts.load) {
            self.log("the agent has not requested the changed list of tools; it is started again for it");
            self.retire().await;
            self.open().await;
            return true;
        }
        if !std::mem::replace(&mut self.tool_list.is_told, true) {
            let name = &self.shared.agent.name;
            let notice = format!(
                "Warning: the tools of this session have changed, but {name} has not requested them again, and cannot be \
                 restarted because it cannot continue its session. It works with the earlier tools; a new session has the \
                 current ones."
            );
            self.log("the agent works with an earlier list of tools: it has not requested the changed one, and cannot continue \
                      its session after a restart");
            if let Some(turn) = &mut self.turn {
                turn.notification(notice).await;
            }
        }
        false
    }
}
