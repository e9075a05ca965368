//! The task that owns a session's state. It processes messages in order, reduces actions and publishes them in batches.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use ahp::reducers::{ReduceOutcome, apply_action_to_session};
use ostler_contract::points::{Agent, Emit};
use ostler_contract::registry::Owned;
use ostler_engine_core::fanout::{Audience, Encoded, Origin, Outgoing};
use ostler_engine_core::long_work::long_work;
use ostler_engine_core::shared::Core;
use ostler_engine_users::users::clients::ClientIdentity;
use ostler_protocol::Version;
use ostler_protocol::actions;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{ChangesSummary, SessionState};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::annotations::Annotations;
use super::awake_limit::release;
use super::bound_tools::creator;
use super::chat::{Chat, is_streamed};
use super::chats::Opening;
use super::client_plugins::ClientPlugins;
use super::deferred::{Deferred, DeferredPart};
use super::emit_limit::{EmitLimit, EmittedSize};
use super::mailbox::ToSession;
use super::memory_limit::Memory;
use super::pages::Asked;
use super::prepare::Preparing;
use super::queue::{BATCH, Inbox, Mailbox, Posted};
use super::shared::SharedState;
use super::size::Extent;
use super::storing::Storing;
use super::summary::flags_in;
use super::text_length::text_in;
use super::ticks::wait_until;
use super::{Place, SessionEntry};
use crate::Sessions;

/// The actor of one session that is awake.
#[derive(Debug)]
pub(super) struct Actor {
    pub core: Arc<Core>,
    pub sessions: Arc<Sessions>,
    pub entry: Arc<SessionEntry>,
    pub agent: Option<Owned<Agent>>,
    /// The session's state, without the parts in `shared`.
    pub state: SessionState,
    pub shared: SharedState,
    /// The clients of `state.active_clients`, with their users.
    pub active_clients: Vec<ClientIdentity>,
    pub chats: Vec<Chat>,
    pub next_chat: u64,
    /// Chats that are being opened.
    pub opening: Vec<Opening>,
    /// Actions that are being prepared.
    pub preparing: Vec<Preparing>,
    pub next_preparation: u64,
    /// Messages that were held back and can be handled now.
    pub again: VecDeque<Box<Posted>>,
    pub mailbox: Mailbox,
    /// The inbox, while no message is being handled.
    pub inbox: Option<Inbox>,
    pub storing: Storing,
    pub ahead: EmitLimit,
    pub audience: Arc<Audience>,
    /// Whether listings contain the session.
    pub announced: bool,
    /// Whether a summary may have changed.
    pub dirty: bool,
    pub busy_at: Instant,
    /// The summary of changes that a listing shows.
    pub changes: Option<ChangesSummary>,
    /// Whether the session's changesets are those that its backend reported.
    pub reports_changesets: bool,
    pub annotations: Annotations,
    /// The plugins that clients contribute to the session.
    pub client_plugins: ClientPlugins,
    /// The keys of `_meta` that hold facts about the session's directory.
    pub facts: Vec<String>,
    /// When the facts about the directory were last read.
    pub(super) looked: super::directory_facts::LastLooked,
    /// Writes that are deferred.
    pub deferred: Deferred,
    /// Writes that no caller waits for.
    pub unwaited: Vec<JoinHandle<()>>,
    /// The memory that the session's state occupies.
    pub memory: Memory,
    channel: Arc<str>,
    /// Whether the session was asked to sleep.
    rest: bool,
    /// Whether the session was asked to leave for another host, and whether even if something uses it.
    leaves: Option<bool>,
    pub out: Vec<(Arc<str>, Outgoing)>,
    /// Whether actions were published and this task has not let another one run since.
    pub unsent: bool,
}

/// How a session ends.
enum End {
    Disposed,
    Closed,
}

