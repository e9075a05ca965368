//! The work of a session while it waits for a store. Nothing is acknowledged before it is stored. Work that needs no
//! store continues: snapshots, drafts, read flags, answers, streamed text. See D-303.
//!
//! A change is applied to the state when its write starts, so that every later write contains it. Until it is stored,
//! subscribers and snapshots have the previous state.

use std::pin::Pin;
use std::time::Duration;

use futures::future::BoxFuture;
use ostler_contract::limit;
use ostler_contract::points::Emit;
use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::long_work::long_work;
use ostler_engine_core::refusals::{NOT_STORED, try_again};
use ostler_engine_users::usage::UsagePer;
use ostler_protocol::RpcError;
use ostler_protocol::actions::Waits;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{ChatState, Turn};
use tokio::time::Instant;

use super::Place;
use super::actor::{Actor, boxed};
use super::chat::Chat;
use super::emit_limit::EmittedSize;
use super::mailbox::{Dispatch, ToSession};
use super::pages::Asked;
use super::queue::Inbox;
use super::store_writes::AGAIN;
use super::text_length::text_in_turn;
use super::ticks::wait_until;

/// How long a session waits for a write before it handles other messages. Local stores need a few milliseconds.
const GRACE: Duration = Duration::from_millis(50);
/// After this time, a change that a sender waits for is not written again. A webhook's caller waits for ten seconds.
const LAST_TRY: Duration = Duration::from_secs(5);
/// After this time, its sender is answered whether it is stored or not.
const ANSWER: Duration = Duration::from_secs(8);
/// How long after a failure what goes on in memory is written again.
const OWED: Duration = Duration::from_secs(5);
/// How often the end of a turn is written, at least two seconds apart.
const MOST_TRIES: usize = 100;

/// A chat as its subscribers have it while a change of it is being stored.
#[derive(Debug)]
pub(super) struct Before {
    /// The state without its turns.
    state: Box<ChatState>,
    /// The number of the chat's turns that it has.
    turns: usize,
    /// Whether the change starts or ends a turn; actions that the backend emits follow it.
    is_turn: bool,
}

impl Before {
    /// Applies an action that subscribers receive immediately.
    pub fn reduce(&mut self, action: &StateAction) {
        let _ = ahp::reducers::apply_action_to_chat(&mut self.state, action);
    }
}

impl Chat {
    /// Returns the chat's current state, before a change that has to be stored.
    pub fn before(&mut self, is_turn: bool) -> Before {
        let turns = std::mem::take(&mut self.state.turns);
        let state = long_work(self.text_without_turns(), || Box::new(self.state.clone()));
        self.state.turns = turns;
        Before { state, turns: self.state.turns.len(), is_turn }
    }

    /// Returns the subscribers' state of the chat, without its turns.
    pub fn without_turns(&mut self) -> ChatState {
        if let Some(before) = &self.unstored {
            return ChatState::clone(&before.state);
        }
        let turns = std::mem::take(&mut self.state.turns);
        let state = long_work(self.text_without_turns(), || self.state.clone());
        self.state.turns = turns;
        state
    }

    fn text_without_turns(&self) -> usize {
        let running = self.state.active_turn.as_ref();
        let waiting: usize = self.waiting.values().sum();
        waiting + running.map_or(0, |turn| text_in_turn(&turn.message, &turn.response_parts))
    }

    /// Returns the turns that subscribers may see.
    pub fn stored_turns(&self) -> &[Turn] {
        let known = self.unstored.as_ref().map_or(self.state.turns.len(), |before| before.turns);
        &self.state.turns[..known.min(self.state.turns.len())]
    }

    fn is_in_turn_change(&self) -> bool {
        self.unstored.as_ref().is_some_and(|before| before.is_turn)
    }
}

/// The outcome of one or several writes.
pub(super) trait Outcome {
    /// Whether everything was stored.
    fn is_stored(&self) -> bool;
}

/// A write whose failure changes nothing that clients see.
impl Outcome for () {
    fn is_stored(&self) -> bool {
        true
    }
}

impl Outcome for bool {
    fn is_stored(&self) -> bool {
        *self
    }
}

impl<T: Outcome> Outcome for Option<T> {
    fn is_stored(&self) -> bool {
        self.as_ref().is_none_or(Outcome::is_stored)
    }
}

impl<T: Outcome> Outcome for Vec<T> {
    fn is_stored(&self) -> bool {
        self.iter().all(Outcome::is_stored)
    }
}

impl<A: Outcome, B: Outcome> Outcome for (A, B) {
    fn is_stored(&self) -> bool {
        self.0.is_stored() && self.1.is_stored()
    }
}

