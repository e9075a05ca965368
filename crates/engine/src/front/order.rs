//! The order of a connection's messages.
//!
//! A message about sessions in memory is handled when it arrives. One that needs the session store waits here until the
//! store has answered, together with later messages that must be handled after it: those about the same session, and
//! those that also need the store. Everything else continues. See D-290.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use ostler_contract::points::NamedMethod;
use ostler_contract::read::{Read, Unknown};
use ostler_contract::registry::Owned;
use ostler_contract::{Charge, JsonObject, Value};
use ostler_engine_core::refusals::unread;
use ostler_engine_core::responder::Responder;
use ostler_engine_core::tasks;
use ostler_engine_sessions::SessionEntry;
use ostler_protocol::commands::{Command, DispatchAction};
use ostler_protocol::message::Params;
use ostler_protocol::uri::{self, SessionOf};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{Instrument, Span};

use crate::front::Front;
use crate::front::commands::subject;
use crate::front::connection::Connection;

/// The maximum number of waiting messages of a connection, at which its next message is not read.
const MOST: usize = 128;
/// The action that ends a turn.
const CANCEL: &str = "chat/turnCancelled";

/// A message to handle.
pub(super) enum Work {
    /// A request.
    Command { command: Command, responder: Responder, span: Span },
    /// A request that a plugin answers.
    Plugin { command: Owned<NamedMethod>, params: Params, responder: Responder },
    /// A dispatched action, and the length of its text.
    Dispatch { dispatch: DispatchAction, length: usize },
    /// A subscription ends.
    Unsubscribe { channel: String },
}

/// The result of the session store for a message.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// The sessions of the message, which stay in memory as long as this exists.
    _held: Vec<Arc<SessionEntry>>,
    /// Why it is unknown what the store has of the message's sessions.
    pub unknown: Option<Unknown>,
}

impl Prepared {
    fn of(held: Read<Vec<Arc<SessionEntry>>>) -> Self {
        match held {
            Read::Known(held) => Self { _held: held, unknown: None },
            Read::Unknown(why) => Self { _held: Vec::new(), unknown: Some(why) },
        }
    }
}

/// The messages that a message can overtake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// Those about other sessions.
    Session,
    /// `createSession`: those about other sessions, known or not.
    Creates,
    /// A cancellation: those about other sessions, and requests about other channels.
    Cancels,
    /// All except the `createSession` of its session: it runs on its own task.
    Spawned,
    /// None, and only spawned ones overtake it: `initialize` and `reconnect`.
    Enter,
    /// None, and none overtake it: messages that change the identity of the connection.
    Alone,
}

/// The subject of a message.
#[derive(Debug)]
struct About {
    rank: Rank,
    is_request: bool,
    channels: Vec<String>,
}

/// Returns the session of a channel, as far as it is known without the store.
#[derive(Debug, PartialEq, Eq)]
struct Of {
    session: Option<String>,
    is_certain: bool,
}

fn of(front: &Front, spelled: &str) -> Of {
    let sessions = &front.sessions;
    let channel = sessions.channel(spelled);
    let id = match channel.session() {
        SessionOf::Id(id) => id,
        SessionOf::Chat(chat) => match sessions.session_of_chat(chat) {
            Some(entry) => return Of { session: Some(entry.id.clone()), is_certain: true },
            None => {
                let session = uri::old_default_chat(chat).map(str::to_owned);
                return Of { session, is_certain: false };
            }
        },
        SessionOf::None => return Of { session: None, is_certain: true },
    };
    // The URI of a session can also be that of a chat, which only the store knows.
    let is_certain = sessions.get(id).is_some();
    Of { session: Some(id.to_owned()), is_certain }
}

