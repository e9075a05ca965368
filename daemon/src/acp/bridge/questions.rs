//! The session's requests for input: passed to the editor, and answered with what it decides.

use ostler_contract::Value;
use ostler_protocol::wire::state::ChatOrigin;

use super::{Bridge, Open, Sent, TaskEvent};
use crate::acp::editor_connection::{EditorError, take_back};
use crate::acp::editor_requests;

impl Open {
    /// Returns the requests for input of the chat that the editor uses, and of the chats of its workers: its turn waits
    /// for them.
    fn waiting(&self) -> Vec<Value> {
        let needed = serde_json::to_value(&self.session.input_needed).unwrap_or_default();
        let all = needed.as_array().cloned().unwrap_or_default();
        all.into_iter().filter(|request| self.is_ours(request)).collect()
    }

    fn is_ours(&self, request: &Value) -> bool {
        let Some(mut chat) = request["chat"].as_str() else { return true };
        // A chain of workers has at most as many chats as the session.
        for _ in 0..=self.session.chats.len() {
            if chat == self.chat_uri {
                return true;
            }
            let summary = self.session.chats.iter().find(|summary| summary.resource == chat);
            match summary.and_then(|summary| summary.origin.as_ref()) {
                Some(ChatOrigin::Tool { chat: spawned_in, .. }) => chat = spawned_in,
                _ => return false,
            }
        }
        false
    }

    /// Returns whether other clients can answer in place of the editor.
    pub(super) fn is_shared(&self) -> bool {
        !self.session.active_clients.is_empty()
    }
}

impl Bridge {
    /// Passes open requests for input to the editor that it does not have yet.
    pub(super) fn ask_waiting(&mut self, session: &str) {
        let Some(open) = self.open.get(session) else { return };
        open.waiting().iter().for_each(|request| self.ask(session, request));
    }

    /// Passes a session's request for input to the editor, if the editor supports it.
    pub(super) fn ask(&mut self, session: &str, request: &Value) {
        let Some(open) = self.open.get_mut(session) else { return };
        let Some(id) = request["id"].as_str().map(str::to_owned) else { return };
        if open.asked.contains_key(&id) || !open.is_ours(request) {
            return;
        }
        let (sender, session) = (self.task_event_sender.clone(), session.to_owned());
        let Some(asked) = editor_requests::ask(&session, request, self.editor.abilities) else {
            let _ = sender.send(TaskEvent::Unsupported { session });
            return;
        };
        let (answer, cancellation) = self.wire.request(asked.method, asked.params);
        self.asked += 1;
        let number = self.asked;
        open.asked.insert(id.clone(), (number, cancellation));
        tokio::spawn(async move {
            let answer = match answer.await {
                Ok(answer) => Some(answer),
                Err(EditorError::Refused(_)) => None,
                // Its sessions continue without it.
                Err(EditorError::Closed) => return,
            };
            let _ = sender.send(TaskEvent::Answered { session, id, number, answer });
        });
    }

    /// Handles the editor's answer.
    pub(super) async fn answered(&mut self, session: &str, id: &str, number: u64, answer: Option<Value>) {
        let Some(open) = self.open.get_mut(session) else { return };
        // A request that was answered elsewhere in the meantime no longer exists.
        if open.asked.get(id).is_none_or(|(latest, _)| *latest != number) {
            return;
        }
        open.asked.remove(id);
        self.decide(session, id, answer.as_ref()).await;
    }

    /// Dispatches the decision about a request that is still open.
    pub(super) async fn decide(&mut self, session: &str, id: &str, answer: Option<&Value>) {
        let Some(open) = self.open.get(session) else { return };
        let Some(request) = open.waiting().into_iter().find(|request| request["id"] == id) else { return };
        let Some(action) = editor_requests::action(&request, answer, open.is_shared()) else { return };
        let chat = request["chat"].as_str().unwrap_or(&open.chat_uri).to_owned();
        let sent = match answer {
            Some(_) => Sent::Answer { session: session.to_owned(), id: id.to_owned() },
            None => Sent::Other,
        };
        let _ = self.dispatch(&chat, action, sent).await;
    }

    /// Answers the requests that prompts of the editor wait for and that the editor does not support, unless another
    /// client can answer them.
    pub(super) async fn decide_unsupported(&mut self, session: &str) {
        let Some(open) = self.open.get(session) else { return };
        if open.prompts.is_empty() || open.is_shared() {
            return;
        }
        let is_unsupported =
            |request: &Value| editor_requests::ask(session, request, self.editor.abilities).is_none();
        let waiting = open.waiting();
        let unsupported = waiting.iter().filter(|request| is_unsupported(request));
        let ids: Vec<String> =
            unsupported.filter_map(|request| request["id"].as_str().map(str::to_owned)).collect();
        for id in ids {
            self.decide(session, &id, None).await;
        }
    }

    /// Withdraws the requests to the editor that the session no longer has.
    pub(super) fn withdraw_answered(&mut self, session: &str) {
        let Some(open) = self.open.get_mut(session) else { return };
        let waiting = open.waiting();
        open.asked.retain(|id, (_, cancellation)| {
            let waits = waiting.iter().any(|request| request["id"] == id.as_str());
            if !waits {
                take_back(cancellation);
            }
            waits
        });
    }
}
