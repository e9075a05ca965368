//! Continues after a lost connection to the daemon: follows the open sessions again, and sends the editor what it
//! missed.

use std::sync::Arc;

use ostler_contract::json;
use ostler_protocol::uri;
use ostler_protocol::wire::state::{ChatState, ErrorInfo, ResponsePart, SnapshotState, Turn, TurnState};

use super::prompting::prompt_of;
use super::{Bridge, Open, Waits};
use crate::acp::content;
use crate::acp::editor_connection::{Failure, take_back};
use crate::client::Connection;
use crate::exit::Exit;

impl Bridge {
    /// Continues on another connection.
    pub(super) async fn returned(&mut self, daemon: Connection) -> Result<(), Exit> {
        self.events = daemon.client().events();
        self.daemon = Arc::new(daemon);
        self.sent.clear();
        self.fail_settings("the daemon restarted; change the setting again");
        if let SnapshotState::Root(root) = self.subscribe(uri::ROOT).await?.0 {
            self.root = Some(root);
        }
        self.chats.clear();
        for (session, before) in std::mem::take(&mut self.open) {
            self.follow_again(session, before).await;
        }
        Ok(())
    }

    pub(super) async fn follow_again(&mut self, session: String, before: Open) {
        before.asked.values().for_each(|(_, asked)| take_back(asked));
        let mut now = match self.follow(&session).await {
            Ok(now) => now,
            Err(why) => {
                let gone = || Failure::not_found(format!("{session}: {why}"));
                before.loading.into_iter().for_each(|request| request.answer(Err(gone())));
                before.prompts.into_values().for_each(|prompt| prompt.request.answer(Err(gone())));
                return;
            }
        };
        now.prompts = before.prompts;
        now.model = before.model;
        self.chats.insert(now.chat_uri.clone(), session.clone());
        let turns: Vec<Turn> = missed(&before.chat, &now.chat).cloned().collect();
        let running = now.chat.active_turn.clone();
        let queued: Vec<String> =
            now.chat.queued_messages.iter().flatten().map(|queued| queued.id.clone()).collect();
        let begun = turns.iter().map(|turn| (&turn.message, &turn.id));
        for (message, turn) in begun.chain(running.iter().map(|turn| (&turn.message, &turn.id))) {
            // A queued message was started meanwhile.
            if let Some(prompt) = prompt_of(message).and_then(|prompt| now.prompts.remove(prompt)) {
                now.prompts.insert(turn.clone(), prompt);
            }
        }
        self.open.insert(session.clone(), now);
        self.announce_files(&session);
        for turn in turns {
            let seen = seen_of(&before.chat, &turn.id);
            self.more(&session, seen, &turn.response_parts);
            let error = error_of(&turn);
            let outcome = match turn.state {
                TurnState::Complete => Ok("end_turn"),
                TurnState::Cancelled => Ok("cancelled"),
                _ => Err(&error),
            };
            self.ended(&session, &turn.id, outcome);
        }
        if let Some(turn) = &running {
            if seen_of(&before.chat, &turn.id).is_none() && !self.is_prompt(&session, &turn.id) {
                content::user(&turn.message).iter().for_each(|update| self.update(&session, update));
            }
            self.more(&session, seen_of(&before.chat, &turn.id), &turn.response_parts);
        }
        self.settle_prompts(&session, running.map(|turn| turn.id).as_deref(), &queued);
        // This may have been lost with the connection.
        self.cancel(&session, |prompt| prompt.cancelled).await;
        if let Some(request) = before.loading {
            self.load(&session, request).await;
        }
        self.ask_waiting(&session);
    }

    fn is_prompt(&self, session: &str, turn: &str) -> bool {
        self.open.get(session).is_some_and(|open| open.prompts.contains_key(turn))
    }

    /// Answers the prompts that the daemon has neither in a turn nor in its queue.
    fn settle_prompts(&mut self, session: &str, running: Option<&str>, queued: &[String]) {
        let Some(open) = self.open.get_mut(session) else { return };
        let mut lost = Vec::new();
        for (id, prompt) in &mut open.prompts {
            if running == Some(id.as_str()) {
                prompt.waits = Waits::ForTurn;
            } else if !queued.contains(id) {
                lost.push(id.clone());
            }
        }
        for id in lost {
            let Some(prompt) = self.open.get_mut(session).and_then(|open| open.prompts.remove(&id)) else {
                continue;
            };
            prompt.request.answer(match prompt.cancelled {
                true => Ok(json!({ "stopReason": "cancelled" })),
                false => Err(Failure::internal("the connection to the daemon was lost before it confirmed the message; check the session, then send it again")),
            });
        }
    }

    /// Sends the part of a turn that the editor has not received.
    fn more(&self, session: &str, seen: Option<&[ResponsePart]>, now: &[ResponsePart]) {
        let seen = seen.unwrap_or_default();
        for (at, part) in now.iter().enumerate() {
            let update = match (seen.get(at), part) {
                (None, part) => content::part(part, self.editor.notices),
                (Some(ResponsePart::Markdown(before)), ResponsePart::Markdown(part)) => {
                    rest(&before.content, &part.content)
                        .map(|text| content::chunk("agent_message_chunk", text))
                }
                (Some(ResponsePart::Reasoning(before)), ResponsePart::Reasoning(part)) => {
                    rest(&before.content, &part.content)
                        .map(|text| content::chunk("agent_thought_chunk", text))
                }
                (Some(before @ ResponsePart::ToolCall(_)), ResponsePart::ToolCall(_)) if before != part => {
                    content::part(part, self.editor.notices).map(|mut update| {
                        update["sessionUpdate"] = "tool_call_update".into();
                        update
                    })
                }
                _ => None,
            };
            if let Some(update) = update {
                self.update(session, &update);
            }
        }
    }
}

/// Returns the rest of a text after a beginning.
fn rest<'a>(before: &str, now: &'a str) -> Option<&'a str> {
    now.strip_prefix(before).filter(|rest| !rest.is_empty())
}

/// The part of a turn that the editor has received.
fn seen_of<'a>(before: &'a ChatState, turn: &str) -> Option<&'a [ResponsePart]> {
    let active = before.active_turn.as_ref().filter(|active| active.id == turn);
    let ended = before.turns.iter().find(|ended| ended.id == turn);
    active
        .map(|active| active.response_parts.as_slice())
        .or_else(|| ended.map(|ended| ended.response_parts.as_slice()))
}

/// Returns the turns that ended since.
fn missed<'a>(before: &'a ChatState, now: &'a ChatState) -> impl Iterator<Item = &'a Turn> {
    let known = before.turns.last().map(|turn| turn.id.as_str());
    let from =
        known.and_then(|known| now.turns.iter().position(|turn| turn.id == known)).map_or(0, |at| at + 1);
    // If a session has none of its earlier turns any more, nothing is known about them.
    now.turns.iter().skip(if known.is_some() && from == 0 { usize::MAX } else { from })
}

fn error_of(turn: &Turn) -> ErrorInfo {
    let error = turn.response_parts.iter().rev().find_map(|part| match part {
        ResponsePart::Error(part) => Some(part.error.clone()),
        _ => None,
    });
    error.unwrap_or_else(|| ErrorInfo {
        error_type: String::new(),
        message: "the turn failed".to_owned(),
        stack: None,
        meta: None,
    })
}
