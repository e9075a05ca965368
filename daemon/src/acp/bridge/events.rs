//! Converts actions of the daemon to updates and requests for the editor.

use ahp::reducers::{apply_action_to_chat, apply_action_to_root, apply_action_to_session};
use ahp::{ClientEvent, SubscriptionEvent};
use ostler_contract::{JsonObject, Value, json};
use ostler_protocol::uri;
use ostler_protocol::wire::actions::{ActionEnvelope, StateAction};

use super::{Bridge, Open, Sent, TaskEvent};
use crate::acp::editor_connection::{EditorError, Failure, take_back};
use crate::acp::{content, editor_requests, options};

impl Bridge {
    pub(super) async fn handle_task_event(&mut self, event: TaskEvent) {
        match event {
            TaskEvent::Created { request, outcome: Err(why), .. } => {
                request.answer(Err(Failure::internal(why.to_string())));
            }
            TaskEvent::Created { request, session, outcome: Ok(()) } => {
                self.open(request, &session, false).await
            }
            TaskEvent::Withdrawn { session, prompt } => {
                self.cancel(&session, |waiting| waiting.number == prompt).await;
            }
            TaskEvent::Answered { session, id, number, answer } => {
                let Some(open) = self.open.get_mut(&session) else { return };
                // A request that was answered elsewhere in the meantime no longer exists.
                if open.asked.get(&id).is_none_or(|(latest, _)| *latest != number) {
                    return;
                }
                open.asked.remove(&id);
                let waiting = serde_json::to_value(&open.session.input_needed).unwrap_or_default();
                let request =
                    waiting.as_array().into_iter().flatten().find(|request| request["id"] == id.as_str());
                let shared = !open.session.active_clients.is_empty();
                let action =
                    request.and_then(|request| editor_requests::action(request, answer.as_ref(), shared));
                let chat = open.chat_uri.clone();
                if let Some(action) = action {
                    let _ = self.dispatch(&chat, action, Sent::Other).await;
                }
            }
        }
    }

