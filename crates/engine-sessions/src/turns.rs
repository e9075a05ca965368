//! Turns: their start, their end, queued messages, and their publication.

use futures::FutureExt as _;
use futures::future::{BoxFuture, OptionFuture};
use ostler_contract::events::{Event, EventName, TurnStatus};
use ostler_contract::points::{Changes, KeptDraft, SessionFlags, StartingTurn, TurnFrom};
use ostler_contract::{HostFunction, Thrown, Value, limit};
use ostler_engine_core::fanout::Origin;
use ostler_engine_core::long_work::long_work;
use ostler_engine_core::refusals::{NO_SUCH_CHAT, NOT_STORED};
use ostler_engine_core::traces;
use ostler_engine_workspace::sessions_view::SessionView as _;
use ostler_protocol::uri;
use ostler_protocol::wire::actions::{
    ChatErrorAction, ChatPendingMessageRemovedAction, ChatPendingMessageSetAction, ChatResponsePartAction,
    ChatTurnStartedAction, SessionInputNeededRemovedAction, SessionIsReadChangedAction, StateAction,
};
use ostler_protocol::wire::common::StringOrMarkdown;
use ostler_protocol::wire::state::{
    ErrorInfo, ErrorResponsePart, PendingMessageKind, ResponsePart, SessionInputRequest, SessionStatus,
    SystemNotificationResponsePart, TurnState,
};
use tracing::Span;

use super::Happened;
use super::actor::Actor;
use super::backend::Tell;
use super::chat::Chat;
use super::deferred::DeferredPart;
use super::mailbox::{ToSession, TurnRequest, TurnTaken};
use super::senders::TurnRefusal;
use super::storing::{Before, Outcome as _};
use super::text_length::text_in_message;

/// A turn whose start is being stored.
struct Opening {
    stored: BoxFuture<'static, bool>,
    /// The chat before the turn.
    before: Before,
    /// The subscribers' title of the session, if the turn changes it.
    title: Option<String>,
    turn: String,
    /// The text of its message, if a plugin listens to messages.
    text: Option<String>,
    sender: Option<String>,
    /// The session's draft mark, which the turn clears.
    draft: Option<KeptDraft>,
    was_read: bool,
}

impl Actor {
    /// Starts a turn and sends it to the backend. The backend receives it while the start of the turn is being stored;
    /// actions that it emits wait in the mailbox until the start is durable.
    pub(super) async fn begin_turn(
        &mut self,
        at: usize,
        action: ChatTurnStartedAction,
        origin: Option<Origin>,
        sender: Option<String>,
    ) {
        let turn = action.turn_id.clone();
        let message = long_work(text_in_message(&action.message), || action.message.clone());
        self.entry.client_resources.remember(message.attachments.as_ref());
        let has_waited = action.queued_message_id.is_some();
        self.chats[at].is_given = self.command_line_of(&message).is_none();
        let mut opening = self.open_turn(at, action, origin, sender);
        let tell = match self.run_of(at, &turn, &message) {
            Some(ran) => ran,
            None => Tell::Begin {
                turn,
                from: TurnFrom::of(&message),
                text: message.text,
                model: message.model,
                attachments: message.attachments,
                tells_context: self.chats[at].untold_context().is_some(),
                span: self.chats[at].span.clone(),
            },
        };
        let is_command = matches!(tell, Tell::Ran { .. });
        let rewinds = self.chats[at].rewind;
        if let Some(before) = self.client_plugins.before_turn() {
            self.tell_backend(at, before);
        }
        if let Some(before) = self.before_turn(&opening.turn) {
            self.tell_backend(at, before);
        }
        if has_waited {
            // A host killed before the turn is stored finds the message queued again, and would send it to the backend twice.
            let stored = opening.stored.shared();
            opening.stored = stored.clone().boxed();
            let done = HostFunction::new(move |()| stored.clone().map(|_| Ok(())));
            self.tell_backend(at, Tell::Before { done });
        }
        self.tell_backend(at, tell);
        if !is_command {
            self.forget_model(at);
        }
        if self.chats[at].rewind != rewinds {
            // The backend has been informed.
            self.deferred.add(DeferredPart::Chats);
        }
        let begun = opening.turn.clone();
        self.announce_turn(at, opening).await;
        if !self.storing.has_failed {
            self.say_notes(at, &begun);
        }
    }

