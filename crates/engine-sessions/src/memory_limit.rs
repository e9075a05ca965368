//! The memory limits of messages to a session. A large answer is built once the budget of its connection has room for
//! it. An action that enlarges the state is handled once the budget of all sessions has room for it. Messages wait for
//! room outside the mailbox; later messages of the same client to the same chat wait too.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ostler_contract::budget::SMALL;
use ostler_contract::{Budget, Charge, Value};
use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::refusals::no_memory;
use ostler_engine_core::tasks;
use ostler_protocol::RpcError;
use ostler_protocol::actions::Class;
use ostler_protocol::wire::actions::StateAction;
use ostler_protocol::wire::state::{Message, SessionActiveClient};

use super::SessionEntry;
use super::actor::Actor;
use super::chat::Chat;
use super::client_actions::{Refused, refuse};
use super::mailbox::{Dispatch, ToSession};
use super::pages::PAGE;
use super::prepare::Preparing;
use super::queue::Posted;
use super::size::{Extent, Size};
use super::snapshot_receiver::Snapshots;
use crate::Sessions;

/// Maximum number of sessions that are loaded from the store concurrently.
pub(super) const WAKING: usize = 4;
/// How long an action waits until idle sessions have freed enough memory for it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a waiting action asks idle sessions to sleep again.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long the answer to a connecting client waits for the memory of one snapshot before omitting it.
const COLLECT: Duration = Duration::from_secs(5);
/// How long any other answer waits for memory. A peer that reads nothing is disconnected earlier.
const ANSWER: Duration = Duration::from_secs(60);
/// The change of a session's size from which its charge is updated.
const STEP: usize = 4 * 1024;

/// The memory that a backend's name of a turn takes at most, with the turn's id.
const RECORDED: usize = 512;
/// Maximum number of queued messages in a chat.
const MOST_QUEUED: usize = 64;
/// Maximum total size of a chat's queued messages and draft; a change of one of them stores all.
const QUEUED_BYTES: usize = 8 * 1024 * 1024;
/// The same maximum for all chats of a session together.
const SESSION_QUEUED_BYTES: usize = 16 * 1024 * 1024;

/// Actions of clients that cannot enlarge the state significantly, regardless of their length.
const SMALLER: [&str; 10] = [
    "session/activeClientRemoved",
    "session/workingDirectoryRemoved",
    "session/isReadChanged",
    "session/isArchivedChanged",
    "chat/pendingMessageRemoved",
    "chat/isReadChanged",
    "chat/isArchivedChanged",
    "chat/truncated",
    "annotations/removed",
    "annotations/entryRemoved",
];
/// Actions that enlarge the state every time, regardless of their length.
const LARGER: [&str; 6] = [
    "chat/turnStarted",
    "chat/pendingMessageSet",
    "chat/draftChanged",
    "annotations/set",
    "annotations/updated",
    "annotations/entrySet",
];

/// The memory that the state of an awake session occupies.
#[derive(Debug)]
pub(super) struct Memory {
    /// The size of the session's own state.
    pub size: Size,
    /// The length of the annotations as JSON, if known.
    pub annotations: usize,
    charge: Charge,
}

impl Memory {
    pub fn new(budget: &Budget) -> Self {
        Self { size: Size::default(), annotations: 0, charge: budget.take_anyway(0) }
    }
}

/// The resource that a message has to wait for.
enum Needs {
    /// Memory for the answer.
    Answer { budget: Budget, bytes: usize, connection: ConnectionId, is_collected: bool },
    /// Memory for what it adds to the state.
    State { bytes: usize, connection: ConnectionId },
}

impl Sessions {
    /// Whether the states of all sessions use up their budget.
    fn is_full(&self) -> bool {
        self.limits.states.used() >= self.limits.states.largest()
    }

