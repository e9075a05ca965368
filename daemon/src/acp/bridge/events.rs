//! Converts actions of the daemon to updates and requests for the editor.

use ahp::reducers::{apply_action_to_chat, apply_action_to_root, apply_action_to_session};
use ahp::{ClientEvent, SubscriptionEvent};
use ostler_contract::{JsonObject, Value, json};
use ostler_protocol::uri;
use ostler_protocol::wire::actions::{ActionEnvelope, StateAction};
use ostler_protocol::wire::state::ErrorInfo;

use super::{Bridge, Open, Sent, TaskEvent};
use crate::acp::editor_connection::{Failure, take_back};
use crate::acp::{content, options};
use crate::exit::Exit;

impl Bridge {
    pub(super) async fn handle_task_event(&mut self, event: TaskEvent) {
        match event {
            TaskEvent::Created { request, outcome: Err(why), .. } => {
                request.answer(Err(match why {
                    Exit::Usage(why) => Failure::bad_params(why),
                    Exit::Machine(why) => Failure::internal(why),
                }));
            }
            TaskEvent::Created { request, session, outcome: Ok(()) } => {
                self.open(request, &session, false).await
            }
            TaskEvent::Withdrawn { session, prompt } => {
                self.cancel(&session, |waiting| waiting.number == prompt).await;
            }
            TaskEvent::Answered { session, id, number, answer } => {
                self.answered(&session, &id, number, answer).await;
            }
            TaskEvent::Unsupported { session } => self.decide_unsupported(&session).await,
            TaskEvent::SettingExpired { number } => self.setting_expired(number),
        }
    }

    pub(super) async fn event(&mut self, event: ClientEvent) {
        let ClientEvent { channel, event } = event;
        let envelope = match event {
            SubscriptionEvent::Action(envelope) => envelope,
            SubscriptionEvent::SessionRemoved(removed) => return self.removed(&removed.session),
            _ => return,
        };
        let own = envelope.origin.as_ref().filter(|origin| origin.client_id == self.daemon.id());
        let waits = own.and_then(|origin| self.sent.remove(&origin.client_seq));
        if let Some(why) = &envelope.rejection_reason {
            return match waits {
                Some(Sent::Prompt { session, id }) => self.prompt_rejected(&session, &id, why).await,
                Some(Sent::Setting { number }) => {
                    self.fail_setting(number, Failure::bad_params(why.as_str()));
                }
                // It does not fit, and nothing else would end the turn.
                Some(Sent::Answer { session, id }) => self.decide(&session, &id, None).await,
                Some(Sent::Other) | None => {}
            };
        }
        if channel == uri::ROOT {
            if let Some(root) = &mut self.root {
                apply_action_to_root(root, &envelope.action);
            }
        } else if self.open.contains_key(&channel) {
            self.session_action(&channel, &envelope).await;
        } else if let Some(session) = self.chats.get(&channel).cloned() {
            self.chat_action(&session, &envelope).await;
        }
        if let Some(Sent::Setting { number }) = waits {
            self.setting_confirmed(number);
        }
    }

    pub(super) async fn session_action(&mut self, session: &str, envelope: &ActionEnvelope) {
        let Some(open) = self.open.get_mut(session) else { return };
        if envelope.server_seq <= open.session_from {
            return;
        }
        let before = options::commands(&open.session);
        let shared = open.is_shared();
        apply_action_to_session(&mut open.session, &envelope.action);
        // The other clients, which could have answered in place of the editor, have left.
        let alone = shared && !open.is_shared();
        match &envelope.action {
            StateAction::SessionTitleChanged(changed) => {
                let update = json!({ "sessionUpdate": "session_info_update", "title": changed.title });
                self.update(session, &update);
            }
            StateAction::SessionConfigChanged(changed) => self.settings_changed(session, changed).await,
            StateAction::SessionDefaultChatChanged(changed) => {
                if let Some(chat) = &changed.default_chat {
                    self.default_chat_changed(session, chat).await;
                }
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
            _ => self.announce_commands(session, &before),
        }
        if alone {
            self.ask_waiting(session);
        }
    }

    /// Handles an action on a chat. A turn that it removes without an end, as a truncation does, was cancelled.
    pub(super) async fn chat_action(&mut self, session: &str, envelope: &ActionEnvelope) {
        let running = |bridge: &Self| {
            let turn = bridge.open.get(session)?.chat.active_turn.as_ref()?;
            Some(turn.id.clone())
        };
        let before = running(self);
        self.show_chat_action(session, envelope).await;
        if before != running(self)
            && let Some(turn) = before
        {
            self.answer_prompt(session, &turn, "cancelled");
        }
    }

    async fn show_chat_action(&mut self, session: &str, envelope: &ActionEnvelope) {
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
            StateAction::ChatActivityChanged(changed) => changed.activity.as_ref().and_then(|activity| {
                let turn = open.chat.active_turn.as_ref()?;
                content::plan_at(&turn.response_parts, activity)
            }),
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
                return self.ended(session, &failed.turn_id, Err(&failed.part.error));
            }
            _ => None,
        };
        if let Some(update) = update {
            self.update(session, &update);
        }
    }

    /// Answers the prompt that started an ended turn.
    pub(super) fn ended(&mut self, session: &str, turn: &str, outcome: Result<&str, &ErrorInfo>) {
        let Some(open) = self.open.get_mut(session) else { return };
        match (open.prompts.remove(turn), outcome) {
            (Some(prompt), Ok(reason)) => prompt.request.answer(Ok(json!({ "stopReason": reason }))),
            (Some(prompt), Err(why)) => prompt.request.answer(Err(match &*why.error_type {
                ostler_plugin_acp::NOT_SIGNED_IN => Failure::auth_required(&why.message),
                _ => Failure::internal(&why.message),
            })),
            // For another client's turn the editor has no notification.
            (None, Err(why)) => self.update(session, &content::chunk("agent_message_chunk", &why.message)),
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
