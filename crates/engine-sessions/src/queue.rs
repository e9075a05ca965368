//! The mailbox of a session: a queue with a priority lane.
//!
//! A cancellation, the disposal and the end of a session do not wait behind the actions that backends emitted. They
//! travel in the priority lane, which the actor checks before each message. Messages that a client sent before its
//! cancellation are still handled before it: the lane records how many requests were sent earlier, and the actor takes
//! those of the same client out of the queue. Emitted actions are queued separately, so that a cancellation does not
//! have to search them. See D-267.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ostler_engine_core::ids::ConnectionId;
use ostler_engine_core::lean_channel::{self, Receiver, Sender};
use ostler_protocol::actions::Class;
use parking_lot::Mutex;

use super::ToSession;
use super::actor::Actor;
use super::emit_limit::EmittedSize;

/// Maximum number of messages taken from the channel at a time.
pub(super) const BATCH: usize = 256;

/// A message in transit, boxed because it moves from one queue to the next.
#[derive(Debug)]
pub struct Posted {
    /// The message's number among the session's messages that no backend emitted, starting at 1; 0 for emitted ones.
    order: u64,
    /// The message's number among the messages taken from the channel.
    arrival: u64,
    pub message: ToSession,
}

/// The messages that are handled before all others.
#[derive(Debug, Default)]
struct Lane {
    /// The number of messages sent that no backend emitted.
    sent: AtomicU64,
    /// The number of messages in `waiting`.
    count: AtomicUsize,
    waiting: Mutex<VecDeque<Box<Posted>>>,
    /// The number of messages that the actor had taken from the channel and not handled when it last looked.
    taken: AtomicUsize,
}

/// The sending end of a session's mailbox.
#[derive(Debug, Clone)]
pub struct Mailbox {
    sender: Sender<Box<Posted>>,
    lane: Arc<Lane>,
}

/// The session has ended or is asleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotTaken;

impl Mailbox {
    pub fn open() -> (Self, Inbox) {
        let (sender, receiver) = lean_channel::channel();
        let lane = Arc::<Lane>::default();
        let inbox = Inbox {
            receiver,
            lane: lane.clone(),
            taken: Vec::new(),
            emitted: VecDeque::new(),
            other: VecDeque::new(),
            arrivals: 0,
        };
        (Self { sender, lane }, inbox)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The session has ended or is asleep.
    pub fn send(&self, message: ToSession) -> Result<(), NotTaken> {
        if message.is_emitted() {
            return self.post(0, message);
        }
        let order = self.lane.sent.fetch_add(1, Ordering::Relaxed) + 1;
        if !has_priority(&message) {
            return self.post(order, message);
        }
        self.lane.waiting.lock().push_back(Box::new(Posted { order, arrival: 0, message }));
        self.lane.count.fetch_add(1, Ordering::Release);
        let sent = self.post(0, ToSession::Priority);
        if sent.is_err() {
            // The mailbox has no reader any more; a pending answer is dropped with its message.
            self.lane.waiting.lock().clear();
        }
        sent
    }

    /// Returns about how many messages wait.
    pub fn waiting(&self) -> usize {
        self.sender.waiting() + self.lane.taken.load(Ordering::Relaxed)
    }

    fn post(&self, order: u64, message: ToSession) -> Result<(), NotTaken> {
        self.sender.send(Box::new(Posted { order, arrival: 0, message })).map_err(|_| NotTaken)
    }
}

/// Whether a message has priority.
fn has_priority(message: &ToSession) -> bool {
    match message {
        ToSession::Dispatch(dispatch) => dispatch.row.class == Class::Cancel,
        ToSession::Review
        | ToSession::Dispose { .. }
        | ToSession::Close { .. }
        | ToSession::Abandon { .. } => true,
        _ => false,
    }
}

/// The receiving end of a session's mailbox.
#[derive(Debug)]
pub struct Inbox {
    receiver: Receiver<Box<Posted>>,
    lane: Arc<Lane>,
    #[expect(clippy::vec_box, reason = "the channel fills it with what it holds")]
    taken: Vec<Box<Posted>>,
    /// Messages emitted by backends, except reports of usage.
    emitted: VecDeque<Box<Posted>>,
    /// All other messages. A cancellation can take messages out of this queue without searching the emitted ones.
    other: VecDeque<Box<Posted>>,
    arrivals: u64,
}

impl Inbox {
    /// Waits for a message. Returns false if there will be none.
    pub async fn ready(&mut self) -> bool {
        self.lane.taken.store(self.waiting(), Ordering::Relaxed);
        if self.waiting() > 0 {
            return true;
        }
        let count = self.receiver.recv_many(&mut self.taken, BATCH).await;
        let mut taken = std::mem::take(&mut self.taken);
        taken.drain(..).for_each(|posted| self.arrived(posted));
        self.taken = taken;
        self.lane.taken.store(self.waiting(), Ordering::Relaxed);
        count > 0
    }

    fn arrived(&mut self, mut posted: Box<Posted>) {
        posted.arrival = self.arrivals;
        self.arrivals += 1;
        match posted.message.is_emitted() && !posted.message.is_usage() {
            true => self.emitted.push_back(posted),
            false => self.other.push_back(posted),
        }
    }

    fn waiting(&self) -> usize {
        self.emitted.len() + self.other.len()
    }

    /// Returns the next message that has arrived, in order.
    pub fn next(&mut self) -> Option<Box<Posted>> {
        match (self.emitted.front(), self.other.front()) {
            (Some(emitted), Some(other)) if emitted.arrival < other.arrival => self.emitted.pop_front(),
            (Some(_), None) => self.emitted.pop_front(),
            _ => self.other.pop_front(),
        }
    }