/// Boxes a future where it is made. In a debug build, a stack frame has room for each future that its function makes, and the
/// frames of a session that waits for a store and handles another message meanwhile are all on one stack.
#[inline(never)]
pub(super) fn boxed<'a, F: Future + 'a>(
    actor: &'a mut Actor,
    make: impl FnOnce(&'a mut Actor) -> F,
) -> Pin<Box<F>> {
    Box::pin(make(actor))
}

impl Actor {
    pub fn new(
        sessions: Arc<Sessions>,
        entry: Arc<SessionEntry>,
        agent: Option<Owned<Agent>>,
        mut state: SessionState,
        mut chats: Vec<Chat>,
        mailbox: Mailbox,
    ) -> Box<Self> {
        entry.counts_within(usize::MAX);
        let facts = entry.view().record.facts.keys().cloned().collect();
        let audience = sessions.core.fanout.audience(&entry.uri);
        let next_chat = chats.iter().map(|chat| chat.number + 1).max().unwrap_or_default();
        for chat in &mut chats {
            chat.take_modified();
        }
        Box::new(Self {
            channel: entry.uri.as_str().into(),
            shared: SharedState::take(&sessions, &mut state),
            core: sessions.core.clone(),
            memory: Memory::new(&sessions.limits.states),
            sessions,
            active_clients: creator(&entry, &state.active_clients),
            entry,
            agent,
            state,
            chats,
            next_chat,
            opening: Vec::new(),
            preparing: Vec::new(),
            next_preparation: 0,
            again: VecDeque::new(),
            mailbox,
            inbox: None,
            storing: Storing::default(),
            ahead: EmitLimit::default(),
            audience,
            announced: false,
            dirty: false,
            busy_at: Instant::now(),
            changes: None,
            reports_changesets: false,
            annotations: Annotations::Unread,
            client_plugins: ClientPlugins::default(),
            facts,
            looked: super::directory_facts::LastLooked::default(),
            rest: false,
            leaves: None,
            deferred: Deferred::default(),
            unwaited: Vec::new(),
            out: Vec::new(),
            unsent: false,
        })
    }

    /// Serves the mailbox until the session ends or falls asleep.
    ///
    /// The session's task has the size of this future for as long as the session is awake, so long operations are boxed
    /// while they run.
    pub async fn run(mut self: Box<Self>, mut inbox: Inbox) {
        loop {
            if inbox.is_empty() {
                // The task is about to wait.
                self.unsent = false;
            }
            let more = tokio::select! {
                biased;
                more = inbox.ready() => more,
                () = wait_until(self.deadline()) => {
                    let Some(back) = boxed(&mut self, |actor| actor.tick(inbox)).await else { return };
                    inbox = back;
                    if self.may_sleep() && boxed(&mut self, |actor| actor.fall_asleep(&mut inbox)).await {
                        return;
                    }
                    continue;
                }
            };
            if !more {
                return;
            }
            let mut end = None;
            let (mut left, mut emitted) = (inbox.round(), EmittedSize::default());
            loop {
                if inbox.has_priority() {
                    self.take_priority(&mut inbox);
                }
                let again = self.again.pop_front();
                let next = again.or_else(|| {
                    let next = (left > 0).then(|| inbox.next()).flatten();
                    left = left.saturating_sub(1);
                    next.inspect(|posted| emitted += posted.message.taken())
                });
                let Some(posted) = next else { break };
                let Some(posted) = self.held_back(posted) else { continue };
                let Some(posted) = self.waits_for_annotations(posted) else { continue };
                let Some(posted) = self.waits_for_prepared(posted) else { continue };
                let Some(posted) = self.waits_for_room(posted) else { continue };
                // A session that receives many messages yields the thread to other tasks from time to time.
                tokio::task::consume_budget().await;
                // Actions that the message queues wait until its change is stored; actions queued before it do not.
                if !self.needs_no_store(&posted.message) {
                    self.send_out().await;
                }
                let Some(message) = self.stream(posted.message) else { continue };
                self.inbox = Some(inbox);
                let how = boxed(&mut self, |actor| actor.handle(message)).await;
                let Some(back) = self.inbox.take() else { return };
                inbox = back;
                if how.is_some() || self.storing.has_failed {
                    end = how;
                    break;
                }
            }
            self.ahead.taken(emitted);
            match end {
                Some(End::Disposed | End::Closed) => return,
                None if self.storing.has_failed => {
                    boxed(&mut self, |actor| actor.give_up(inbox)).await;
                    return;
                }
                None => {
                    self.settle();
                    // A backend that emits without pause leaves no moment in which the mailbox is empty.
                    if self.deadline().is_some_and(|due| due <= Instant::now()) {
                        let Some(back) = boxed(&mut self, |actor| actor.tick(inbox)).await else { return };
                        inbox = back;
                    }
                    let rest = std::mem::take(&mut self.rest) && self.is_idle() && self.can_rest();
                    if rest && boxed(&mut self, |actor| actor.fall_asleep(&mut inbox)).await {
                        return;
                    }
                    if let Some(even_if_used) = self.leaves.take()
                        && boxed(&mut self, |actor| actor.leave(&mut inbox, even_if_used)).await
                    {
                        return;
                    }
                    // A session without pending messages does not retain memory for the next ones.
                    if inbox.is_empty() {
                        inbox.release();
                        release(&mut self.out);
                    }
                }
            }
        }
    }

    /// Handles streamed text of a turn, which does not wait for the store; returns any other message.
    pub(super) fn stream(&mut self, message: ToSession) -> Option<ToSession> {
        let (chat, action) = match message {
            ToSession::Emit { chat, channel: Emit::Chat, action } if is_streamed(&action) => (chat, action),
            ToSession::WorkerEmit { chat, action } if is_streamed(&action) => (chat, action),
            other => return Some(other),
        };
        if let Some(at) = self.chat_numbered(chat) {
            self.emit_streamed(at, action);
        }
        None
    }

    async fn handle(&mut self, message: ToSession) -> Option<End> {
        self.storing.is_unstored = false;
        match message {
            ToSession::Emit { chat, channel, action } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.handle_emit(at, channel, action).await;
                }
            }
            ToSession::Dispatch(dispatch) => {
                self.busy_at = Instant::now();
                self.handle_dispatch(*dispatch).await;
            }
            ToSession::Subscribe(subscription) => {
                self.busy_at = Instant::now();
                match subscription.place {
                    Place::Annotations => self.watch_annotations(*subscription),
                    _ => self.handle_subscribe(*subscription).await,
                }
            }
            ToSession::Left { client } => self.handle_left(&client),
            ToSession::TurnRecorded { chat, turn, transcript } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.turn_recorded(at, turn, transcript);
                }
            }
            ToSession::BackendStarted { chat, resumes } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.backend_started(at, resumes);
                }
            }
            ToSession::McpServerFailed { chat, id, why } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.mcp_server_failed(id, &why);
                    self.backend_failed(at, None, why).await;
                }
            }
            ToSession::BackendEnded { chat, why } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.chats[at].ended = Some(why);
                }
            }
            ToSession::ContextTold { chat } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.context_told(at);
                }
            }
            ToSession::BackendFailed { chat, turn, why } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.backend_failed(at, turn, why).await;
                }
            }
            ToSession::TurnRefused { chat, turn, why } => {
                if let Some(at) = self.chat_numbered(chat)
                    && self.chats[at].running() == Some(turn.as_str())
                {
                    self.fail_turn(at, why.error_type, why.message).await;
                }
            }
            ToSession::BackendId { chat, id } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.chats[at].backend_id = Some(id.clone());
                    self.read_settings();
                    if Some(self.chats[at].uri.as_str()) == self.state.default_chat.as_deref() {
                        self.revise(|record| record.backend_id = Some(id));
                        self.write_unwaited(self.keep_session());
                    }
                    self.write_unwaited(self.keep_chats());
                }
            }
            ToSession::Turn { request, taken } => {
                self.busy_at = Instant::now();
                let span = request.span.clone();
                let outcome = self.take_turn(*request).instrument(span).await;
                let _ = taken.send(outcome);
            }
            ToSession::Steer { request, taken } => {
                self.steer_turn(*request, taken);
            }
            ToSession::Steered { chat, id, call, taken, answer } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.steered(at, &id, call, taken).await;
                }
                if let Some(answer) = answer {
                    let _ = answer.send(taken);
                }
            }
            ToSession::AnnotationsRead { outcome } => self.annotations_read(outcome),
            ToSession::Prepared { number, dispatch, outcome } => {
                self.prepared(number, *dispatch, outcome).await;
            }
            ToSession::QueuedAsked { chat, id, refused } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.queued_asked(at, &id, refused).await;
                }
            }
            ToSession::SettingsRead(config) => self.add_settings(*config),
            ToSession::Rename { title } => self.rename(&title, None).await,
            ToSession::Turns { place, answer } => {
                let turns = self.chat_at(&place).map(|at| self.chats[at].state.turns.clone());
                let _ = answer.send(turns);
            }
            ToSession::Customizations { answer } => {
                let _ = answer.send(self.state.customizations.clone());
            }
            ToSession::Chats { answer } => {
                let _ = answer.send(self.chats.iter().map(Chat::summary).collect());
            }
            ToSession::FetchTurns { spelled, place, cursor, connection, responder, room } => {
                let asked = Asked { spelled: &spelled, place: &place, from: cursor.as_deref() };
                self.fetch_turns(asked, &connection, responder, room).await;
            }
            ToSession::ConfigAnswered { dispatch, changes, refused } => {
                self.config_answered(*dispatch, changes, refused).await;
            }
            ToSession::TokenLent { lender, resource, token } => {
                self.take_lent(&lender, &resource, &token);
                self.begin_all_queued().await;
            }
            ToSession::ToolTimedOut { chat, call } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.tool_timed_out(at, &call);
                }
            }
            ToSession::PluginCopied { number, outcome } => self.plugin_copied(number, outcome),
            ToSession::Worker(opened) => self.open_worker(*opened),
            ToSession::WorkerEmit { chat, action } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.handle_emit(at, Emit::Chat, action).await;
                }
            }
            ToSession::OpenChat { chat, answer } => {
                self.busy_at = Instant::now();
                self.open_chat(*chat, answer);
            }
            ToSession::ChatReady(ready) => self.chat_ready(*ready).await,
            ToSession::CloseChat { spelled, place, answer } => {
                let outcome = boxed(self, |actor| actor.close_chat(&place, &spelled)).await;
                self.settle();
                let _ = answer.send(outcome.and_then(|()| self.acknowledge()));
            }
            ToSession::MoveWithin { spelled, place, after, answer } => {
                let outcome = self.move_within(&place, &spelled, after.as_deref()).await;
                self.settle();
                let _ = answer.send(outcome.and_then(|()| self.acknowledge()));
            }
            ToSession::LendChat { spelled, place, answer } => {
                if let Err(Ok(lent)) = answer.send(self.lend_chat(&place, &spelled)) {
                    // The caller is gone.
                    let uri = lent.chats.first().map(|chat| chat.uri.clone()).unwrap_or_default();
                    self.loan_ended(uri, Err(lent)).await;
                }
            }
            ToSession::TakeChat { lent, after, answer } => {
                let taken = lent.lock().take();
                if let Some(lent) = taken {
                    let outcome = self.take_chat(lent, after.as_deref()).await;
                    self.settle();
                    let _ = answer.send(outcome.map_err(Box::new));
                }
            }
            ToSession::LoanEnded { uri, outcome, done } => {
                self.loan_ended(uri, *outcome).await;
                let _ = done.send(());
            }
            ToSession::Made { done } => {
                self.made().await;
                let _ = done.send(());
            }
            ToSession::Running { place, answer } => {
                let turn = self.chat_at(&place).and_then(|at| self.chats[at].running());
                let _ = answer.send(turn.map(str::to_owned));
            }
            ToSession::Settings { answer } => {
                let values = self.state.config.as_ref().map(|config| config.values.clone());
                let _ = answer.send(values.unwrap_or_default());
            }
            ToSession::DirectoryFacts(found) => self.take_around(*found),
            ToSession::Reviewed { scope, files } => self.keep_reviewed(scope, files).await,
            ToSession::Room { number, posted } => self.has_room(number, posted),
            // The priority lane is checked before each message.
            ToSession::Priority => {}
            ToSession::Review => self.review_turns().await,
            ToSession::Unwatched => self.busy_at = Instant::now(),
            ToSession::Rest => self.rest = true,
            ToSession::GoOn => boxed(self, Self::begin_all_queued).await,
            ToSession::Leave { even_if_used } => self.leaves = Some(even_if_used),
            ToSession::Dispose { done } => {
                let is_disposed = boxed(self, Self::dispose).await;
                let _ = done.send(is_disposed);
                return is_disposed.then_some(End::Disposed);
            }
            ToSession::Abandoned => {
                if self.is_abandoned() {
                    return boxed(self, Self::dispose).await.then_some(End::Disposed);
                }
            }
            ToSession::Close { done } => {
                boxed(self, |actor| actor.close("closing")).await;
                let _ = done.send(());
                return Some(End::Closed);
            }
            ToSession::Abandon { done } => {
                self.abandon().await;
                let _ = done.send(());
                return Some(End::Closed);
            }
        }
        None
    }

    pub(super) fn chat_numbered(&self, number: u64) -> Option<usize> {
        self.chats.iter().position(|chat| chat.number == number)
    }

    /// Returns the index of the chat that a place names.
    pub(super) fn chat_at(&self, place: &Place) -> Option<usize> {
        let uri = match place {
            Place::Session | Place::Annotations => return None,
            Place::DefaultChat => self.state.default_chat.as_deref()?,
            Place::Chat(uri) => uri,
        };
        self.chats.iter().position(|chat| chat.uri == uri)
    }

    /// Reduces an action of a chat and queues it for the chat's subscribers. Returns whether it changed the state.
    pub(super) fn apply_chat(&mut self, at: usize, action: StateAction, origin: Option<Origin>) -> bool {
        let (removed, marks) = (self.chats[at].removed_by(&action), self.chats[at].flags());
        match self.chats[at].reduce(&action) {
            ReduceOutcome::Applied => {}
            ReduceOutcome::NoOp | ReduceOutcome::OutOfScope => return false,
            ReduceOutcome::Invalid(why) => {
                self.core.log.warn(format_args!("{}: {why}", self.chats[at].uri));
                return false;
            }
        }
        if !is_streamed(&action) {
            self.dirty = true;
        }
        self.note_report(at, &action);
        if self.chats[at].flags() != marks {
            // A question makes a chat unread as well.
            self.deferred.add(DeferredPart::Chats);
        }
        let channel = self.chats[at].channel();
        let extent = self.queue(channel, &action, origin);
        self.chats[at].size.lessen(removed);
        self.chats[at].size.grow(extent);
        true
    }

    /// Reduces an action of the session and queues it for the session's subscribers. Returns whether it changed the
    /// state.
    pub(super) fn apply_session(&mut self, action: StateAction, origin: Option<Origin>) -> bool {
        let marks = flags_in(self.state.status);
        if apply_action_to_session(&mut self.state, &action) != ReduceOutcome::Applied {
            return false;
        }
        if flags_in(self.state.status) != marks {
            self.deferred.add(DeferredPart::Flags);
        }
        if !matches!(action, StateAction::SessionChatUpdated(_)) {
            self.dirty = true;
        }
        self.note_session_report(&action);
        let channel = self.channel();
        let extent = self.queue(channel, &action, origin);
        self.memory.size.grow(extent);
        true
    }

    fn channel(&self) -> Arc<str> {
        self.channel.clone()
    }

    /// Queues an action that was already reduced for a chat's subscribers.
    pub(super) fn republish(&mut self, at: usize, action: &StateAction, origin: Option<Origin>) {
        self.dirty = true;
        let channel = self.chats[at].channel();
        let extent = self.queue(channel, action, origin);
        self.chats[at].size.grow(extent);
    }

    /// Queues a reduced action for a channel's subscribers. Returns how much it adds to the state.
    pub(super) fn queue(
        &mut self,
        channel: Arc<str>,
        action: &StateAction,
        origin: Option<Origin>,
    ) -> Extent {
        let encoded = long_work(text_in(action), || {
            let encoded = Encoded::framed(&channel, action).ok()?;
            Some((Extent::of_action(action, encoded.text()), encoded))
        });
        let Some((extent, encoded)) = encoded else { return Extent::default() };
        let since = actions::row(action).map_or(Version::V0_9, |row| row.since);
        // Its sender is answered with a rejection.
        let origin = origin.filter(|_| !self.storing.is_unstored);
        let older = super::client_versions::action(action);
        self.out.push((channel, Outgoing { action: encoded, origin, since, older, overlay: None }));
        if self.out.len() >= BATCH {
            self.flush_out();
        }
        extent
    }

    /// Publishes the text gathered in a chat.
    pub(super) fn flush_gathered(&mut self, at: usize) {
        if let Some(action) = self.chats[at].take_gathered() {
            self.apply_chat(at, action, None);
        }
    }

    /// Ends a batch: refreshes the summaries, publishes the queued actions and accounts for memory.
    pub(super) fn settle(&mut self) {
        if !self.storing.is_serving && std::mem::take(&mut self.dirty) {
            self.refresh_summaries();
        }
        self.flush_out();
        self.account();
    }
}
