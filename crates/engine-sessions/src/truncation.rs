//! Truncation: turns of a chat are removed, and the chat's backend continues from the remaining ones.

use std::collections::HashSet;

use ostler_contract::events::TurnStatus;
use ostler_engine_core::fanout::Origin;
use ostler_engine_core::refusals::READ_ONLY;
use ostler_engine_core::tasks;
use ostler_protocol::wire::actions::{ChatTruncatedAction, StateAction};
use ostler_protocol::wire::state::{ChatOrigin, ResponsePart};

use super::actor::{Actor, boxed};
use super::chat::Chat;
use super::client_actions::{Refused, refuse};
use super::tools::call_id;

impl Actor {
    /// Removes the turns after a given one, or all of them. The chat's backend continues from the remaining turns.
    pub(super) async fn truncate(
        &mut self,
        at: usize,
        truncated: ChatTruncatedAction,
        origin: Option<Origin>,
    ) -> Refused {
        if self.chats[at].is_worker() {
            return refuse(READ_ONLY);
        }
        let turns = &self.chats[at].state.turns;
        let left = match &truncated.turn_id {
            None => 0,
            Some(turn) => match turns.iter().position(|held| held.id == *turn) {
                Some(place) => place + 1,
                None => return refuse(format!("{turn} is not a turn of this chat")),
            },
        };
        let (all, running) = (turns.len(), self.chats[at].running().map(str::to_owned));
        let truncated = StateAction::ChatTruncated(truncated);
        if left == all && running.is_none() {
            self.apply_chat(at, truncated, origin);
            return Ok(());
        }
        self.flush_gathered(at);
        if let Some(turn) = running.clone() {
            self.cancel_backend(at, turn);
            self.drop_running(at).await;
        }
        let lead = Some(self.chats[at].number);
        for worker in 0..self.chats.len() {
            if self.chats[worker].lead == lead {
                self.cancel_running(worker).await;
            }
        }
        let workers = self.workers_of(at, left);
        let before = self.chats[at].before(true);
        self.chats[at].reduce(&truncated);
        self.chats[at].forget_names();
        match left {
            0 => self.start_over(at),
            _ => self.rewind(at),
        }
        self.chats[at].size.shrink();
        // The chat's record is stored first: after a crash in between, the backend is rewound again to turns that still
        // exist.
        let writes =
            futures::future::join3(self.keep_chats(), self.keep_session(), self.drop_turns(at, left));
        self.stored_in(at, before, writes).await;
        if self.storing.has_failed {
            return Ok(());
        }
        self.republish(at, &truncated, origin);
        let number = self.chats[at].number;
        boxed(self, |actor| actor.remove_workers(workers)).await;
        let Some(at) = self.chat_numbered(number) else { return Ok(()) };
        if running.is_some() {
            self.fall_quiet(at);
        }
        Ok(())
    }

    /// Returns the numbers of the workers that the turns of a chat from index `left` on opened, and of the workers of those.
    fn workers_of(&self, at: usize, left: usize) -> Vec<u64> {
        let chat = &self.chats[at];
        let ended = chat.state.turns[left..].iter().flat_map(|turn| &turn.response_parts);
        let calls: HashSet<&str> = ended
            .filter_map(|part| match part {
                ResponsePart::ToolCall(part) => call_id(&part.tool_call),
                _ => None,
            })
            .collect();
        let opened_in = |worker: &Chat| match &worker.state.origin {
            Some(ChatOrigin::Tool { chat, tool_call_id }) if worker.is_worker() => {
                Some((chat.clone(), tool_call_id.clone()))
            }
            _ => None,
        };
        let (mut gone, mut uris) = (Vec::new(), HashSet::new());
        // A worker of a worker is behind it.
        for worker in &self.chats {
            if let Some((opener, call)) = opened_in(worker)
                && (opener == chat.uri && calls.contains(&*call) || uris.contains(&opener))
            {
                gone.push(worker.number);
                uris.insert(worker.uri.clone());
            }
        }
        gone
    }

    /// Removes the chats of workers whose turns are gone.
    async fn remove_workers(&mut self, numbers: Vec<u64>) {
        if numbers.is_empty() {
            return;
        }
        for at in 0..self.chats.len() {
            if numbers.contains(&self.chats[at].number) {
                self.withdraw_questions(at);
            }
        }
        let (gone, left): (Vec<Chat>, Vec<Chat>) =
            std::mem::take(&mut self.chats).into_iter().partition(|chat| numbers.contains(&chat.number));
        self.chats = left;
        self.stored_session(self.keep_chats()).await;
        for chat in gone {
            self.forget_chat(chat).await;
        }
    }

    /// Ends the running turn for everyone except the chat's subscribers, whose own reducers remove it with the
    /// truncation.
    async fn drop_running(&mut self, at: usize) {
        let Some(cancelled) = self.cancelled(at) else { return };
        let turn = cancelled.turn_id.clone();
        let modified = self.chats[at].state.modified_at.clone();
        self.chats[at].reduce(&StateAction::ChatTurnCancelled(cancelled));
        self.chats[at].state.modified_at = modified;
        self.charge_turn(at).await;
        self.close_turn(at, turn, TurnStatus::Cancelled).await;
        let lead = Some(self.chats[at].number);
        for at in 0..self.chats.len() {
            if self.chats[at].lead == lead {
                self.cancel_running(at).await;
            }
        }
    }

    /// Closes the chat's backend; the next one continues from the remaining turns.
    fn rewind(&mut self, at: usize) {
        self.chats[at].rewind = true;
        // A backend that has no such point begins another conversation.
        self.chats[at].told = false;
        self.renumber(at);
        self.restart_backend(at);
    }

    /// Ends the chat's conversation in its backend; the next turn starts a new one.
    fn start_over(&mut self, at: usize) {
        self.chats[at].rewind = false;
        self.chats[at].told = false;
        self.chats[at].ended = None;
        self.end_background_work(at);
        self.renumber(at);
        let (backend, id) = (self.chats[at].backend.take(), self.chats[at].backend_id.take());
        if Some(&self.chats[at].uri) == self.state.default_chat.as_ref() {
            self.revise(|record| record.backend_id = None);
        }
        let (sessions, entry, chat) = (self.sessions.clone(), self.entry.clone(), self.chats[at].uri.clone());
        self.chats[at].ending = Some(tasks::spawn(async move {
            if let Some(backend) = backend {
                backend.close(true).await;
            }
            if let Some(id) = id {
                sessions.delete_copy(&entry, &chat, id).await;
            }
        }));
    }

    /// Gives a chat a new number, so that later messages of its previous backend match no chat.
    fn renumber(&mut self, at: usize) {
        let (old, new) = (self.chats[at].number, self.next_chat);
        self.next_chat += 1;
        self.chats[at].number = new;
        for worker in self.chats.iter_mut().filter(|chat| chat.lead == Some(old)) {
            worker.lead = Some(new);
        }
    }
}
