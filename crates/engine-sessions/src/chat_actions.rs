//! Client actions in a chat: starting, cancelling and truncating turns, and queueing messages.

use ostler_contract::limit;
use ostler_engine_core::clock::millis_between;
use ostler_engine_core::fanout::Origin;
use ostler_engine_core::message::run_of;
use ostler_engine_core::refusals::{
    FOLDERS_IN_USE, NO_TURN_TO_STEER, READ_ONLY, STOPPING, does_not_belong, no_directory_of, no_question,
    not_loaded, one_folder,
};
use ostler_engine_core::tasks;
use ostler_engine_core::titles::named;
use ostler_engine_users::usage::Taken;
use ostler_protocol::wire::actions::{
    ChatBackgroundWorkRemovedAction, ChatPendingMessageRemovedAction, ChatPendingMessageSetAction,
    ChatTurnCancelledAction, ChatTurnStartedAction, StateAction,
};
use ostler_protocol::wire::state::{
    BackgroundWork, Message, MessageKind, PendingMessage, PendingMessageKind,
};
use tokio::sync::oneshot;

use super::Happened;
use super::actor::{Actor, boxed};
use super::backend::Tell;
use super::client_actions::{Refused, refuse, refuse_for_now};
use super::deferred::DeferredPart;
use super::mailbox::{Dispatch, ToSession};
use super::text_length::text_in_message;