impl About {
    fn new(work: &Work) -> Self {
        let owned = |channels: Vec<&str>| channels.into_iter().map(str::to_owned).collect();
        match work {
            Work::Command { command, .. } => {
                let subject = subject(command);
                Self { rank: subject.rank, is_request: true, channels: owned(subject.concerned()) }
            }
            Work::Plugin { command, params, .. } => {
                let params = params.decode::<JsonObject>(&command.name).unwrap_or_default();
                let channel = params.get("channel").and_then(Value::as_str);
                Self { rank: Rank::Spawned, is_request: true, channels: owned(channel.into_iter().collect()) }
            }
            Work::Dispatch { dispatch, .. } => {
                let cancels = dispatch.action.get("type").and_then(Value::as_str) == Some(CANCEL);
                let channels = [Some(dispatch.channel.as_str()), claimed_session(dispatch)];
                Self {
                    rank: if cancels { Rank::Cancels } else { Rank::Session },
                    is_request: false,
                    channels: owned(channels.into_iter().flatten().collect()),
                }
            }
            Work::Unsubscribe { channel } => {
                Self { rank: Rank::Session, is_request: false, channels: vec![channel.clone()] }
            }
        }
    }

    /// Returns the sessions of its channels, as far as they are known now.
    fn of(&self, front: &Front) -> Vec<Of> {
        self.channels.iter().map(|channel| of(front, channel)).collect()
    }
}

/// A message with its current subject.
struct Sorted<'a>(&'a About, Vec<Of>);

impl Sorted<'_> {
    /// Returns whether a later message has to wait for this one.
    fn holds_back(&self, later: &Self) -> bool {
        let Self(own, own_of) = self;
        let Self(other, other_of) = later;
        let same_channel = || own.channels.iter().any(|channel| other.channels.contains(channel));
        let same_session = || {
            own_of
                .iter()
                .any(|one| one.session.is_some() && other_of.iter().any(|of| of.session == one.session))
        };
        // The store has not reported yet which of them are of the same session.
        let both_open = || {
            let open = |of: &[Of]| of.iter().any(|of| !of.is_certain);
            open(own_of) && open(other_of)
        };
        match (own.rank, other.rank) {
            (Rank::Alone, _) | (_, Rank::Alone) => true,
            (Rank::Creates, Rank::Spawned) => same_channel() || same_session(),
            (_, Rank::Spawned) | (Rank::Spawned, _) => false,
            (Rank::Enter, _) | (_, Rank::Enter) => true,
            (Rank::Creates, _) | (_, Rank::Creates) => same_channel() || same_session(),
            (_, Rank::Cancels) if own.is_request => same_channel() || both_open(),
            _ => same_channel() || same_session() || both_open(),
        }
    }
}

/// The session for which a terminal is claimed.
pub(super) fn claimed_session(dispatch: &DispatchAction) -> Option<&str> {
    dispatch.action.get("claim").and_then(|claim| claim.get("session")?.as_str())
}

/// A waiting message.
struct Waiting {
    number: u64,
    about: About,
    /// `None` while it is being handled.
    work: Option<Work>,
    store: Store,
    _charges: [Option<Charge>; 2],
}

/// The request to the store for a waiting message.
enum Store {
    /// None yet: whether an id is taken is requested once no message is before this one.
    ToAsk,
    Asked,
    Answered(Prepared),
}

/// The waiting messages of a connection.
#[derive(Default)]
pub(super) struct Order {
    count: AtomicUsize,
    state: Mutex<OrderState>,
    /// Notified when a message was handled.
    room: Notify,
}

#[derive(Default)]
struct OrderState {
    next: u64,
    waiting: VecDeque<Waiting>,
}

impl std::fmt::Debug for Order {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Order").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Order {
    /// Returns whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Waits until there is room for another message.
    async fn has_room(&self) {
        while self.count.load(Ordering::Acquire) >= MOST {
            self.room.notified().await;
        }
    }

    /// Adds a message after all others; returns its number.
    fn add(&self, work: Work, store: Store, charges: [Option<Charge>; 2]) -> u64 {
        let about = About::new(&work);
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.waiting.push_back(Waiting { number, about, work: Some(work), store, _charges: charges });
        self.count.store(state.waiting.len(), Ordering::Release);
        number
    }

