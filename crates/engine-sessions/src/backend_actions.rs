//! Handles the actions that backends emit.

use futures::future::OptionFuture;
use ostler_contract::Thrown;
use ostler_contract::events::Event;
use ostler_contract::points::{Emit, WorkerRequest};
use ostler_engine_core::refusals::already_exists;
use ostler_engine_users::usage::Taken;
use ostler_protocol::actions::{self, Scope};
use ostler_protocol::wire::actions::{ChatTurnStartedAction, SessionChatAddedAction, StateAction};
use ostler_protocol::wire::state::{
    ChatInteractivity, ChatOrigin, Message, MessageKind, MessageOrigin, SessionInputRequest,
    ToolCallConfirmationState, ToolResultSubagentContent,
};

use super::Happened;
use super::Place;
use super::actor::Actor;
use super::backend::Tell;
use super::chat::{Chat, Streamed};
use super::deferred::DeferredPart;
use super::mailbox::{ToSession, WorkerOpened};
use super::turns::{request_of, worker_uri};

impl Actor {
    pub(super) async fn handle_emit(&mut self, at: usize, channel: Emit, action: StateAction) {
        match channel {
            Emit::Chat => self.emit_chat(at, action).await,
            Emit::Session => self.emit_session(at, action).await,
            Emit::Terminal => self.misplaced(&action, "a terminal"),
        }
    }

    async fn emit_chat(&mut self, at: usize, action: StateAction) {
        self.happened(at, Happened::Stirred);
        self.flush_gathered(at);
        match action {
            StateAction::ChatTurnStarted(started) => {
                // The host has already started the turns that users and automations requested, so a repeated start has
                // no effect. A turn that the backend starts by itself is new.
                if self.chats[at].running().is_none()
                    && !self.chats[at].state.turns.iter().any(|turn| turn.id == started.turn_id)
                {
                    self.own_turn(at, started).await;
                }
            }
            StateAction::ChatTurnComplete(_)
            | StateAction::ChatTurnCancelled(_)
            | StateAction::ChatError(_) => {
                self.end_turn(at, action, None).await;
            }
            StateAction::ChatToolCallReady(mut ready) => {
                let call = ready.tool_call_id.clone();
                self.drop_ambiguous(&mut ready.options, &call);
                if self.apply_chat(at, StateAction::ChatToolCallReady(ready), None) {
                    self.chats[at].unkept = true;
                    self.show_links(at, &call);
                    self.watch_client_tool(at, &call);
                    self.approve_by_setting(at, &call);
                }
            }
            StateAction::ChatToolCallContentChanged(mut changed) => {
                let content = std::mem::take(&mut changed.content);
                changed.content = self.linked(at, &changed.tool_call_id, Some(content)).unwrap_or_default();
                self.apply_chat(at, StateAction::ChatToolCallContentChanged(changed), None);
                self.chats[at].unkept = true;
            }
            StateAction::ChatToolCallComplete(mut complete) => {
                let call = complete.tool_call_id.clone();
                complete.result.content = self.linked(at, &call, complete.result.content.take());
                let finished = self.is_observed().then(|| self.finished_call(at, &complete));
                self.apply_chat(at, StateAction::ChatToolCallComplete(complete), None);
                self.chats[at].unkept = true;
                if let Some(finished) = finished.flatten() {
                    self.happened(at, finished);
                }
                self.withdraw_call(at, &call);
                self.sessions.workspace.session_worked(&self.entry.uri);
            }
            StateAction::ChatUsage(mut told) => {
                if let Some(before) = &self.chats[at].charged {
                    Taken::add_earlier(&mut told.usage, before);
                }
                let usage = told.usage.clone();
                if self.apply_chat(at, StateAction::ChatUsage(told), None) {
                    self.chats[at].unkept = true;
                    self.charge_report(at, &usage).await;
                }
            }
            other => match scope_of(&other) {
                Some(Scope::Chat) => {
                    self.apply_chat(at, other, None);
                    self.chats[at].unkept = true;
                }
                _ => self.misplaced(&other, "a chat"),
            },
        }
    }

    /// Handles streamed text of a chat's turn.
    pub(super) fn emit_streamed(&mut self, at: usize, action: StateAction) {
        self.happened(at, Happened::Stirred);
        self.chats[at].unkept = true;
        let window = self.chats[at].audience.latency(self.core.options.delta_window_ms);
        let mut next = self.chats[at].stream(action, window);
        if let Streamed::Flush(action) = next {
            self.flush_gathered(at);
            next = self.chats[at].stream(action, window);
        }
        if let Streamed::Now(action) = next {
            self.apply_chat(at, action, None);
        }
    }