impl Actor {
    pub(super) async fn chat_action(
        &mut self,
        at: usize,
        action: StateAction,
        origin: Origin,
        dispatch: &Dispatch,
    ) -> Refused {
        let origin = Some(origin);
        match action {
            StateAction::ChatTurnStarted(started) => self.start_turn(at, started, origin, dispatch).await,
            StateAction::ChatTurnCancelled(mut cancelled) => {
                if self.chats[at].running() != Some(cancelled.turn_id.as_str()) {
                    return refuse("no such turn is running in this chat");
                }
                // The duration uses the same clock as the start time.
                cancelled.duration = self.duration(at);
                let turn = cancelled.turn_id.clone();
                if self.chats[at].is_worker() {
                    self.stop_worker(at);
                } else {
                    self.cancel_backend(at, turn);
                }
                self.end_turn(at, StateAction::ChatTurnCancelled(cancelled), origin).await;
                Ok(())
            }
            StateAction::ChatToolCallConfirmed(confirmed) => self.confirm(at, confirmed, origin),
            StateAction::ChatToolCallComplete(complete) => self.client_tool_done(at, complete, dispatch),
            StateAction::ChatToolCallContentChanged(mut changed) => {
                self.owned_call(at, &changed.tool_call_id, &dispatch.origin.client_id)?;
                self.flush_gathered(at);
                changed.content =
                    self.linked(at, &changed.tool_call_id, Some(changed.content)).unwrap_or_default();
                self.apply_chat(at, StateAction::ChatToolCallContentChanged(changed), origin);
                Ok(())
            }
            StateAction::ChatToolCallResultConfirmed(_) => {
                refuse("results of tool calls are not confirmed on this host")
            }
            StateAction::ChatInputAnswerChanged(changed) => {
                if self.open_question(at, &changed.request_id).is_none() {
                    return refuse(no_question(&changed.request_id));
                }
                self.flush_gathered(at);
                let (request, question) = (changed.request_id.clone(), changed.question_id.clone());
                let answer = changed.answer.clone();
                let room = match &mut self.chats[at].backend {
                    Some(backend) => Some(backend.calls.room_for(
                        &self.sessions.limits.states,
                        dispatch.length,
                        dispatch.charge(),
                    )?),
                    None => None,
                };
                if self.apply_chat(at, StateAction::ChatInputAnswerChanged(changed), origin)
                    && let Some(room) = room
                {
                    self.tell_if_awake(at, Tell::SetAnswer { request, question, answer, room });
                }
                Ok(())
            }
            StateAction::ChatInputCompleted(completed) => self.answer(at, completed, origin),
            StateAction::ChatPendingMessageSet(set) => self.set_pending(at, set, origin, dispatch).await,
            StateAction::ChatPendingMessageRemoved(removed) => {
                let id = removed.id.clone();
                let before = self.chats[at].before(false);
                if removed.kind == PendingMessageKind::Steering {
                    self.chats[at].steering.retain(|(_, held)| held.id != id);
                }
                let queued = self.chats[at].state.queued_messages.iter().flatten();
                let message = queued.filter(|held| held.id == id).map(|held| &held.message).next();
                let run = message.and_then(run_of).map(str::to_owned);
                let run = run.filter(|_| removed.kind == PendingMessageKind::Queued);
                if !self.apply_chat(at, StateAction::ChatPendingMessageRemoved(removed), origin) {
                    return refuse(format!("this chat has no pending message {id}"));
                }
                self.stored_in(at, before, self.keep_chats()).await;
                if let (Some(run), Some(observer)) = (run, self.sessions.observer()) {
                    observer.run_withdrawn(&run);
                }
                Ok(())
            }
            StateAction::ChatQueuedMessagesReordered(reordered) => {
                let before = self.chats[at].before(false);
                if self.apply_chat(at, StateAction::ChatQueuedMessagesReordered(reordered), origin) {
                    self.stored_in(at, before, self.keep_chats()).await;
                }
                Ok(())
            }
            StateAction::ChatDraftChanged(_) if self.chats[at].is_worker() => refuse(READ_ONLY),
            StateAction::ChatDraftChanged(changed) => {
                if self.chats[at].state.draft != changed.draft {
                    if let Some(draft) = &changed.draft {
                        self.may_wait(at, None, draft)?;
                    }
                    self.apply_chat(at, StateAction::ChatDraftChanged(changed), origin);
                    self.deferred.add(DeferredPart::Chats);
                }
                Ok(())
            }
            StateAction::ChatTurnResume(resume) => {
                let turn = resume.turn_id.clone();
                let last = self.chats[at].state.turns.last();
                if last.is_some_and(|last| self.command_line_of(&last.message).is_some()) {
                    return refuse("a command line cannot be resumed; send it again");
                }
                // It goes on in the name of its sender.
                if let Some(refused) = last.and_then(|last| self.refusal_of(&last.message)) {
                    return refuse(format!("{}; send the message again", refused.message));
                }
                let usage = last.and_then(|last| last.usage.clone());
                if let Some(why) = &self.chats[at].ended {
                    return refuse(why.clone());
                }
                self.check_tokens_for(at, dispatch)?;
                let before = self.chats[at].before(true);
                if self.chats[at].is_worker()
                    || !self.apply_chat(at, StateAction::ChatTurnResume(resume), origin)
                {
                    return refuse(
                        "only the latest turn can be resumed, and only if it failed and allows it",
                    );
                }
                self.chats[at].is_given = true;
                let counted = usage.as_ref().map(|usage| (turn.clone(), Taken::read(usage)));
                self.chats[at].counted = counted.map(Box::new);
                self.chats[at].charged = usage.map(Box::new);
                let kept = self.keep_running_turn(at);
                self.stored_in(at, before, kept).await;
                let resumed = self.chats[at].state.active_turn.as_ref();
                let attachments = resumed.and_then(|turn| turn.message.attachments.as_ref());
                self.entry.client_resources.remember(attachments);
                let span = self.chats[at].span.clone();
                self.tell_backend(at, Tell::Resume { turn, span });
                Ok(())
            }
            StateAction::ChatTruncated(truncated) => {
                boxed(self, |actor| actor.truncate(at, truncated, origin)).await
            }
            StateAction::ChatIsReadChanged(_) => {
                if self.chats[at].would_mark(&action) {
                    self.apply_chat(at, action, origin);
                    self.deferred.add(DeferredPart::Chats);
                }
                Ok(())
            }
            StateAction::ChatIsArchivedChanged(_) => {
                if self.chats[at].would_mark(&action) {
                    let before = self.chats[at].before(false);
                    self.apply_chat(at, action, origin);
                    self.stored_in(at, before, self.keep_chats()).await;
                }
                Ok(())
            }
            StateAction::ChatWorkingDirectorySet(_) | StateAction::ChatWorkingDirectoryRemoved(_) => {
                self.change_chat_folders(at, action, origin).await
            }
            StateAction::SessionTitleChanged(changed) => {
                if self.chats[at].is_worker() {
                    return refuse(READ_ONLY);
                }
                let title = named(&changed.title)?;
                self.chats[at].titled = true;
                self.tell_if_awake(at, Tell::SetTitle { title: title.clone() });
                self.set_title(at, title, None).await;
                // The sender waits for the echo on the chat's own channel.
                self.republish(at, &StateAction::SessionTitleChanged(changed), origin);
                Ok(())
            }
            _ => refuse(does_not_belong(dispatch.row.name, "a chat")),
        }
    }

