//! Prompts and their cancellation: actions that the bridge dispatches.

use ostler_contract::{Value, json};
use ostler_protocol::names;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::Message;

use tokio::sync::oneshot;

use super::{Bridge, Prompt, Sent, TaskEvent, Waits};
use crate::acp::content;
use crate::acp::editor_connection::{Failure, Request};

/// The key under which a message has the id of its prompt. The turn of a queued message has another id, of which an editor that
/// was not connected hears nothing.
fn prompt_key() -> String {
    names::meta_key("prompt")
}

/// Returns the id of the prompt whose message this is, if it is one of an editor.
pub(super) fn prompt_of(message: &Message) -> Option<&str> {
    message.meta.as_ref()?.get(&prompt_key())?.as_str()
}

impl Bridge {
    pub(super) async fn prompt(&mut self, request: Request, session: &str) {
        let Some(open) = self.open.get_mut(session) else {
            return request.answer(Err(Failure::not_found(format!("{session} is not open; load it first"))));
        };
        let prompt = &request.params["prompt"];
        let mut message = content::message(prompt);
        let is_empty = message["text"].as_str().is_none_or(|text| text.trim().is_empty());
        if !prompt.is_array() || is_empty && message.get("attachments").is_none() {
            return request
                .answer(Err(Failure::bad_params("prompt: a list of at least one content block is needed")));
        }
        if let Some(model) = &open.model {
            message["model"] = json!({ "id": model });
        }
        let id = uuid::Uuid::new_v4().to_string();
        message["_meta"][prompt_key()] = id.as_str().into();
        // During another client's turn, the host queues this one.
        let waits = match open.chat.active_turn {
            Some(_) => Waits::InQueue,
            None => Waits::ForTurn,
        };
        self.prompted += 1;
        let (number, withdrawal, sender) =
            (self.prompted, request.withdrawal(), self.task_event_sender.clone());
        let (_watched, answered) = oneshot::channel::<()>();
        let of = session.to_owned();
        tokio::spawn(async move {
            tokio::select! {
                () = withdrawal => drop(sender.send(TaskEvent::Withdrawn { session: of, prompt: number })),
                _ = answered => {}
            }
        });
        open.prompts
            .insert(id.clone(), Prompt { number, _watched, request, message, waits, cancelled: false });
        self.send_prompt(session, &id).await;
        // What another client's turn waits for, this prompt waits for, too.
        self.decide_unsupported(session).await;
    }

    /// Starts the turn of a prompt, or queues its message.
    async fn send_prompt(&mut self, session: &str, id: &str) {
        let Some(open) = self.open.get(session) else { return };
        let Some(Prompt { message, waits, .. }) = open.prompts.get(id) else { return };
        let action = match waits {
            Waits::ForTurn => json!({ "type": "chat/turnStarted", "turnId": id, "message": message,
                "startedAt": ostler_telemetry::clock().iso() }),
            Waits::InQueue => {
                json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message })
            }
        };
        let chat = open.chat_uri.clone();
        let sent = Sent::Prompt { session: session.to_owned(), id: id.to_owned() };
        if let Err(why) = self.dispatch(&chat, action, sent).await {
            self.fail(session, id, &why);
        }
    }

    /// The host rejected what a prompt dispatched.
    pub(super) async fn prompt_rejected(&mut self, session: &str, id: &str, why: &str) {
        let Some(open) = self.open.get_mut(session) else { return };
        let busy = open.chat.active_turn.is_some();
        let Some(prompt) = open.prompts.get_mut(id) else { return };
        match prompt.waits {
            _ if prompt.cancelled => self.answer_prompt(session, id, "cancelled"),
            // Another client's turn began before this one.
            Waits::ForTurn if busy => {
                prompt.waits = Waits::InQueue;
                self.send_prompt(session, id).await;
            }
            Waits::ForTurn | Waits::InQueue => self.fail(session, id, why),
        }
    }

    /// Stops the turns of these prompts, or removes their queued messages.
    pub(super) async fn cancel(&mut self, session: &str, which: impl Fn(&Prompt) -> bool) {
        let Some(open) = self.open.get_mut(session) else { return };
        let chat = open.chat_uri.clone();
        let prompts = open.prompts.iter_mut().filter(|(_, prompt)| which(prompt));
        let stopped: Vec<(String, Waits)> = prompts
            .map(|(id, prompt)| {
                prompt.cancelled = true;
                (id.clone(), prompt.waits)
            })
            .collect();
        for (id, waits) in stopped {
            let action = match waits {
                Waits::InQueue => json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": id }),
                // The host handles actions in order, so a turn that was just dispatched has begun before.
                Waits::ForTurn => json!({ "type": "chat/turnCancelled", "turnId": id, "duration": 0 }),
            };
            // Answered once the host has removed the message, or has ended the turn that it started before.
            if self.dispatch(&chat, action, Sent::Other).await.is_err() && waits == Waits::InQueue {
                self.answer_prompt(session, &id, "cancelled");
            }
        }
    }

    /// Handles the start of a turn, which can belong to a prompt of the editor.
    pub(super) async fn started(&mut self, session: &str, turn: &str, queued: Option<&str>) -> bool {
        let Some(open) = self.open.get_mut(session) else { return false };
        if let Some(mut prompt) = queued.and_then(|queued| open.prompts.remove(queued)) {
            prompt.waits = Waits::ForTurn;
            let cancelled = prompt.cancelled;
            open.prompts.insert(turn.to_owned(), prompt);
            if cancelled {
                let chat = open.chat_uri.clone();
                let action = json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 });
                let _ = self.dispatch(&chat, action, Sent::Other).await;
            }
        }
        self.open.get(session).is_some_and(|open| open.prompts.contains_key(turn))
    }

    pub(super) fn answer_prompt(&mut self, session: &str, id: &str, reason: &str) {
        let open = self.open.get_mut(session);
        if let Some(prompt) = open.and_then(|open| open.prompts.remove(id)) {
            prompt.request.answer(Ok(json!({ "stopReason": reason })));
        }
    }

    /// Dispatches an action; its echo or rejection is handled when it arrives.
    pub(super) async fn dispatch(&mut self, channel: &str, action: Value, waits: Sent) -> Result<(), String> {
        let action: StateAction = serde_json::from_value(action).map_err(|why| why.to_string())?;
        let sent = self.daemon.client().dispatch(channel.to_owned(), action).await;
        self.sent.insert(sent.map_err(|why| why.to_string())?.client_seq, waits);
        Ok(())
    }

    pub(super) fn fail(&mut self, session: &str, prompt: &str, why: &str) {
        let open = self.open.get_mut(session);
        if let Some(prompt) = open.and_then(|open| open.prompts.remove(prompt)) {
            prompt.request.answer(Err(Failure::internal(why)));
        }
    }
}