    /// Tells the user in a turn that has begun what there is to know about the session's settings.
    fn say_notes(&mut self, at: usize, turn: &str) {
        for note in std::mem::take(&mut self.chats[at].notes) {
            let content = StringOrMarkdown::Plain(note);
            let part =
                ResponsePart::SystemNotification(SystemNotificationResponsePart { content, meta: None });
            let said = ChatResponsePartAction { turn_id: turn.to_owned(), part, meta: None };
            self.apply_chat(at, StateAction::ChatResponsePart(said), None);
        }
    }

    /// Starts a turn without a backend call. The turn and everything that its start changes are stored in one commit,
    /// which is in progress when this returns.
    fn open_turn(
        &mut self,
        at: usize,
        action: ChatTurnStartedAction,
        origin: Option<Origin>,
        sender: Option<String>,
    ) -> Opening {
        self.flush_gathered(at);
        self.flush_out();
        let turn = action.turn_id.clone();
        let message = &action.message.text;
        let heard = self.core.events.listened(EventName::Message);
        let text = heard.then(|| long_work(message.len(), || message.clone()));
        let chat = &mut self.chats[at];
        chat.span = traces::turn(&self.entry.uri, &chat.uri, &turn, &self.entry.provider);
        self.chats[at].sender.clone_from(&sender);
        self.chats[at].charged = None;
        let marks = self.chats[at].state.status;
        let before = self.chats[at].before(true);
        // Reduced first, so that the stored state is the one that subscribers will see; published after it is stored.
        let taken = self.queued_message(at, action.queued_message_id.as_deref());
        let action = StateAction::ChatTurnStarted(action);
        self.chats[at].reduce(&action);
        let draft = self.begin_draft();
        let record_kept = draft.is_some().then(|| self.keep_session());
        // A message both in the queue and in a turn would exist twice after a crash. It leaves the queue first, and is
        // queued again if its turn does not reach the store.
        self.chats[at].starting = taken.map(|queued| Box::new(StartingTurn { turn: turn.clone(), queued }));
        let queue_kept = self.chats[at].starting.is_some().then(|| self.keep_chats());
        let turn_kept = self.keep_running_turn(at);
        let unread = self.chats[at].state.status & SessionStatus::IsRead.bits()
            != marks & SessionStatus::IsRead.bits();
        let queue = self.chats[at].state.queued_messages.is_some();
        self.republish(at, &action, origin);
        let title = self.name_after(at);
        let chats_kept = match queue_kept {
            None => (queue || unread && title.is_none()).then(|| self.keep_chats()),
            kept => kept,
        };
        let shown = title.is_some().then(|| self.state.title.clone());
        let title_kept = title.map(|title| {
            self.show_title(at, &title, None);
            self.keep_titles(at, title)
        });
        let flags = self.flags();
        let was_read = flags.is_read;
        let flags_kept = was_read.then(|| self.keep_flags(SessionFlags { is_read: false, ..flags }));
        // The writes were started in this order; later writes of the chat follow the turn.
        if self.chats[at].starting.take().is_some() {
            // The stored chats say that a message waits, until they are written again after the turn.
            self.deferred.add(DeferredPart::Chats);
        }
        let writes = futures::future::join5(
            OptionFuture::from(record_kept),
            turn_kept,
            OptionFuture::from(chats_kept),
            OptionFuture::from(title_kept),
            OptionFuture::from(flags_kept),
        );
        Opening {
            stored: writes.map(|writes| is_all_stored(&writes)).boxed(),
            before,
            title: shown,
            turn,
            text,
            sender,
            draft,
            was_read,
        }
    }