impl<A: Outcome, B: Outcome, C: Outcome> Outcome for (A, B, C) {
    fn is_stored(&self) -> bool {
        self.0.is_stored() && self.1.is_stored() && self.2.is_stored()
    }
}

/// The subscribers' state of a session while a change of it is being stored.
#[derive(Debug, Default)]
pub(super) struct Storing {
    /// Whether the session handles other messages while it waits.
    pub is_serving: bool,
    /// Whether a change could not be stored, so that the state in memory is not the stored one.
    pub has_failed: bool,
    /// Whether a change of the handled message could not be stored and goes on in memory.
    pub is_unstored: bool,
    /// When what goes on in memory is written again; `None` if everything is stored.
    pub owed_at: Option<Instant>,
    /// The title that subscribers have.
    pub title: Option<String>,
    /// Whether more than the title changes, so that no snapshot of the session can be made.
    pub session: bool,
}

impl Actor {
    /// Waits until a change of a chat is stored.
    pub(super) async fn stored_in<T: Outcome>(
        &mut self,
        at: usize,
        before: Before,
        write: impl Future<Output = T> + Send,
    ) -> T {
        self.chats[at].unstored = Some(before);
        let number = self.chats[at].number;
        let stored = self.stored(write).await;
        if let Some(at) = self.chat_numbered(number) {
            self.chats[at].unstored = None;
        }
        stored
    }

    /// Waits until a change of the session itself is stored.
    pub(super) async fn stored_session<T: Outcome>(&mut self, write: impl Future<Output = T> + Send) -> T {
        self.storing.session = true;
        let stored = self.stored(write).await;
        self.storing.session = false;
        stored
    }

    /// As [`Self::stored_or_not`], for a change of the session itself.
    pub(super) async fn stored_session_or_not<T: Outcome>(
        &mut self,
        write: impl Future<Output = T> + Send,
    ) -> T {
        self.storing.session = true;
        let stored = self.stored_or_not(write).await;
        self.storing.session = false;
        stored
    }

    /// Waits until a change is stored, and writes it again for a while if that fails. After a delay, the session handles messages
    /// that need no store. A change that was not stored goes on in memory and is no echo of its sender, who is told that it is
    /// not stored; see D-303.
    pub(super) async fn stored<T: Outcome>(&mut self, write: impl Future<Output = T> + Send) -> T {
        let since = Instant::now();
        let stored = self.stored_or_not(write).await;
        if stored.is_stored() {
            boxed(self, |actor| actor.pay(since + ANSWER)).await;
        }
        if !stored.is_stored()
            && !self.storing.has_failed
            && !boxed(self, |actor| actor.stored_in_time(since)).await
        {
            self.storing.is_unstored = true;
            self.storing.owed_at = Some(Instant::now() + OWED);
            for (_, outgoing) in &mut self.out {
                outgoing.origin = None;
            }
        }
        stored
    }

    /// Waits until the end of a turn is stored, which nobody can ask for again.
    pub(super) async fn stored_end<T: Outcome>(
        &mut self,
        at: usize,
        before: Before,
        write: impl Future<Output = T> + Send,
    ) {
        self.chats[at].unstored = Some(before);
        let number = self.chats[at].number;
        let is_stored = self.stored_or_not(write).await.is_stored();
        if (!is_stored || self.storing.owed_at.is_some()) && !self.storing.has_failed {
            boxed(self, Self::stored_at_last).await;
        }
        if let Some(at) = self.chat_numbered(number) {
            self.chats[at].unstored = None;
        }
    }

    /// Waits for a store, for callers that take a change back that was not stored. In a cluster, a session whose change could
    /// not be stored publishes nothing more and leaves memory; see D-303.
    pub(super) async fn stored_or_not<T: Outcome>(&mut self, write: impl Future<Output = T> + Send) -> T {
        let stored = self.answered(std::pin::pin!(write)).await;
        if !stored.is_stored() && self.core.cluster().is_some() {
            self.not_stored();
        }
        stored
    }

    pub(super) fn not_stored(&mut self) {
        self.storing.has_failed = true;
        self.out.clear();
    }

    /// Writes again what the session has in memory, as long as a sender waits for an answer. Returns whether it is stored.
    async fn stored_in_time(&mut self, since: Instant) -> bool {
        for pause in AGAIN {
            if since.elapsed() + pause > LAST_TRY || self.core.lost_storage().is_some() {
                return false;
            }
            self.answered(std::pin::pin!(tokio::time::sleep(pause))).await;
            if self.store_all(since + ANSWER).await {
                return true;
            }
        }
        false
    }