    async fn emit_session(&mut self, at: usize, action: StateAction) {
        match action {
            StateAction::SessionInputNeededSet(mut set) => {
                self.flush_gathered(at);
                if let SessionInputRequest::ToolConfirmation(asked) = &mut set.request
                    && let ToolCallConfirmationState::PendingConfirmation(call) = &mut asked.tool_call
                {
                    let id = call.tool_call_id.clone();
                    self.drop_ambiguous(&mut call.options, &id);
                }
                if self.is_approved_by_setting(&set.request) {
                    return;
                }
                let (id, chat) = request_of(&set.request)
                    .map(|(id, chat)| (id.to_owned(), chat.to_owned()))
                    .unwrap_or_default();
                let kind = kind_of(&set.request).to_owned();
                if self.apply_session(StateAction::SessionInputNeededSet(set), None) {
                    let session = self.entry.uri.clone();
                    self.sessions.input.asked(&session, &id);
                    self.core.events.raise(Event::InputNeededSet { session, chat, id, kind });
                }
            }
            StateAction::SessionInputNeededRemoved(removed) => self.withdraw(&removed.id),
            StateAction::SessionTitleChanged(changed) => {
                if let Some(title) = ostler_engine_core::titles::tidy_title(&changed.title) {
                    self.set_title(at, title, None).await;
                }
            }
            StateAction::SessionConfigChanged(changed) => {
                let is_undeclared = self.is_undeclared(&changed);
                let _ = self.change_config(changed, false, None).await;
                if is_undeclared {
                    self.read_settings();
                }
            }
            StateAction::SessionMetaChanged(changed) => self.change_meta(changed),
            StateAction::SessionChangesetsChanged(_) => {
                self.reports_changesets = true;
                self.deferred.add(DeferredPart::Reported);
                self.apply_session(action, None);
            }
            StateAction::SessionCustomizationsChanged(mut changed) => {
                self.list_client_plugins(&mut changed.customizations);
                self.toggle_listed(at, &mut changed.customizations);
                self.apply_session(StateAction::SessionCustomizationsChanged(changed), None);
            }
            StateAction::SessionCustomizationUpdated(mut updated) => {
                let mut listed = vec![updated.customization];
                self.toggle_listed(at, &mut listed);
                if let Some(customization) = listed.pop() {
                    updated.customization = customization;
                    self.apply_session(StateAction::SessionCustomizationUpdated(updated), None);
                }
            }
            // Only the host dispatches these.
            StateAction::SessionReady(_)
            | StateAction::SessionChatAdded(_)
            | StateAction::SessionChatRemoved(_)
            | StateAction::SessionChatUpdated(_)
            | StateAction::SessionIsReadChanged(_)
            | StateAction::SessionIsArchivedChanged(_) => self.misplaced(&action, "the host"),
            other => match scope_of(&other) {
                Some(Scope::Session) => {
                    self.apply_session(other, None);
                }
                _ => self.misplaced(&other, "a session"),
            },
        }
    }

    fn misplaced(&self, action: &StateAction, place: &str) {
        let name = actions::type_of(action).unwrap_or("an action without a type");
        let provider = &self.entry.provider;
        self.core.log.warn(format_args!(
            "{}: backend {provider} emitted {name}, which is not an action of {place}; dropped",
            self.entry.uri
        ));
    }

    /// Starts a turn that the backend began by itself, so the backend receives no call. A backend without a clock
    /// leaves the time empty.
    async fn own_turn(&mut self, at: usize, mut started: ChatTurnStartedAction) {
        if started.started_at.is_empty() {
            started.started_at = self.core.clock.iso();
        }
        // Only the host says who sent a message.
        self.sign(&mut started.message, None, None);
        let is_refused = self.refusal_of(&started.message).is_some();
        self.chats[at].is_given = false;
        let action = StateAction::ChatTurnStarted(started.clone());
        let before = self.chats[at].before(true);
        self.chats[at].reduce(&action);
        let draft = self.begin_draft();
        let record_kept = draft.is_some().then(|| self.keep_session());
        let turn_kept = self.keep_running_turn(at);
        let writes = futures::future::join(OptionFuture::from(record_kept), turn_kept);
        self.stored_in(at, before, writes).await;
        if self.storing.has_failed {
            return;
        }
        self.refresh_chats();
        self.republish(at, &action, None);
        self.happened(at, Happened::Began);
        if let Some(draft) = draft {
            self.announce_begun(draft);
        }
        let (session, chat) = (self.entry.uri.clone(), self.chats[at].uri.clone());
        self.core.events.raise(Event::TurnStart { session, chat, turn: started.turn_id, sender: None });
        if is_refused {
            let _ = self.mailbox.send(ToSession::Review);
        }
    }

    /// Withdraws the requests for approval or client execution that belong to a tool call.
    pub(super) fn withdraw_call(&mut self, at: usize, call: &str) {
        self.withdraw_where(at, |request| super::tools::call_of(request) == Some(call));
    }