    /// Announces a turn once its start is durable.
    async fn announce_turn(&mut self, at: usize, opening: Opening) {
        let Opening { stored, before, title, turn, text, sender, draft, was_read } = opening;
        self.storing.title = title;
        self.stored_in(at, before, stored).await;
        self.storing.title = None;
        if self.storing.has_failed {
            return;
        }
        self.show_before(|actor| actor.refresh_chats());
        if was_read {
            let unread = SessionIsReadChangedAction { is_read: false };
            self.apply_session(StateAction::SessionIsReadChanged(unread), None);
        }
        self.happened(at, Happened::Began);
        self.sessions.workspace.disable_operations(&self.entry.uri);
        match draft {
            Some(draft) => self.announce_begun(draft),
            None => self.refresh_summaries(),
        }
        let (session, chat) = (self.entry.uri.clone(), self.chats[at].uri.clone());
        self.core.events.raise(Event::TurnStart {
            session: session.clone(),
            chat: chat.clone(),
            turn: turn.clone(),
            sender,
        });
        if let Some(text) = text {
            self.core.events.raise(Event::Message { session, chat, turn, text });
        }
    }

    /// Publishes what a function adds before the queued actions: a client that sees a turn begin finds the chat running in
    /// the list of its session.
    pub(super) fn show_before(&mut self, add: impl FnOnce(&mut Self)) {
        let queued = std::mem::take(&mut self.out);
        add(self);
        self.out.extend(queued);
    }

    /// Returns a queued message in its stored form.
    fn queued_message(&self, at: usize, id: Option<&str>) -> Option<Value> {
        let mut queue = self.chats[at].state.queued_messages.iter().flatten();
        let message = queue.find(|message| Some(message.id.as_str()) == id)?;
        serde_json::to_value(message).ok()
    }

    /// Lets the port for changes record the directory before a turn changes it. The time is limited and a failure is
    /// logged: the turn starts in any case.
    fn before_turn(&self, turn: &str) -> Option<Tell> {
        let start = self.core.registry()?.port::<Changes>()?.turn_start.clone()?;
        let of = self.entry.changes_of();
        of.directory.as_ref()?;
        let (core, turn) = (self.core.clone(), turn.to_owned());
        let done = HostFunction::new(move |()| {
            let (core, session, turn) = (core.clone(), of.session.clone(), turn.clone());
            let recorded = start.within(limit::BEFORE_TURN, (of.clone(), turn.clone()));
            async move {
                if let Err(why) = recorded.await {
                    let why = why.for_log();
                    core.log.warn(format_args!(
                        "{session}: the files before turn {turn} are not recorded: {why}"
                    ));
                }
                Ok(())
            }
        });
        Some(Tell::Before { done })
    }

    /// Sends a message to a chat's backend, starting the backend if necessary.
    pub(super) fn tell_backend(&mut self, at: usize, tell: Tell) {
        if self.chats[at].is_worker() {
            return;
        }
        if self.chats[at].backend.is_none() {
            self.wake_backend(at, matches!(tell, Tell::Resume { .. }));
        }
        if let Some(backend) = &self.chats[at].backend {
            if let Tell::Begin { turn, .. } | Tell::Ran { turn, .. } | Tell::Resume { turn, .. } = &tell {
                self.entry.stops.add(&self.chats[at].uri, turn, backend.stopper());
            }
            backend.tell(tell);
        }
    }

    /// Sends a message that matters only to a running backend. A worker's backend is that of its lead.
    pub(super) fn tell_if_awake(&self, at: usize, tell: Tell) {
        if let Some(backend) = &self.chats[self.lead_of(at)].backend {
            backend.tell(tell);
        }
    }

    /// Sends a message to every running backend.
    pub(super) fn tell_all(&self, tell: impl Fn() -> Tell) {
        self.chats.iter().filter_map(|chat| chat.backend.as_ref()).for_each(|backend| backend.tell(tell()));
    }