    /// Writes again what the session has in memory until it is stored. While the host knows that nothing can be stored, it waits
    /// for the end of that. If the host stops, or the store takes nothing of this session for minutes, the session publishes
    /// nothing more and leaves memory, as in a cluster.
    async fn stored_at_last(&mut self) {
        for tried in 0..MOST_TRIES {
            let core = self.core.clone();
            let again = async move {
                tokio::time::sleep(AGAIN.get(tried).copied().unwrap_or(AGAIN[AGAIN.len() - 1])).await;
                core.can_store().await && !core.is_stopping()
            };
            if !self.answered(std::pin::pin!(again)).await {
                return self.not_stored();
            }
            if self.store_all(Instant::now() + 2 * limit::STORE).await {
                return;
            }
        }
        self.not_stored();
    }

    /// Returns an error for a request whose change is not stored.
    ///
    /// # Errors
    /// A retryable error; the change may go on in memory.
    pub(super) fn acknowledge(&self) -> Result<(), RpcError> {
        match self.storing.has_failed || self.storing.is_unstored {
            true => Err(try_again(NOT_STORED)),
            false => Ok(()),
        }
    }

    /// Writes again what goes on in memory. Returns whether everything is stored.
    pub(super) async fn pay(&mut self, limit: Instant) -> bool {
        if self.storing.owed_at.is_none() {
            return true;
        }
        let is_paid = self.core.lost_storage().is_none() && self.store_all(limit).await;
        if !is_paid {
            self.storing.owed_at = Some(Instant::now() + OWED);
        }
        is_paid
    }

    /// Stores everything that a change may have left unstored. A message that was queued leaves the stored queue after its
    /// turn is stored.
    async fn store_all(&mut self, limit: Instant) -> bool {
        let turns = tokio::time::timeout_at(limit, self.keep_ends_of_chats());
        if self.answered(std::pin::pin!(turns)).await != Ok(true) {
            return false;
        }
        let rest = tokio::time::timeout_at(limit, self.keep_all_but_turns());
        let is_stored = self.answered(std::pin::pin!(rest)).await == Ok(true);
        if is_stored {
            self.storing.owed_at = None;
        }
        is_stored
    }

    async fn answered<T>(&mut self, mut write: Pin<&mut (dyn Future<Output = T> + Send)>) -> T {
        if self.storing.is_serving || self.inbox.is_none() {
            return write.await;
        }
        if let Ok(stored) = tokio::time::timeout(GRACE, &mut write).await {
            return stored;
        }
        let Some(mut inbox) = self.inbox.take() else { return write.await };
        // The queued actions may be published only after the write has finished.
        let held = std::mem::take(&mut self.out);
        self.storing.is_serving = true;
        let stored = loop {
            self.serve(&mut inbox).await;
            tokio::select! {
                biased;
                stored = &mut write => break stored,
                () = inbox.arrive() => {}
                () = wait_until(self.next_gathered()) => {}
            }
        };
        self.flush_out();
        self.storing.is_serving = false;
        self.out = held;
        self.inbox = Some(inbox);
        stored
    }

    /// Returns when gathered text that may be published now is due.
    fn next_gathered(&self) -> Option<Instant> {
        let chats = self.chats.iter().filter(|chat| !chat.is_in_turn_change());
        chats.filter_map(|chat| chat.gathered.as_ref().map(|gathered| gathered.due)).min()
    }