    /// Opens the read-only chat of a worker and links it to its tool call.
    pub(super) fn open_worker(&mut self, opened: WorkerOpened) {
        let WorkerOpened { parent, call, request, answer } = opened;
        let uri = worker_uri(&self.entry.uri, &call);
        let outcome = self.worker(parent, &call, &uri, &request);
        if let Ok((number, _, turn)) = &outcome
            && let Some(at) = self.chat_numbered(*number)
            && self.chats[at].running().is_none()
        {
            let prompt = request.prompt.as_deref().unwrap_or_default();
            let started = worker_turn(turn, prompt, &self.core.clock.iso());
            self.apply_chat(at, StateAction::ChatTurnStarted(started), None);
            // Stored before the turn of the call that links to it.
            let (chats, turn) = (self.keep_chats(), self.keep_running_turn(at));
            self.write_unwaited(futures::future::join(chats, turn));
        }
        let _ = answer.send(outcome);
    }

    fn worker(
        &mut self,
        parent: u64,
        call: &str,
        uri: &str,
        request: &WorkerRequest,
    ) -> Result<(u64, String, String), Thrown> {
        let Some(lead) = self.chat_numbered(parent) else {
            return Err(Thrown::new("the chat of this call is closed"));
        };
        if let Some(open) = self.chats.iter().find(|chat| chat.uri == uri) {
            let turn = open.running().map_or_else(|| self.core.new_id(), str::to_owned);
            return Ok((open.number, uri.to_owned(), turn));
        }
        if !self.sessions.claim_chat(uri, &self.entry.id) {
            return Err(Thrown::new(already_exists(uri)));
        }
        // A worker of a worker was spawned by a call in that worker's chat.
        let spawned_in = match &request.parent_tool_call_id {
            Some(parent_call) => {
                self.chat_at(&Place::Chat(worker_uri(&self.entry.uri, parent_call))).ok_or_else(|| {
                    Thrown::new(format_args!("no worker was opened for the call {parent_call}"))
                })?
            }
            None => lead,
        };
        let parent_uri = self.chats[spawned_in].uri.clone();
        let number = self.next_chat;
        self.next_chat += 1;
        let audience = self.core.fanout.audience(uri);
        let mut chat = Chat::new(number, uri.to_owned(), &request.title, self.core.clock.iso(), audience);
        chat.lead = Some(parent);
        chat.state.interactivity = Some(ChatInteractivity::ReadOnly);
        chat.state.origin = Some(ChatOrigin::Tool { chat: parent_uri, tool_call_id: call.to_owned() });
        let summary = chat.summary();
        self.chats.push(chat);
        self.apply_session(StateAction::SessionChatAdded(SessionChatAddedAction { summary }), None);
        let link = ToolResultSubagentContent {
            resource: uri.to_owned(),
            title: request.title.clone(),
            agent_name: request.agent_name.clone(),
            description: request.description.clone(),
        };
        self.link_call(spawned_in, call, link);
        Ok((number, uri.to_owned(), self.core.new_id()))
    }

    /// Stops a worker with the backend's own method, or else by cancelling the turn that spawned it.
    pub(super) fn stop_worker(&mut self, at: usize) {
        let Some(ChatOrigin::Tool { tool_call_id, .. }) = self.chats[at].state.origin.clone() else {
            return;
        };
        let lead_turn = self.chats[self.lead_of(at)].running().map(str::to_owned);
        self.tell_if_awake(at, Tell::StopWorker { call: tool_call_id, lead_turn });
    }
}

fn worker_turn(turn: &str, prompt: &str, now: &str) -> ChatTurnStartedAction {
    ChatTurnStartedAction {
        turn_id: turn.to_owned(),
        started_at: now.to_owned(),
        message: Message {
            text: prompt.to_owned(),
            origin: MessageOrigin { kind: MessageKind::Agent },
            attachments: None,
            model: None,
            agent: None,
            meta: None,
        },
        queued_message_id: None,
        meta: None,
    }
}

/// Returns the kind of channel that an action belongs to.
fn scope_of(of: &StateAction) -> Option<Scope> {
    actions::row(of).map(|row| row.scope)
}

fn kind_of(request: &SessionInputRequest) -> &str {
    match request {
        SessionInputRequest::ChatInput(_) => "chatInput",
        SessionInputRequest::ToolConfirmation(_) => "toolConfirmation",
        SessionInputRequest::ToolClientExecution(_) => "toolClientExecution",
        SessionInputRequest::ToolAuthentication(_) => "toolAuthentication",
        SessionInputRequest::Unknown(value) => {
            value.get("kind").and_then(ostler_protocol::Value::as_str).unwrap_or_default()
        }
    }
}