    fn answered(&self, number: u64, prepared: Prepared) {
        let mut state = self.state.lock();
        if let Some(waiting) = state.waiting.iter_mut().find(|waiting| waiting.number == number) {
            waiting.store = Store::Answered(prepared);
        }
    }

    /// Removes a message that was handled.
    fn remove(&self, number: u64) {
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| waiting.number != number);
        if state.waiting.is_empty() {
            state.waiting = VecDeque::new();
        }
        self.count.store(state.waiting.len(), Ordering::Release);
        drop(state);
        self.room.notify_one();
    }
}

/// The next step for a waiting message.
enum Next {
    Perform(u64, Work, Prepared),
    Ask(u64, BoxFuture<'static, Prepared>),
}

impl Connection {
    /// Handles a message now, or when its turn comes.
    pub(super) async fn take(self: &Arc<Self>, work: Work, charge: Option<Charge>) {
        if !self.order.is_empty() {
            self.order.has_room().await;
        }
        let is_first = self.order.is_empty();
        let work = match work {
            // After a waiting `authenticate`, the identity of the connection can differ.
            Work::Command { command, responder, span } if is_first => match self.admit(&command.needs()) {
                Ok(()) => Work::Command { command, responder, span },
                Err(refused) => return responder.fail(refused),
            },
            work => work,
        };
        let length = match &work {
            Work::Dispatch { length, .. } => *length,
            _ => 0,
        };
        let charges = |connection: &Self| [charge, connection.charge_copies(length, 1)];
        // An id that is free now can be taken when the message's turn comes.
        let asks_in_turn =
            || matches!(&work, Work::Command { command, .. } if subject(command).created().is_some());
        if !is_first && asks_in_turn() {
            self.order.add(work, Store::ToAsk, charges(self));
            return self.advance();
        }
        let mut asked = match self.prepare(&work) {
            Ok(prepared) if is_first => return self.perform(work, prepared),
            Ok(prepared) => {
                self.order.add(work, Store::Answered(prepared), charges(self));
                return self.advance();
            }
            Err(asked) => asked,
        };
        match asked.as_mut().now_or_never() {
            Some(prepared) if is_first => self.perform(work, prepared),
            Some(prepared) => {
                self.order.add(work, Store::Answered(prepared), charges(self));
                self.advance();
            }
            None => {
                let number = self.order.add(work, Store::Asked, charges(self));
                self.await_store(number, asked);
            }
        }
    }

    fn await_store(self: &Arc<Self>, number: u64, asked: BoxFuture<'static, Prepared>) {
        let connection = self.clone();
        tasks::spawn(async move {
            let prepared = asked.await;
            connection.order.answered(number, prepared);
            connection.advance();
        });
    }

    /// Handles the waiting messages whose turn has come.
    fn advance(self: &Arc<Self>) {
        while let Some(next) = self.next_waiting() {
            match next {
                Next::Perform(number, work, prepared) => {
                    self.perform_later(work, prepared);
                    self.order.remove(number);
                }
                Next::Ask(number, asked) => self.await_store(number, asked),
            }
        }
    }

    fn next_waiting(&self) -> Option<Next> {
        let mut state = self.order.state.lock();
        let waiting = &state.waiting;
        let sorted: Vec<_> =
            waiting.iter().map(|waiting| Sorted(&waiting.about, waiting.about.of(self.front()))).collect();
        let at = (0..waiting.len()).find(|&at| {
            waiting[at].work.is_some()
                && !matches!(waiting[at].store, Store::Asked)
                && !sorted[..at].iter().any(|earlier| earlier.holds_back(&sorted[at]))
        })?;
        drop(sorted);
        let next = &mut state.waiting[at];
        match std::mem::replace(&mut next.store, Store::Asked) {
            // It keeps its position until it is handled.
            Store::Answered(prepared) => Some(Next::Perform(next.number, next.work.take()?, prepared)),
            _ => match self.prepare(next.work.as_ref()?) {
                Ok(prepared) => Some(Next::Perform(next.number, next.work.take()?, prepared)),
                Err(asked) => Some(Next::Ask(next.number, asked)),
            },
        }
    }

