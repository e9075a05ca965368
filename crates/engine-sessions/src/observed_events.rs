//! Notifications of the observer about a session, and automations' steering of a running turn.

use std::hash::{DefaultHasher, Hash, Hasher};

use ostler_protocol::wire::actions::{ChatPendingMessageSetAction, ChatToolCallCompleteAction, StateAction};
use ostler_protocol::wire::state::{PendingMessageKind, ResponsePart, ToolCallState};
use tokio::sync::oneshot;

use super::actor::Actor;
use super::backend::Tell;
use super::mailbox::TurnRequest;
use super::text_length::text_in_message;
use super::{Happened, Happening};

impl Actor {
    /// Whether the observer needs changes inside the session.
    pub(super) fn is_observed(&self) -> bool {
        self.sessions.observer().is_some_and(|observer| observer.watches())
    }

    /// Notifies the observer of an event in a chat.
    pub(super) fn happened(&self, at: usize, what: Happened) {
        // A session that became quiet or was removed may have been created by another one that is observed.
        let Some(observer) = self.sessions.observer().filter(|observer| observer.watches()) else {
            return;
        };
        let state = &self.chats[at].state;
        let parts = match (&state.active_turn, state.turns.last()) {
            (Some(turn), _) => turn.response_parts.as_slice(),
            (None, Some(turn)) => turn.response_parts.as_slice(),
            (None, None) => &[],
        };
        let tool_calls = match what {
            Happened::Stirred => 0,
            _ => parts.iter().filter(|part| matches!(part, ResponsePart::ToolCall(_))).count(),
        };
        observer.happened(Happening {
            session: self.entry.clone(),
            what,
            running: self.chats.iter().any(|chat| chat.running().is_some() && !chat.is_worker()),
            queued: state.queued_messages.as_ref().map_or(0, Vec::len),
            tool_calls,
        });
    }

    /// Returns the notification about a tool call that is about to complete.
    pub(super) fn finished_call(&self, at: usize, complete: &ChatToolCallCompleteAction) -> Option<Happened> {
        let ToolCallState::Running(running) = self.tool_call(at, &complete.tool_call_id)? else {
            return None;
        };
        let mut hasher = DefaultHasher::new();
        serde_json::to_string(&running.tool_input).ok()?.hash(&mut hasher);
        Some(Happened::Tool {
            name: running.tool_name.clone(),
            input: hasher.finish(),
            failed: !complete.result.success,
        })
    }

    /// Steers the running turn. The receiver of `answer` learns whether the backend accepted the message.
    pub(super) fn steer_turn(&mut self, request: TurnRequest, answer: oneshot::Sender<bool>) {
        let Some(at) = self.chat_at(&request.place) else {
            let _ = answer.send(false);
            return;
        };
        let mut message = request.message;
        self.sign(&mut message, request.sender.as_deref(), None);
        let allowed = self.may_still_send(&message);
        let running = self.chats[at].running().is_some();
        let backend = self.chats[at].backend.as_mut().filter(|_| running);
        let bytes = text_in_message(&message);
        let room = backend
            .and_then(|backend| backend.calls.room_for(&self.sessions.limits.states, bytes, None).ok());
        let (Some(backend), Some(room)) = (&self.chats[at].backend, room) else {
            let _ = answer.send(false);
            return;
        };
        let (taken, wait) = oneshot::channel();
        let id = self.core.new_id();
        backend.tell(Tell::Steer {
            id: id.clone(),
            text: message.text.clone(),
            attachments: message.attachments.clone(),
            allowed,
            taken,
            room,
        });
        let kind = PendingMessageKind::Steering;
        let set = ChatPendingMessageSetAction { kind, id: id.clone(), message };
        self.apply_chat(at, StateAction::ChatPendingMessageSet(set), None);
        self.flush_out();
        self.await_steered(at, (id, None), wait, Some(answer));
    }
}