    /// Returns the URI of the chat whose backend runs a worker; `None` for other chats.
    pub(super) fn lead_uri(&self, chat: &Chat) -> Option<&str> {
        chat.lead.map(|lead| self.chat_numbered(lead).map_or("", |at| &*self.chats[at].uri))
    }

    /// Returns the chat whose backend runs this one.
    pub(super) fn lead_of(&self, at: usize) -> usize {
        self.chats[at].lead.and_then(|lead| self.chat_numbered(lead)).unwrap_or(at)
    }

    /// Starts or queues a turn that the host requests.
    pub(super) async fn take_turn(&mut self, request: TurnRequest) -> Result<TurnTaken, String> {
        let at = self.chat_at(&request.place).ok_or(NO_SUCH_CHAT)?;
        if let Some(lost) = self.core.lost_storage() {
            return Err(lost);
        }
        if let Some(away) = self.entry.is_away() {
            return Err(away);
        }
        if let Some(why) = &self.chats[at].ended {
            return Err(why.clone());
        }
        let mut message = request.message;
        if request.model.is_some() {
            message.model = request.model;
        }
        self.choose_model(at, &mut message);
        self.sign(&mut message, request.sender.as_deref(), None);
        self.sessions.note_client(&mut message, None);
        if let Some(refused) = self.refusal_of(&message) {
            return Err(refused.message);
        }
        self.check_own_tokens(at)?;
        if self.chats[at].running().is_some() {
            if !request.queue {
                return Err("a turn is running in this chat".to_owned());
            }
            let id = self.core.new_id();
            self.may_wait(at, Some(&id), &message).map_err(|refused| refused.why)?;
            let queued = ChatPendingMessageSetAction { kind: PendingMessageKind::Queued, id, message };
            let before = self.chats[at].before(false);
            let withdrawn = ChatPendingMessageRemovedAction { kind: queued.kind, id: queued.id.clone() };
            self.apply_chat(at, StateAction::ChatPendingMessageSet(queued), None);
            self.happened(at, Happened::Queued);
            self.stored_in(at, before, self.keep_chats()).await;
            if let Err(why) = self.acknowledge() {
                if !self.storing.has_failed {
                    self.apply_chat(at, StateAction::ChatPendingMessageRemoved(withdrawn), None);
                }
                return Err(why.message);
            }
            return Ok(TurnTaken::Queued);
        }
        let turn = self.core.new_id();
        let action = ChatTurnStartedAction {
            turn_id: turn.clone(),
            started_at: self.core.clock.iso(),
            message,
            queued_message_id: None,
            meta: None,
        };
        self.begin_turn(at, action, None, request.sender).await;
        match self.storing.has_failed {
            false => Ok(TurnTaken::Started { turn }),
            true => Err(NOT_STORED.to_owned()),
        }
    }

    /// Ends the processing of a turn: its requests are withdrawn, and the next message starts.
    async fn after_turn(&mut self, at: usize) {
        let Some(turn) = self.chats[at].state.turns.last() else { return };
        let (turn, status) = (turn.id.clone(), status_of(turn.state));
        if let Some(backend) = &self.chats[at].backend {
            backend.tell(Tell::TurnEnded);
        }
        self.close_turn(at, turn, status).await;
        self.after_quiet(at).await;
    }

    /// Starts the next message of a chat without a running turn, or reports that nothing follows its last turn.
    pub(super) async fn after_quiet(&mut self, at: usize) {
        if self.chats[at].is_worker() || self.begin_queued(at).await {
            return;
        }
        if !self.chats[at].state.turns.is_empty() {
            self.fall_quiet(at);
        }
        if self.chats[at].backend.is_some() && self.sessions.may_work_for_owner(&self.entry).is_err() {
            // The turn was somebody else's, or was refused; the agent ends.
            let _ = self.mailbox.send(ToSession::Review);
        }
    }