    /// Handles the messages that need no store, each after the earlier messages of its sender.
    fn serve<'a>(&'a mut self, inbox: &'a mut Inbox) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if inbox.is_ending() {
                self.stop_backends();
            }
            if inbox.is_reviewing() {
                self.stop_refused();
            }
            let mut waiting: Vec<(ConnectionId, Option<Place>)> =
                self.again.iter().filter_map(|posted| sender_of(&posted.message)).collect();
            waiting.extend(inbox.priority_senders().into_iter().map(|connection| (connection, None)));
            let ready = inbox.take_where(|message| {
                let sender = sender_of(message);
                let is_watching = !matches!(message, ToSession::Dispatch(_));
                let is_behind = sender.as_ref().is_some_and(|(connection, place)| {
                    let mut earlier = waiting.iter().filter(|earlier| earlier.0 == *connection);
                    earlier.any(|earlier| !is_watching || earlier.1 == *place)
                });
                let served = !is_behind && self.needs_no_store(message);
                if !served {
                    waiting.extend(sender);
                }
                served
            });
            for posted in ready {
                let Some(posted) = self.held_back(posted) else { continue };
                let Some(posted) = self.waits_for_prepared(posted) else { continue };
                let Some(posted) = self.waits_for_room(posted) else { continue };
                self.handle_meanwhile(posted.message).await;
            }
            let mut emitted = EmittedSize::default();
            while let Some(posted) = inbox.next_emitted(|message| self.needs_no_store(message)) {
                emitted += posted.message.taken();
                let Some(posted) = self.held_back(posted) else { continue };
                if let Some(message) = self.stream(posted.message) {
                    self.handle_meanwhile(message).await;
                }
            }
            self.ahead.taken(emitted);
            let now = Instant::now();
            for at in 0..self.chats.len() {
                let chat = &self.chats[at];
                if !chat.is_in_turn_change()
                    && chat.gathered.as_ref().is_some_and(|gathered| gathered.due <= now)
                {
                    self.flush_gathered(at);
                }
            }
            self.flush_out();
        })
    }

    async fn handle_meanwhile(&mut self, message: ToSession) {
        match message {
            ToSession::Dispatch(dispatch) => {
                self.busy_at = Instant::now();
                // The action that is being stored keeps its own outcome.
                let is_unstored = std::mem::take(&mut self.storing.is_unstored);
                self.handle_dispatch(*dispatch).await;
                self.storing.is_unstored = is_unstored;
            }
            ToSession::Subscribe(subscription) => {
                self.busy_at = Instant::now();
                self.handle_subscribe(*subscription).await;
            }
            ToSession::FetchTurns { spelled, place, cursor, connection, responder, room } => {
                let asked = Asked { spelled: &spelled, place: &place, from: cursor.as_deref() };
                self.fetch_turns(asked, &connection, responder, room).await;
            }
            ToSession::Room { number, posted } => {
                self.no_longer_waits(number);
                if let Some(posted) = posted {
                    boxed(self, |actor| actor.handle_meanwhile(posted.message)).await;
                }
            }
            ToSession::Emit { chat, channel, action } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.handle_emit(at, channel, action).await;
                }
            }
            ToSession::WorkerEmit { chat, action } => {
                if let Some(at) = self.chat_numbered(chat) {
                    self.handle_emit(at, Emit::Chat, action).await;
                }
            }
            _ => {}
        }
    }

    /// Whether a message can be handled while a change is being stored.
    pub(super) fn needs_no_store(&self, message: &ToSession) -> bool {
        match message {
            ToSession::Dispatch(dispatch) => self.changes_no_store(dispatch),
            ToSession::Subscribe(subscription) => match &subscription.place {
                Place::Session => !self.storing.session,
                Place::Annotations => false,
                Place::DefaultChat | Place::Chat(_) => true,
            },
            ToSession::FetchTurns { .. } => true,
            ToSession::Room { posted: Some(posted), .. } => self.needs_no_store(&posted.message),
            ToSession::Emit { chat, channel, action } => self.emits_no_store(*chat, *channel, action),
            ToSession::WorkerEmit { chat, action } => self.emits_no_store(*chat, Emit::Chat, action),
            _ => false,
        }
    }

    fn changes_no_store(&self, dispatch: &Dispatch) -> bool {
        match dispatch.row.waits {
            Waits::ForStore => false,
            Waits::ForTurn => {
                !self.chat_at(&dispatch.place).is_some_and(|at| self.chats[at].is_in_turn_change())
            }
            Waits::Never => true,
        }
    }

    fn emits_no_store(&self, chat: u64, channel: Emit, action: &StateAction) -> bool {
        let in_turn_change = self.chat_numbered(chat).is_some_and(|at| self.chats[at].is_in_turn_change());
        let is_stored = match action {
            StateAction::ChatTurnStarted(_)
            | StateAction::ChatTurnComplete(_)
            | StateAction::ChatTurnCancelled(_)
            | StateAction::ChatError(_) => channel == Emit::Chat,
            StateAction::ChatUsage(_) => self.core.options.usage.per == UsagePer::Report,
            StateAction::SessionTitleChanged(_) => true,
            _ => false,
        };
        !in_turn_change && !is_stored
    }
}

/// Returns the connection that sent a message, and the place it is for.
fn sender_of(message: &ToSession) -> Option<(ConnectionId, Option<Place>)> {
    let connection = match message {
        ToSession::Dispatch(dispatch) => dispatch.connection.id,
        ToSession::Subscribe(subscription) => subscription.subscriber.connection,
        ToSession::FetchTurns { connection, .. } => connection.id,
        _ => return None,
    };
    Some((connection, message.place().cloned()))
}