    /// Passes a session's request for input to the editor, if the editor supports it.
    pub(super) fn ask(&mut self, session: &str, request: &Value) {
        let Some(open) = self.open.get_mut(session) else { return };
        let Some(id) = request["id"].as_str().map(str::to_owned) else { return };
        if open.asked.contains_key(&id) || request["chat"].as_str().is_some_and(|chat| chat != open.chat_uri)
        {
            return;
        }
        let Some(asked) = editor_requests::ask(session, request, self.editor.abilities) else { return };
        let (answer, cancellation) = self.wire.request(asked.method, asked.params);
        self.asked += 1;
        let number = self.asked;
        open.asked.insert(id.clone(), (number, cancellation));
        let (sender, session) = (self.task_event_sender.clone(), session.to_owned());
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

    pub(super) async fn event(&mut self, event: ClientEvent) {
        let ClientEvent { channel, event: SubscriptionEvent::Action(envelope) } = event else { return };
        let own = envelope.origin.as_ref().filter(|origin| origin.client_id == self.daemon.id());
        let waits = own.and_then(|origin| self.sent.remove(&origin.client_seq));
        if let Some(why) = &envelope.rejection_reason {
            return match waits {
                Some(Sent::Prompt { session, id }) => self.prompt_rejected(&session, &id, why).await,
                Some(Sent::Setting { request, .. }) => request.answer(Err(Failure::bad_params(why.as_str()))),
                Some(Sent::Other) | None => {}
            };
        }
        if channel == uri::ROOT {
            if let Some(root) = &mut self.root {
                apply_action_to_root(root, &envelope.action);
            }
        } else if self.open.contains_key(&channel) {
            self.session_action(&channel, &envelope);
        } else if let Some(session) = self.chats.get(&channel).cloned() {
            self.chat_action(&session, &envelope).await;
        }
        if let Some(Sent::Setting { session, request }) = waits {
            self.answer_setting(&session, request);
        }
    }

    pub(super) fn session_action(&mut self, session: &str, envelope: &ActionEnvelope) {
        let Some(open) = self.open.get_mut(session) else { return };
        if envelope.server_seq <= open.session_from {
            return;
        }
        let before = options::commands(&open.session);
        let shared = !open.session.active_clients.is_empty();
        apply_action_to_session(&mut open.session, &envelope.action);
        // The other clients, which could have answered in place of the editor, have left.
        let alone = shared && open.session.active_clients.is_empty();
        match &envelope.action {
            StateAction::SessionTitleChanged(changed) => {
                let update = json!({ "sessionUpdate": "session_info_update", "title": changed.title });
                self.update(session, &update);
            }
            StateAction::SessionConfigChanged(_) => {
                let Some(open) = self.open.get(session) else { return };
                let options = self.config_options(open);
                if let Some(modes) = options::modes(&options) {
                    let mode = &modes["currentModeId"];
                    self.update(
                        session,
                        &json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode }),
                    );
                }
                self.update(
                    session,
                    &json!({ "sessionUpdate": "config_option_update", "configOptions": options }),
                );
            }
            StateAction::SessionInputNeededSet(set) => {
                let request = serde_json::to_value(&set.request).unwrap_or_default();
                self.ask(session, &request);
            }
            StateAction::SessionInputNeededRemoved(removed) => {
                if let Some((_, cancellation)) = open.asked.remove(&removed.id) {
                    take_back(&cancellation);
                }
            }
            _ => {
                let commands = options::commands(&open.session);
                if commands != before {
                    let update = json!({ "sessionUpdate": "available_commands_update", "availableCommands": commands });
                    self.update(session, &update);
                }
            }
        }
        if alone {
            self.ask_waiting(session);
        }
    }

    /// Passes open requests for input to the editor that it does not have yet.
    pub(super) fn ask_waiting(&mut self, session: &str) {
        let Some(open) = self.open.get(session) else { return };
        let waiting = serde_json::to_value(&open.session.input_needed).unwrap_or_default();
        for request in waiting.as_array().into_iter().flatten() {
            self.ask(session, request);
        }
    }

    pub(super) async fn chat_action(&mut self, session: &str, envelope: &ActionEnvelope) {
        let notices = self.editor.notices;
        let Some(open) = self.open.get_mut(session) else { return };
        if envelope.server_seq <= open.chat_from {
            return;
        }
        let action = &envelope.action;
        apply_action_to_chat(&mut open.chat, action);
        let call = |open: &Open, id: &str, update: &str| {
            content::find_call(&open.chat, id).map(|call| content::tool_call(&call, update))
        };
        let update = match action {
            StateAction::ChatTurnStarted(started) => {
                let queued = started.queued_message_id.as_deref();
                if !self.started(session, &started.turn_id, queued).await {
                    content::user(&started.message).iter().for_each(|update| self.update(session, update));
                }
                return;
            }
            StateAction::ChatPendingMessageRemoved(removed) => {
                return self.answer_prompt(session, &removed.id, "cancelled");
            }
            StateAction::ChatTurnsLoaded(_) => {
                if let Some(request) = open.loading.take() {
                    self.load(session, request).await;
                }
                return;
            }
            StateAction::ChatResponsePart(part) => content::part(&part.part, notices),
            StateAction::ChatDelta(delta) => Some(content::chunk("agent_message_chunk", &delta.content)),
            StateAction::ChatReasoning(delta) => Some(content::chunk("agent_thought_chunk", &delta.content)),
            StateAction::ChatToolCallStart(start) => call(open, &start.tool_call_id, "tool_call"),
            StateAction::ChatToolCallReady(ready) => call(open, &ready.tool_call_id, "tool_call_update"),
            StateAction::ChatToolCallConfirmed(confirmed) => {
                call(open, &confirmed.tool_call_id, "tool_call_update")
            }
            StateAction::ChatToolCallContentChanged(changed) => {
                call(open, &changed.tool_call_id, "tool_call_update")
            }
            StateAction::ChatToolCallComplete(complete) => {
                call(open, &complete.tool_call_id, "tool_call_update")
            }
            StateAction::ChatUsage(usage) => {
                usage_update(&serde_json::to_value(&usage.usage).unwrap_or_default())
            }
            StateAction::ChatTurnComplete(ended) => {
                let reason = stop_reason(ended.meta.as_ref());
                return self.ended(session, &ended.turn_id, Ok(reason));
            }
            StateAction::ChatTurnCancelled(ended) => {
                return self.ended(session, &ended.turn_id, Ok("cancelled"));
            }
            StateAction::ChatError(failed) if failed.part.error.error_type == "refusal" => {
                return self.ended(session, &failed.turn_id, Ok("refusal"));
            }
            StateAction::ChatError(failed) => {
                return self.ended(session, &failed.turn_id, Err(&failed.part.error.message));
            }
            _ => None,
        };
        if let Some(update) = update {
            self.update(session, &update);
        }
    }

    /// Answers the prompt that started an ended turn.
    pub(super) fn ended(&mut self, session: &str, turn: &str, outcome: Result<&str, &str>) {
        let Some(open) = self.open.get_mut(session) else { return };
        match (open.prompts.remove(turn), outcome) {
            (Some(prompt), Ok(reason)) => prompt.request.answer(Ok(json!({ "stopReason": reason }))),
            (Some(prompt), Err(why)) => prompt.request.answer(Err(Failure::internal(why))),
            // For another client's turn the editor has no notification.
            (None, Err(why)) => self.update(session, &content::chunk("agent_message_chunk", why)),
            (None, Ok(_)) => {}
        }
    }
}

/// Returns why a completed turn stopped, if its backend reports it.
fn stop_reason(meta: Option<&JsonObject>) -> &'static str {
    match meta.and_then(|meta| meta.get("ostler.stopReason")).and_then(Value::as_str) {
        Some("max_tokens") => "max_tokens",
        Some("max_turn_requests") => "max_turn_requests",
        _ => "end_turn",
    }
}

/// Returns the usage of the context, if the backend reports it.
fn usage_update(usage: &Value) -> Option<Value> {
    let meta = &usage["_meta"];
    let (used, size) = (meta["ostler.contextTokens"].as_u64()?, meta["ostler.contextSize"].as_u64()?);
    let mut update = json!({ "sessionUpdate": "usage_update", "used": used, "size": size });
    if meta["ostler.sessionCost"].is_object() {
        update["cost"] = meta["ostler.sessionCost"].clone();
    }
    Some(update)
}