    /// Waits until there is memory for an addition to a session's state, asking idle sessions to sleep.
    async fn room_for_state(&self, bytes: usize) -> Result<Charge, String> {
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some(charge) = self.limits.states.try_take(bytes) {
                return Ok(charge);
            }
            let asked = self.rest_for_memory(bytes);
            if asked == 0 || tokio::time::Instant::now() >= end {
                return Err(self.no_memory());
            }
            let _ = tokio::time::timeout(ASK_AGAIN, self.limits.states.changed()).await;
        }
    }

    /// Waits until there is memory for the client that creates a session.
    ///
    /// # Errors
    /// There is not enough memory: the client's data is large, and the other sessions run turns or have subscribers.
    pub(super) async fn room_for_client(
        &self,
        client: Option<&SessionActiveClient>,
    ) -> Result<Option<Charge>, RpcError> {
        let bytes = client.map_or(0, |client| Extent::of(client).memory());
        match bytes > SMALL {
            true => self.room_for_state(bytes).await.map(Some).map_err(RpcError::internal),
            false => Ok(None),
        }
    }

    fn no_memory(&self) -> String {
        let most = self.limits.states.limit() >> 20;
        format!(
            "the states of the sessions at work take as much memory as limits.sessionMemoryMb allows ({most} MiB); end or \
             leave a session, or shorten this one, then try again"
        )
    }

    /// Waits until a waking session may load its state into memory.
    ///
    /// # Errors
    /// The sessions in memory run turns or have subscribers, and use up the budget.
    pub(super) async fn room_to_wake(&self) -> Result<(), RpcError> {
        if !self.is_full() {
            return Ok(());
        }
        match self.room_for_state(SMALL + 1).await {
            Ok(_) => Ok(()),
            Err(why) => Err(RpcError::internal(why)),
        }
    }

    /// Asks idle sessions to sleep, the least recently changed first, until they free a number of bytes. Returns how
    /// many were asked.
    fn rest_for_memory(&self, bytes: usize) -> usize {
        let surplus = (self.limits.states.used() + bytes).saturating_sub(self.limits.states.largest());
        let mut freed = 0;
        let enough = |entry: &SessionEntry| {
            let more = freed < surplus;
            freed += entry.memory.load(Ordering::Relaxed);
            more
        };
        // If another call is asking, some sessions may sleep soon.
        self.rest_idle(enough).unwrap_or(1)
    }
}

impl Actor {
    /// Holds a message back until there is memory for it; returns a message that need not wait.
    pub(super) fn waits_for_room(&mut self, mut posted: Box<Posted>) -> Option<Box<Posted>> {
        let Some(needs) = self.needs(&mut posted.message) else { return Some(posted) };
        let (Needs::Answer { connection, .. } | Needs::State { connection, .. }) = &needs;
        let number = self.next_preparation;
        self.next_preparation += 1;
        let place = posted.message.place();
        let chat = place.and_then(|place| self.chat_at(place)).map(|at| self.chats[at].number);
        self.preparing.push(Preparing {
            number,
            connection: *connection,
            chat,
            is_question: matches!(needs, Needs::Answer { .. }),
            waiting: Vec::new(),
        });
        let (sessions, mailbox) = (self.sessions.clone(), self.mailbox.clone());
        tasks::spawn(async move {
            let has_room = match needs {
                Needs::Answer { budget, bytes, is_collected, .. } => {
                    // The parts of one answer could otherwise wait for each other.
                    let patience = if is_collected { COLLECT } else { ANSWER };
                    let charge = tokio::time::timeout(patience, budget.take(bytes)).await;
                    let is_late = charge.is_err();
                    let charge = charge.ok().flatten();
                    let has_room = charge.is_some();
                    match &mut posted.message {
                        ToSession::Subscribe(subscription) => subscription.room = charge,
                        ToSession::FetchTurns { room, .. } => *room = charge,
                        _ => {}
                    }
                    if is_late {
                        let _ = mailbox.send(ToSession::Room { number, posted: None });
                        return too_late(posted.message);
                    }
                    has_room
                }
                Needs::State { bytes, .. } => {
                    let room = sessions.room_for_state(bytes).await;
                    if let ToSession::Dispatch(dispatch) = &mut posted.message {
                        dispatch.room = Some(room.map(Arc::new));
                    }
                    true
                }
            };
            // If there is no room for the answer, its connection has closed.
            let _ = mailbox.send(ToSession::Room { number, posted: has_room.then_some(posted) });
        });
        None
    }