    pub(super) async fn start_turn(
        &mut self,
        at: usize,
        mut started: ChatTurnStartedAction,
        origin: Option<Origin>,
        dispatch: &Dispatch,
    ) -> Refused {
        self.may_start(at, &started)?;
        self.sign(&mut started.message, dispatch.sender.as_deref(), Some(dispatch.way));
        if let Some(refused) = self.refusal_of(&started.message) {
            return refuse(refused.message);
        }
        self.check_tokens_for(at, dispatch)?;
        self.sessions.note_client(&mut started.message, Some(&dispatch.origin.client_id));
        self.begin_turn(at, started, origin, dispatch.sender.clone()).await;
        Ok(())
    }

    /// Checks whether a client's turn may start in the chat's current state.
    pub(super) fn may_start(&self, at: usize, started: &ChatTurnStartedAction) -> Refused {
        self.may_talk(at, &started.message)?;
        let chat = &self.chats[at];
        if chat.running().is_some() {
            return refuse("a turn is running in this chat; send the message as a pending one");
        }
        if started.turn_id.trim().is_empty() {
            return refuse("a turn needs an id");
        }
        if chat.state.turns.iter().any(|turn| turn.id == started.turn_id) {
            return refuse(format!("this chat already had a turn {}", started.turn_id));
        }
        Ok(())
    }

    /// Checks whether a client may send a message to a chat.
    pub(super) fn may_talk(&self, at: usize, message: &Message) -> Refused {
        if !self.chats[at].is_open() {
            return refuse(READ_ONLY);
        }
        if message.origin.kind != MessageKind::User {
            return refuse("a client may only send messages of a person");
        }
        if let Some(why) = &self.chats[at].ended {
            return refuse(why.clone());
        }
        if self.core.is_stopping() {
            return refuse_for_now(STOPPING);
        }
        if let Some(lost) = self.core.lost_storage() {
            return refuse_for_now(lost);
        }
        if self.agent.is_none() {
            return refuse(self.without_backend());
        }
        Ok(())
    }

    /// Returns why the session has no backend.
    pub(super) fn without_backend(&self) -> String {
        let failed = self.state.creation_error.as_ref();
        failed.map_or_else(|| not_loaded(&self.entry.provider), |failed| failed.message.clone())
    }