    /// Returns the number of messages that a round handles.
    pub fn round(&self) -> usize {
        self.waiting().min(BATCH)
    }

    /// Whether the priority lane has a message.
    pub fn has_priority(&self) -> bool {
        self.lane.count.load(Ordering::Acquire) > 0
    }

    /// Returns the next message of the priority lane.
    pub fn next_priority(&mut self) -> Option<Box<Posted>> {
        let next = self.lane.waiting.lock().pop_front()?;
        self.lane.count.fetch_sub(1, Ordering::Release);
        Some(next)
    }

    /// Waits until a message arrives.
    pub async fn arrive(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        let count = self.receiver.recv_many(&mut taken, BATCH).await;
        taken.drain(..).for_each(|posted| self.arrived(posted));
        self.taken = taken;
        if count == 0 {
            std::future::pending::<()>().await;
        }
    }

    /// Takes the messages that match and that no backend emitted, out of order.
    pub fn take_where(&mut self, mut which: impl FnMut(&ToSession) -> bool) -> VecDeque<Box<Posted>> {
        self.pull();
        let (taken, rest) =
            std::mem::take(&mut self.other).into_iter().partition(|held| which(&held.message));
        self.other = rest;
        taken
    }

    /// Returns the first emitted message if it matches.
    pub fn next_emitted(&mut self, which: impl FnOnce(&ToSession) -> bool) -> Option<Box<Posted>> {
        self.emitted.front().filter(|posted| which(&posted.message))?;
        self.emitted.pop_front()
    }

    /// Whether the priority lane contains the end of the session.
    pub fn is_ending(&self) -> bool {
        let waiting = self.lane.waiting.lock();
        waiting.iter().any(|posted| !matches!(posted.message, ToSession::Dispatch(_) | ToSession::Review))
    }

    /// Whether the priority lane contains a review of the running turns.
    pub fn is_reviewing(&self) -> bool {
        self.lane.waiting.lock().iter().any(|posted| matches!(posted.message, ToSession::Review))
    }

    /// Returns the senders of the messages in the priority lane.
    pub fn priority_senders(&self) -> Vec<ConnectionId> {
        if !self.has_priority() {
            return Vec::new();
        }
        self.lane.waiting.lock().iter().filter_map(|posted| posted.message.dispatched_by()).collect()
    }

    /// Takes the messages that were sent before a message and have to be handled before it, although they are further
    /// back in the queue.
    pub fn sent_before(
        &mut self,
        posted: &Posted,
        goes_first: impl Fn(&ToSession) -> bool,
    ) -> VecDeque<Box<Posted>> {
        self.pull();
        let first = |held: &Posted| held.order < posted.order && goes_first(&held.message);
        let (before, rest) = std::mem::take(&mut self.other).into_iter().partition(|held| first(held));
        self.other = rest;
        before
    }

    /// Appends a message after everything that has arrived so far.
    pub fn put_last(&mut self, posted: Box<Posted>) {
        self.pull();
        self.arrived(posted);
    }

    /// Takes all messages that are currently in the channel.
    fn pull(&mut self) {
        for _ in 0..self.receiver.len() {
            let Some(posted) = self.receiver.try_recv() else { return };
            self.arrived(posted);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting() == 0 && self.receiver.is_empty() && !self.has_priority()
    }

    /// Stops accepting messages.
    pub fn close(&mut self) {
        self.receiver.close();
    }

    /// Takes any waiting message; the order of the lanes is not guaranteed.
    pub fn try_next(&mut self) -> Option<Box<Posted>> {
        self.next_priority().or_else(|| self.next()).or_else(|| self.receiver.try_recv())
    }

    /// Frees the memory of an idle session's queues.
    pub fn release(&mut self) {
        super::awake_limit::release(&mut self.taken);
        if self.waiting() == 0 {
            self.emitted = VecDeque::new();
            self.other = VecDeque::new();
        }
    }
}

impl Actor {
    /// Schedules the messages of the priority lane before all others, each preceded by the messages that have to be
    /// handled before it.
    pub(super) fn take_priority(&mut self, inbox: &mut Inbox) {
        while let Some(posted) = inbox.next_priority() {
            if let ToSession::Review = posted.message {
                // What may not run stops now, and ends in its turn.
                self.stop_refused();
                inbox.put_last(posted);
                continue;
            }
            let ToSession::Dispatch(cancel) = &posted.message else {
                // The session ends, so running turns are cancelled now. Earlier messages are still handled, so that
                // neither emitted actions nor requests are lost.
                self.stop_backends();
                inbox.put_last(posted);
                continue;
            };
            let connection = cancel.connection.id;
            // The sender's earlier messages, and the usage reported so far.
            let mut first = inbox.sent_before(&posted, |message| {
                message.dispatched_by() == Some(connection) || message.is_usage()
            });
            let mut usage = EmittedSize::default();
            first.iter().for_each(|held| usage += held.message.taken());
            self.ahead.taken(usage);
            first.push_back(posted);
            // Messages held back earlier come first.
            self.again.extend(first);
        }
    }

    /// Asks the backends of all running turns to cancel them.
    pub(super) fn stop_backends(&mut self) {
        for at in 0..self.chats.len() {
            // A worker's turn ends with the turn that spawned it.
            if let Some(turn) = self.chats[at].running().map(str::to_owned)
                && self.chats[at].backend.is_some()
            {
                self.cancel_backend(at, turn);
            }
        }
    }
}