    /// Returns the resource that a message has to wait for. Available memory is charged immediately.
    fn needs(&mut self, message: &mut ToSession) -> Option<Needs> {
        match message {
            ToSession::Subscribe(asked) if asked.room.is_none() => {
                let length = self.snapshot_length(&asked.place, asked.turns);
                (length > SMALL).then(|| Needs::Answer {
                    budget: asked.subscriber.outbox.budget().clone(),
                    bytes: length,
                    connection: asked.subscriber.connection,
                    is_collected: matches!(asked.answer, Snapshots::Collect(_)),
                })
            }
            ToSession::FetchTurns { room: None, connection, place, .. } => {
                let at = self.chat_at(place)?;
                if !self.core.fanout.is_watched_by(&self.chats[at].uri, connection.id) {
                    return None;
                }
                let length = self.chats[at].length(Some(PAGE));
                (length > SMALL).then(|| Needs::Answer {
                    budget: connection.outbox.budget().clone(),
                    // The frame and the transport's encoding of it.
                    bytes: 2 * length,
                    connection: connection.id,
                    is_collected: false,
                })
            }
            ToSession::Dispatch(dispatch) if dispatch.room.is_none() && may_enlarge(dispatch) => {
                let bytes = dispatch.length;
                match self.sessions.limits.states.try_take(bytes) {
                    Some(charge) => {
                        dispatch.room = Some(Ok(Arc::new(charge)));
                        None
                    }
                    None => Some(Needs::State { bytes, connection: dispatch.connection.id }),
                }
            }
            _ => None,
        }
    }

    /// Schedules a message that now has its memory, followed by the messages that waited for it.
    pub(super) fn has_room(&mut self, number: u64, posted: Option<Box<Posted>>) {
        self.no_longer_waits(number);
        if let Some(posted) = posted {
            self.again.push_front(posted);
        }
    }

    /// Schedules the messages that waited for a message.
    pub(super) fn no_longer_waits(&mut self, number: u64) {
        let at = self.preparing.iter().position(|preparing| preparing.number == number);
        let waiting = at.map(|at| self.preparing.remove(at).waiting).unwrap_or_default();
        for posted in waiting.into_iter().rev() {
            self.again.push_front(posted);
        }
    }

    /// Charges the current size of the session's state.
    pub(super) fn account(&mut self) {
        let bytes = self.measure();
        let before = self.memory.charge.bytes();
        if bytes.abs_diff(before) < STEP {
            return;
        }
        self.memory.charge.set(bytes);
        self.entry.memory.store(bytes, Ordering::Relaxed);
        if bytes > before && self.sessions.is_full() {
            self.sessions.rest_for_memory(0);
        }
    }

    /// Returns an upper bound of the memory of the session's state.
    pub(super) fn measure(&mut self) -> usize {
        let own = self.memory.size.at_most(&self.state).memory() + 2 * self.memory.annotations;
        let of_chat = |chat: &mut Chat| {
            let beside = chat.context.as_ref().map_or(0, String::len) + chat.recorded.len() * RECORDED;
            chat.size.at_most(&chat.state).memory() + beside
        };
        own + self.chats.iter_mut().map(of_chat).sum::<usize>()
    }