    pub(super) async fn set_pending(
        &mut self,
        at: usize,
        mut set: ChatPendingMessageSetAction,
        origin: Option<Origin>,
        dispatch: &Dispatch,
    ) -> Refused {
        self.may_talk(at, &set.message)?;
        self.sign(&mut set.message, dispatch.sender.as_deref(), Some(dispatch.way));
        self.sessions.note_client(&mut set.message, Some(&dispatch.origin.client_id));
        self.may_wait(at, Some(&set.id), &set.message)?;
        if set.kind == PendingMessageKind::Steering {
            let is_command = self.command_line_of(&set.message).is_some();
            let running = self.chats[at].running().is_some();
            let allowed = self.may_still_send(&set.message);
            let Some(backend) = self.chats[at].backend.as_mut().filter(|_| running) else {
                return refuse(NO_TURN_TO_STEER);
            };
            // The client may set and remove messages while the backend takes none.
            let bytes = text_in_message(&set.message);
            let room = backend.calls.room_for(&self.sessions.limits.states, bytes, dispatch.charge())?;
            let (taken, wait) = oneshot::channel();
            self.entry.client_resources.remember(set.message.attachments.as_ref());
            // A command line is not for the agent: it waits for the end of the turn, as one that is not taken.
            match is_command {
                true => drop(taken),
                false => backend.tell(Tell::Steer {
                    allowed,
                    id: set.id.clone(),
                    text: set.message.text.clone(),
                    attachments: set.message.attachments.clone(),
                    taken,
                    room,
                }),
            }
            let id = set.id.clone();
            let call = self.next_preparation;
            self.next_preparation += 1;
            let held = PendingMessage { id: id.clone(), message: set.message.clone() };
            self.chats[at].steering.push((call, held));
            self.apply_chat(at, StateAction::ChatPendingMessageSet(set), origin);
            self.flush_out();
            // Backends accept a steering message quickly; a message that is not accepted is queued.
            self.await_steered(at, (id, Some(call)), wait, None);
            return Ok(());
        }
        let id = set.id.clone();
        let before = self.chats[at].before(false);
        self.apply_chat(at, StateAction::ChatPendingMessageSet(set), origin);
        self.happened(at, Happened::Queued);
        self.stored_in(at, before, self.keep_chats()).await;
        if self.storing.has_failed {
            return Ok(());
        }
        if self.chats[at].running().is_none() {
            // The policies have just allowed this message.
            match self.first_queued(at) {
                Some(next) if next.id == id && !self.leaves_queue() => {
                    if self.check_tokens_for(at, dispatch).is_err() {
                        // It waits for the token.
                        return Ok(());
                    }
                    self.begin_next(at, next, None).await;
                }
                _ => drop(self.begin_queued(at).await),
            }
        }
        Ok(())
    }

    /// Waits outside the mailbox until a backend has accepted a steering message or the timeout has passed.
    pub(super) fn await_steered(
        &self,
        at: usize,
        (id, call): (String, Option<u64>),
        wait: oneshot::Receiver<bool>,
        answer: Option<oneshot::Sender<bool>>,
    ) {
        let (chat, mailbox) = (self.chats[at].number, self.mailbox.clone());
        tasks::spawn(async move {
            let taken = matches!(tokio::time::timeout(limit::STEER, wait).await, Ok(Ok(true)));
            let _ = mailbox.send(ToSession::Steered { chat, id, call, taken, answer });
        });
    }

    /// Removes a steering message that no backend has pending any more.
    pub(super) fn no_longer_steering(&mut self, at: usize, id: String) {
        let removed = ChatPendingMessageRemovedAction { kind: PendingMessageKind::Steering, id };
        self.apply_chat(at, StateAction::ChatPendingMessageRemoved(removed), None);
    }

    /// Handles the outcome of a steering message: it is part of the turn, or it is queued for the next one.
    pub(super) async fn steered(&mut self, at: usize, id: &str, call: Option<u64>, taken: bool) {
        let steering = &mut self.chats[at].steering;
        let held = steering.iter().position(|(number, _)| Some(*number) == call);
        // The sender may have removed it.
        let message = held.map(|held| steering.remove(held).1);
        if steering.iter().all(|(_, later)| later.id != id) {
            self.no_longer_steering(at, id.to_owned());
        }
        if let (false, Some(message)) = (taken, message) {
            let queued = ChatPendingMessageSetAction {
                kind: PendingMessageKind::Queued,
                id: message.id,
                message: message.message,
            };
            let before = self.chats[at].before(false);
            self.apply_chat(at, StateAction::ChatPendingMessageSet(queued), None);
            self.stored_in(at, before, self.keep_chats()).await;
            if self.chats[at].running().is_none() {
                self.begin_queued(at).await;
            }
        }
    }

