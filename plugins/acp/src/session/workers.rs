//! Subagents as worker chats: each session that the agent creates for a part of its work is a read-only chat.

use std::time::Duration;

use ostler_contract::events::TurnStatus;
use ostler_contract::json;
use ostler_contract::points::{Worker, WorkerRequest};

use super::Conversation;
use crate::emitter::Emitter;
use crate::options::Unstable;
use crate::protocol::{Subagent, Update};
use crate::updates::Turn;

/// The limit for opening a worker chat.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
/// The maximum number of shown subagents of a conversation.
const SHOWN: usize = 256;

/// A subagent of the conversation.
#[derive(Default)]
pub(super) struct Child {
    title: Option<String>,
    description: Option<String>,
    cancel: bool,
    /// Its chat, as long as it works.
    working: Option<(Worker, Turn)>,
}

impl Conversation {
    fn shows_workers(&self) -> bool {
        self.shared.runtime.uses(Unstable::Subagents)
    }

    /// Handles an update of a subagent.
    pub(super) async fn subagent(&mut self, change: Subagent) {
        if !self.shows_workers() || self.prompted_turn().is_none() {
            return;
        }
        let known = self.children.contains_key(&change.session);
        if !known && self.children.len() >= SHOWN {
            return;
        }
        let child = self.children.entry(change.session.clone()).or_default();
        child.title = change.title.or(child.title.take());
        child.description = change.description.or(child.description.take());
        child.cancel = change.cancel.unwrap_or(child.cancel);
        match change.state.as_deref() {
            Some("idle") => {
                let status = match change.stop_reason.as_deref() {
                    Some("cancelled") => TurnStatus::Cancelled,
                    Some("refusal") => TurnStatus::Error,
                    _ => TurnStatus::Complete,
                };
                self.end_worker(&change.session, status).await;
            }
            // Without a state only its title may have changed.
            None if known => {}
            _ => self.open_worker(&change.session).await,
        }
    }

    /// Handles an update of a subagent's session; returns `false` if it does not belong to the conversation.
    pub(super) async fn worker_update(&mut self, session: &str, update: Update) -> bool {
        if !self.children.contains_key(session) {
            return false;
        }
        if self.prompted_turn().is_none() {
            return true;
        }
        self.stirred(false);
        if let Update::Subagent(change) = update {
            Box::pin(self.subagent(change)).await;
            return true;
        }
        self.open_worker(session).await;
        let terminals = self.terminals.clone();
        let child = self.children.get_mut(session);
        let Some((_, turn)) = child.and_then(|child| child.working.as_mut()) else { return true };
        match update {
            Update::Chunk(chunk) => turn.chunk(chunk).await,
            Update::ToolCall(call) => drop(turn.tool_call(call, &terminals).await),
            Update::Plan(entries) => turn.plan(entries).await,
            Update::Notice(notice) => turn.notice(notice).await,
            _ => {}
        }
        true
    }

    /// Opens the chat of a working subagent, unless it is open.
    async fn open_worker(&mut self, session: &str) {
        let Some(child) = self.children.get_mut(session).filter(|child| child.working.is_none()) else {
            return;
        };
        let Some(open) = &self.start.subagent else { return };
        let request = WorkerRequest {
            title: child.title.clone().unwrap_or_else(|| "Subagent".to_owned()),
            description: child.description.clone(),
            ..WorkerRequest::default()
        };
        let opened = tokio::time::timeout(OPEN_LIMIT, open.call((call_of(session), request))).await;
        match opened {
            Ok(Ok(worker)) => {
                let turn = Turn::new(worker.turn_id.clone(), Emitter::Worker(worker.emit.clone()));
                child.working = Some((worker, turn));
            }
            Ok(Err(why)) => self.log(format_args!("a subagent has no chat: {why}")),
            Err(_) => self.log("a subagent has no chat: the host did not open it in time"),
        }
    }

    async fn end_worker(&mut self, session: &str, status: TurnStatus) {
        let working = self.children.get_mut(session).and_then(|child| child.working.take());
        if let Some((worker, mut turn)) = working {
            turn.end_calls(status == TurnStatus::Complete).await;
            let _ = worker.end.call((status, None));
        }
    }

    /// Ends the work of the subagents with the turn.
    pub(super) async fn end_workers(&mut self, status: TurnStatus) {
        let working: Vec<String> = self.children.keys().cloned().collect();
        for session in working {
            self.end_worker(&session, status).await;
        }
    }

    /// Stops a subagent for a user: only it if it can be cancelled, otherwise the turn.
    pub(super) async fn stop_worker(&mut self, call: &str) {
        let found = self.children.iter().find(|(session, _)| call_of(session) == call);
        let Some((session, child)) = found else { return };
        match (&self.live, child.cancel) {
            (Some(live), true) => live.running.wire.notify("session/cancel", json!({ "sessionId": session })),
            _ => {
                if let Some(turn) = self.turn.as_ref().map(|turn| turn.id.clone()) {
                    self.cancel(&turn).await;
                }
            }
        }
    }
}

/// Returns the host's name of the call of a worker, which is part of a URI.
fn call_of(session: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    session.chars().map(plain).collect()
}