    /// Checks whether a chat may have another waiting message: a queued one, or the draft, which has no id. The message
    /// replaces the previous one with the same id.
    pub(super) fn may_wait(&mut self, at: usize, id: Option<&str>, message: &Message) -> Refused {
        let more = weight(message);
        let chat = &mut self.chats[at];
        let count = chat.waits().filter(|(held, _)| held.is_some() && *held != id).count();
        if id.is_some() && count >= MOST_QUEUED {
            return refuse(format!(
                "{count} messages wait in this chat, which is the limit; remove one, or wait for a turn"
            ));
        }
        let bytes = chat.waiting_except(Some(id)) + more;
        if bytes > QUEUED_BYTES {
            return refuse(too_much("chat", QUEUED_BYTES));
        }
        let others = self.chats.iter_mut().enumerate().filter(|(other, _)| *other != at);
        let others: usize = others.map(|(_, chat)| chat.waiting_except(None)).sum();
        if others + bytes > SESSION_QUEUED_BYTES {
            return refuse(too_much("session", SESSION_QUEUED_BYTES));
        }
        self.chats[at].waiting.insert(id.map(str::to_owned), more);
        Ok(())
    }
}

fn too_much(of: &str, most: usize) -> String {
    let most = most >> 20;
    format!("the queued messages and drafts of this {of} exceed {most} MiB; remove one, or wait for a turn")
}

impl Chat {
    /// Returns the chat's pending messages by id, and its draft.
    fn waits(&self) -> impl Iterator<Item = (Option<&str>, &Message)> {
        let queued =
            self.state.queued_messages.iter().flatten().chain(self.steering.iter().map(|(_, held)| held));
        let queued = queued.map(|held| (Some(held.id.as_str()), &held.message));
        queued.chain(self.state.draft.iter().map(|draft| (None, draft)))
    }

    /// Returns their total size in bytes, without the message with a given id.
    fn waiting_except(&mut self, id: Option<Option<&str>>) -> usize {
        let mut known = std::mem::take(&mut self.waiting);
        let mut waiting = HashMap::new();
        let mut bytes = 0;
        for (held, message) in self.waits() {
            let held_id = held.map(str::to_owned);
            let weight = known.remove(&held_id).unwrap_or_else(|| weight(message));
            waiting.insert(held_id, weight);
            if id != Some(held) {
                bytes += weight;
            }
        }
        self.waiting = waiting;
        bytes
    }

    /// Returns the number of bytes that an action removes from the chat.
    pub(super) fn removed_by(&self, action: &StateAction) -> usize {
        let of = |id: Option<&str>| {
            let held = self.waits().find(|(held, _)| *held == id);
            held.map_or(0, |(_, message)| message.text.len())
        };
        match action {
            StateAction::ChatDraftChanged(_) => of(None),
            StateAction::ChatPendingMessageSet(set) => of(Some(&set.id)),
            StateAction::ChatPendingMessageRemoved(removed) => of(Some(&removed.id)),
            _ => 0,
        }
    }
}

/// Rejects a request for which there was no memory in time.
fn too_late(message: ToSession) {
    match message {
        ToSession::Subscribe(subscription) => subscription.answer.fail(no_memory()),
        ToSession::FetchTurns { responder, .. } => responder.fail(no_memory()),
        _ => {}
    }
}

/// Returns the size of a message in bytes.
fn weight(message: &Message) -> usize {
    message.text.len() + Extent::of(&(&message.attachments, &message.meta)).memory()
}

/// Whether an action may enlarge the state significantly.
fn may_enlarge(dispatch: &Dispatch) -> bool {
    let name = dispatch.row.name;
    if name == "chat/draftChanged" && dispatch.action.get("draft").is_none_or(Value::is_null) {
        return false;
    }
    let is_long = dispatch.length > SMALL && !SMALLER.contains(&name);
    dispatch.row.class != Class::Cancel && (is_long || LARGER.contains(&name))
}

impl SessionEntry {
    /// Records that the session's state is no longer in memory.
    pub(super) fn forgets_memory(&self) {
        self.memory.store(0, Ordering::Relaxed);
    }
}