    /// Changes which of the session's folders a chat works in. The backend restarts there and resumes the conversation.
    async fn change_chat_folders(
        &mut self,
        at: usize,
        action: StateAction,
        origin: Option<Origin>,
    ) -> Refused {
        let provider = &self.entry.provider;
        if self.agent.as_ref().is_none_or(|agent| agent.multiple_directories != Some(true)) {
            return refuse(one_folder(provider));
        }
        if self.chats[at].is_worker() {
            return refuse(READ_ONLY);
        }
        if self.chats[at].running().is_some() {
            return refuse(FOLDERS_IN_USE);
        }
        let own = self.chats[at].state.working_directories.as_deref().unwrap_or_default();
        match &action {
            StateAction::ChatWorkingDirectorySet(set)
                if !self
                    .state
                    .working_directories
                    .iter()
                    .flatten()
                    .any(|folder| *folder == set.directory) =>
            {
                return refuse(no_directory_of(&set.directory, &self.entry.uri));
            }
            StateAction::ChatWorkingDirectoryRemoved(removed) if own.first() == Some(&removed.directory) => {
                return refuse("the first folder of a chat cannot be removed");
            }
            StateAction::ChatWorkingDirectoryRemoved(removed) if !own.contains(&removed.directory) => {
                return refuse(format!("{} is not a folder of this chat", removed.directory));
            }
            _ => {}
        }
        let before = self.chats[at].before(false);
        if self.apply_chat(at, action, origin) {
            self.stored_in(at, before, self.keep_chats()).await;
            self.restart_backend(at);
        }
        Ok(())
    }

    /// Ends the backend of a chat. The next turn starts another one, which continues the conversation.
    pub(super) fn restart_backend(&mut self, at: usize) {
        self.chats[at].ended = None;
        if let Some(backend) = self.chats[at].backend.take() {
            self.end_background_work(at);
            self.chats[at].ending = Some(tasks::spawn(backend.close(false)));
        }
    }

    /// Removes the rows of background work, which ends with its backend.
    pub(super) fn end_background_work(&mut self, at: usize) {
        for work in self.chats[at].state.background_work.clone().unwrap_or_default() {
            let id = match work {
                BackgroundWork::Shell(work) => Some(work.id),
                BackgroundWork::Subagent(work) => Some(work.id),
                BackgroundWork::Unknown(work) => work["id"].as_str().map(str::to_owned),
            };
            if let Some(id) = id {
                let removed = ChatBackgroundWorkRemovedAction { id };
                self.apply_chat(at, StateAction::ChatBackgroundWorkRemoved(removed), None);
            }
        }
    }

    /// Returns the action that cancels the chat's running turn.
    pub(super) fn cancelled(&self, at: usize) -> Option<ChatTurnCancelledAction> {
        self.chats[at].state.active_turn.as_ref().map(|active| ChatTurnCancelledAction {
            turn_id: active.id.clone(),
            duration: self.duration(at),
            meta: None,
        })
    }

    /// Returns how long the chat's turn has been running, in milliseconds.
    pub(super) fn duration(&self, at: usize) -> i64 {
        let active = self.chats[at].state.active_turn.as_ref();
        active.map_or(0, |active| millis_between(&active.started_at, self.core.clock.now()))
    }

    /// Ends the chat's running turn as cancelled. The caller notifies the backend.
    pub(super) async fn cancel_running(&mut self, at: usize) {
        self.flush_gathered(at);
        if let Some(cancelled) = self.cancelled(at) {
            self.end_turn(at, StateAction::ChatTurnCancelled(cancelled), None).await;
        }
    }
}