    /// Withdraws the requests of a turn and announces its end to everyone except the chat's subscribers.
    pub(super) async fn close_turn(&mut self, at: usize, turn: String, status: TurnStatus) {
        self.withdraw_questions(at);
        let (session, chat) = (self.entry.uri.clone(), self.chats[at].uri.clone());
        let sender = self.chats[at].sender.clone();
        self.chats[at].unkept = false;
        self.chats[at].cancelled = None;
        self.entry.stops.ended(&chat);
        self.chats[at].links.clear();
        self.store_activity(at);
        if self.chats[at].is_worker() {
            self.happened(at, Happened::Child(chat));
            return;
        }
        // A run reads the session's summary when it is notified of the end.
        self.refresh_summaries();
        self.send_out().await;
        self.report_run(at, &turn, status);
        self.happened(at, Happened::Ended(status));
        self.core.events.raise(Event::TurnEnd { session, chat, turn, status, sender });
        self.sessions.look_around(&self.entry, true);
        self.deferred.add(DeferredPart::Session);
        if self.chats.iter().filter(|chat| !chat.is_worker()).nth(1).is_some() {
            // The list of chats holds the modification time of each one if there are several.
            self.deferred.add(DeferredPart::Chats);
        }
    }

    /// Starts a turn that the host begins for a client's message, or fails it immediately for a reason.
    pub(super) async fn begin_or_refuse(
        &mut self,
        at: usize,
        action: ChatTurnStartedAction,
        sender: Option<String>,
        refused: Option<TurnRefusal>,
    ) {
        let Some(why) = refused else { return self.begin_turn(at, action, None, sender).await };
        let turn = action.turn_id.clone();
        let opening = self.open_turn(at, action, None, sender);
        self.announce_turn(at, opening).await;
        // The end of the turn starts the next queued message, which may be denied as well, so each one is a separate
        // message.
        let _ = self.mailbox.send(ToSession::TurnRefused { chat: self.chats[at].number, turn, why });
    }

    /// Withdraws all requests for input of a chat, because nothing waits for their answers any more.
    pub(super) fn withdraw_questions(&mut self, at: usize) {
        self.withdraw_where(at, |_| true);
    }

    /// Withdraws the requests for input of a chat for which `which` returns true.
    pub(super) fn withdraw_where(&mut self, at: usize, which: impl Fn(&SessionInputRequest) -> bool) {
        let chat = self.chats[at].uri.clone();
        let asked: Vec<String> = self
            .state
            .input_needed
            .iter()
            .flatten()
            .filter(|request| which(request))
            .filter_map(|request| {
                request_of(request).filter(|(_, of)| *of == chat).map(|(id, _)| id.to_owned())
            })
            .collect();
        for id in asked {
            self.withdraw(&id);
        }
    }

    /// Withdraws one request for input.
    pub(super) fn withdraw(&mut self, id: &str) {
        let removed = SessionInputNeededRemovedAction { id: id.to_owned() };
        if self.apply_session(StateAction::SessionInputNeededRemoved(removed), None) {
            let session = self.entry.uri.clone();
            self.sessions.input.withdrawn(&session, id);
            self.core.events.raise(Event::InputNeededRemoved { session, id: id.to_owned() });
        }
    }

    /// Ends the running turn as failed.
    pub(super) async fn fail_turn(&mut self, at: usize, error_type: &str, message: String) {
        self.flush_gathered(at);
        let Some(active) = &self.chats[at].state.active_turn else { return };
        let action = ChatErrorAction {
            turn_id: active.id.clone(),
            duration: self.duration(at),
            part: ErrorResponsePart {
                error: ErrorInfo { error_type: error_type.to_owned(), message, stack: None, meta: None },
                resumable: None,
            },
            meta: None,
        };
        self.end_turn(at, StateAction::ChatError(action), None).await;
    }