    /// Returns what a message needs from the session store, from memory or as a request.
    fn prepare(&self, work: &Work) -> Result<Prepared, BoxFuture<'static, Prepared>> {
        let sessions = &self.front().sessions;
        let (channels, span) = match work {
            Work::Command { command, span, .. } => {
                let subject = subject(command);
                if let Some(channel) = subject.created() {
                    return self.prepare_new(channel, span);
                }
                (subject.loaded, span.clone())
            }
            Work::Dispatch { dispatch, .. } => {
                let channels = [Some(dispatch.channel.as_str()), claimed_session(dispatch)];
                (channels.into_iter().flatten().collect(), Span::none())
            }
            Work::Plugin { .. } | Work::Unsubscribe { .. } => return Ok(Prepared::default()),
        };
        let at_hand: Result<Vec<_>, _> = channels.iter().map(|channel| sessions.at_hand(channel)).collect();
        if let Ok(held) = at_hand {
            return Ok(Prepared::of(Read::Known(held.into_iter().flatten().collect())));
        }
        let channels: Vec<String> = channels.into_iter().map(str::to_owned).collect();
        let sessions = sessions.clone();
        let asked = async move {
            let channels: Vec<&str> = channels.iter().map(String::as_str).collect();
            Prepared::of(sessions.load_channels(&channels).await)
        };
        Err(Box::pin(asked.instrument(span)))
    }

    /// Returns what the command needs that creates a session.
    fn prepare_new(&self, channel: &str, span: &Span) -> Result<Prepared, BoxFuture<'static, Prepared>> {
        let sessions = &self.front().sessions;
        let Some(id) = uri::session_id(channel).filter(|_| !sessions.holds_all()) else {
            return Ok(Prepared::default());
        };
        let (sessions, id) = (sessions.clone(), id.to_owned());
        let asked =
            async move { Prepared::of(sessions.session(&id).await.map(|taken| taken.into_iter().collect())) };
        Err(Box::pin(asked.instrument(span.clone())))
    }

    /// Handles a message that waited; the identity of the connection can have changed in the meantime.
    fn perform_later(self: &Arc<Self>, work: Work, prepared: Prepared) {
        if let Work::Command { command, responder, span } = work {
            // A subscription of a closed connection would never end.
            if subject(&command).subscribes && self.is_closed() {
                return;
            }
            return match self.admit(&command.needs()) {
                Ok(()) => self.perform(Work::Command { command, responder, span }, prepared),
                Err(refused) => responder.fail(refused),
            };
        }
        self.perform(work, prepared);
    }

    fn perform(self: &Arc<Self>, work: Work, prepared: Prepared) {
        match work {
            Work::Command { command, responder, span } => {
                // The one that creates a session says it in its own words.
                if let Some(why) = prepared.unknown.as_ref().filter(|_| subject(&command).created().is_none())
                {
                    let channel = subject(&command).loaded.first().copied().unwrap_or_default();
                    return responder.fail(unread(channel, why));
                }
                span.in_scope(|| self.handle(command, prepared, responder));
            }
            Work::Plugin { command, params, responder } => {
                self.handle_plugin_command(command, &params, responder);
            }
            Work::Dispatch { dispatch, length } => {
                if let Some(why) = &prepared.unknown {
                    return self.refuse_dispatch(&dispatch, &unread(&dispatch.channel, why));
                }
                self.handle_dispatch(dispatch, length);
            }
            Work::Unsubscribe { channel } => self.handle_unsubscribe(&channel),
        }
    }
}