    /// Applies an action that ends a turn. The ended turn is stored before the action is published; earlier actions do
    /// not wait for that.
    pub(super) async fn end_turn(&mut self, at: usize, action: StateAction, origin: Option<Origin>) -> bool {
        self.flush_gathered(at);
        self.send_out().await;
        let before = self.chats[at].before(true);
        let turns = self.chats[at].state.turns.len();
        self.chats[at].reduce(&action);
        if self.chats[at].state.turns.len() == turns {
            return false;
        }
        self.close_span(at);
        let chat = &mut self.chats[at];
        let was_told = chat.told;
        if chat.has_no_answer() {
            // Its backend may not have received the message with the context.
            chat.told = false;
        } else if chat.is_given
            && chat.state.turns.last().is_some_and(|turn| turn.state == TurnState::Complete)
        {
            // Stored with the turn, so that it is not told again after a crash.
            chat.told = chat.context.is_some();
        }
        let is_told_anew = chat.told != was_told;
        let had_failed = turns > 0 && self.chats[at].state.turns[turns - 1].state == TurnState::Error;
        // The list with a worker may not be stored yet.
        let is_changed =
            self.chats[at].is_worker() || self.chats[at].has_failed() || had_failed || is_told_anew;
        let chats = is_changed.then(|| self.keep_chats());
        let writes =
            futures::future::join3(self.charge_turn(at), self.keep_last_turn(at), OptionFuture::from(chats));
        self.stored_end(at, before, writes).await;
        if self.storing.has_failed {
            return true;
        }
        self.republish(at, &action, origin);
        self.after_turn(at).await;
        true
    }

    /// Ends the trace span of the turn that has ended.
    fn close_span(&mut self, at: usize) {
        let chat = &mut self.chats[at];
        let span = std::mem::replace(&mut chat.span, Span::none());
        let outcome = chat.state.turns.last().map(|turn| match turn.state {
            TurnState::Complete => "complete",
            TurnState::Cancelled => "cancelled",
            TurnState::Error => "failed",
        });
        span.record("outcome", outcome);
    }

    /// Handles a backend that failed to start or a failed call: the turn it belongs to fails; without one it is only
    /// logged.
    pub(super) async fn backend_failed(&mut self, at: usize, turn: Option<String>, why: Thrown) {
        let provider = &self.entry.provider;
        self.core.log.warn(format_args!("{}: backend {provider} failed: {}", self.entry.uri, why.for_log()));
        let running = self.chats[at].running().map(str::to_owned);
        if turn.is_some() && turn == running {
            self.fail_turn(at, "backend", why.message).await;
        }
        if self.chats[at].backend.as_ref().is_some_and(super::backend::Backend::is_dead) {
            self.chats[at].backend = None;
            self.chats[at].ended = None;
            self.end_background_work(at);
        }
    }
}

/// Whether everything that the start of a turn changes was stored.
fn is_all_stored(
    (record, turn, chats, title, flags): &(
        Option<bool>,
        bool,
        Option<bool>,
        Option<(bool, bool, bool)>,
        Option<bool>,
    ),
) -> bool {
    record.is_stored() && turn.is_stored() && chats.is_stored() && title.is_stored() && flags.is_stored()
}

/// Returns the id of a request for input and the chat that it belongs to.
pub(super) fn request_of(request: &SessionInputRequest) -> Option<(&str, &str)> {
    match request {
        SessionInputRequest::ChatInput(request) => Some((&request.id, &request.chat)),
        SessionInputRequest::ToolConfirmation(request) => Some((&request.id, &request.chat)),
        SessionInputRequest::ToolClientExecution(request) => Some((&request.id, &request.chat)),
        SessionInputRequest::ToolAuthentication(request) => Some((&request.id, &request.chat)),
        SessionInputRequest::Unknown(value) => {
            Some((value.get("id")?.as_str()?, value.get("chat")?.as_str()?))
        }
    }
}

fn status_of(state: TurnState) -> TurnStatus {
    match state {
        TurnState::Complete => TurnStatus::Complete,
        TurnState::Cancelled => TurnStatus::Cancelled,
        TurnState::Error => TurnStatus::Error,
    }
}

/// Returns the URI of a worker's chat.
pub(super) fn worker_uri(session: &str, call: &str) -> String {
    uri::worker_chat(session, call)
}
