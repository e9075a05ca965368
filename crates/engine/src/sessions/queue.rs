//! The mailbox of a session: a queue with a priority lane.
//!
//! A cancellation, the disposal and the end of a session do not wait behind what backends emitted. They travel in the
//! priority lane, which the actor looks into before each message. What a client sent before its cancellation is still
//! handled before it: the lane records how many requests were sent earlier, and the actor takes those of the same client
//! out of the queue. What was emitted is queued apart from everything else, so that a cancellation does not go through
//! it. See D-267.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ostler_protocol::actions::Class;
use parking_lot::Mutex;

use super::ToSession;
use super::actor::Actor;
use super::emit_limit::EmittedSize;
use crate::core::ids::ConnectionId;
use crate::core::lean_channel::{self, Receiver, Sender};

/// How many messages are taken out of the channel at once.
pub(super) const BATCH: usize = 256;

/// A message on its way, boxed: it moves from one queue to the next.
#[derive(Debug)]
pub struct Posted {
    /// Its number among the messages of the session that no backend emitted, from 1; 0 for an emitted one.
    order: u64,
    /// Its number among the messages that were taken out of the channel.
    arrival: u64,
    /// The message.
    pub message: ToSession,
}

/// The messages that are taken before all others.
#[derive(Debug, Default)]
struct Lane {
    /// How many messages were sent that no backend emitted.
    sent: AtomicU64,
    /// How many are in `waiting`.
    count: AtomicUsize,
    waiting: Mutex<VecDeque<Box<Posted>>>,
}

/// The sending end of a session's mailbox.
#[derive(Debug, Clone)]
pub struct Mailbox {
    sender: Sender<Box<Posted>>,
    lane: Arc<Lane>,
}

/// The session has ended or sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotTaken;

impl Mailbox {
    /// Opens a mailbox.
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
    /// The session has ended or sleeps.
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
            // Nothing reads it any more; a waiting answer is dropped with it.
            self.lane.waiting.lock().clear();
        }
        sent
    }

    fn post(&self, order: u64, message: ToSession) -> Result<(), NotTaken> {
        self.sender.send(Box::new(Posted { order, arrival: 0, message })).map_err(|_| NotTaken)
    }
}

/// Whether a message is taken before others.
fn has_priority(message: &ToSession) -> bool {
    match message {
        ToSession::Dispatch(dispatch) => dispatch.row.class == Class::Cancel,
        ToSession::Dispose { .. } | ToSession::Close { .. } => true,
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
    /// What backends emitted, without reports of usage.
    emitted: VecDeque<Box<Posted>>,
    /// All other messages: what a cancellation may take out of its place, without a look at what was emitted.
    other: VecDeque<Box<Posted>>,
    arrivals: u64,
}

impl Inbox {
    /// Waits for a message; answers whether there will be one.
    pub async fn ready(&mut self) -> bool {
        if self.waiting() > 0 {
            return true;
        }
        let count = self.receiver.recv_many(&mut self.taken, BATCH).await;
        let mut taken = std::mem::take(&mut self.taken);
        taken.drain(..).for_each(|posted| self.arrived(posted));
        self.taken = taken;
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

    /// The next message that has come already, in order.
    pub fn next(&mut self) -> Option<Box<Posted>> {
        match (self.emitted.front(), self.other.front()) {
            (Some(emitted), Some(other)) if emitted.arrival < other.arrival => self.emitted.pop_front(),
            (Some(_), None) => self.emitted.pop_front(),
            _ => self.other.pop_front(),
        }
    }

    /// How many messages a round takes.
    pub fn round(&self) -> usize {
        self.waiting().min(BATCH)
    }

    /// Whether the priority lane has a message.
    pub fn has_priority(&self) -> bool {
        self.lane.count.load(Ordering::Acquire) > 0
    }

    /// The next message of the priority lane.
    pub fn next_priority(&mut self) -> Option<Box<Posted>> {
        let next = self.lane.waiting.lock().pop_front()?;
        self.lane.count.fetch_sub(1, Ordering::Release);
        Some(next)
    }

    /// Waits until something comes.
    pub async fn arrive(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        let count = self.receiver.recv_many(&mut taken, BATCH).await;
        taken.drain(..).for_each(|posted| self.arrived(posted));
        self.taken = taken;
        if count == 0 {
            std::future::pending::<()>().await;
        }
    }

    /// Takes the messages of a kind that no backend emitted, out of their place.
    pub fn take_where(&mut self, mut which: impl FnMut(&ToSession) -> bool) -> VecDeque<Box<Posted>> {
        self.pull();
        let (taken, rest) =
            std::mem::take(&mut self.other).into_iter().partition(|held| which(&held.message));
        self.other = rest;
        taken
    }

    /// The emitted message that came first, if it is of a kind.
    pub fn next_emitted(&mut self, which: impl FnOnce(&ToSession) -> bool) -> Option<Box<Posted>> {
        self.emitted.front().filter(|posted| which(&posted.message))?;
        self.emitted.pop_front()
    }

    /// Whether the priority lane has the end of the session.
    pub fn is_ending(&self) -> bool {
        let waiting = self.lane.waiting.lock();
        waiting.iter().any(|posted| !matches!(posted.message, ToSession::Dispatch(_)))
    }

    /// Who sent what waits in the priority lane.
    pub fn priority_senders(&self) -> Vec<ConnectionId> {
        if !self.has_priority() {
            return Vec::new();
        }
        self.lane.waiting.lock().iter().filter_map(|posted| posted.message.dispatched_by()).collect()
    }

    /// Takes what was sent before a message and has to be handled before it, though it waits behind others.
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

    /// Puts a message behind everything that has come until now.
    pub fn put_last(&mut self, posted: Box<Posted>) {
        self.pull();
        self.arrived(posted);
    }

    /// Takes everything out of the channel that is in it now.
    fn pull(&mut self) {
        for _ in 0..self.receiver.len() {
            let Some(posted) = self.receiver.try_recv() else { return };
            self.arrived(posted);
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting() == 0 && self.receiver.is_empty() && !self.has_priority()
    }

    /// Lets no more messages in.
    pub fn close(&mut self) {
        self.receiver.close();
    }

    /// Takes any message that waits, in no particular order of lanes.
    pub fn try_next(&mut self) -> Option<Box<Posted>> {
        self.next_priority().or_else(|| self.next()).or_else(|| self.receiver.try_recv())
    }

    /// Gives back the memory of a session that pauses.
    pub fn release(&mut self) {
        super::awake_limit::release(&mut self.taken);
        if self.waiting() == 0 {
            self.emitted = VecDeque::new();
            self.other = VecDeque::new();
        }
    }
}

impl Actor {
    /// Puts the messages of the priority lane before those that wait, each with what has to be handled before it.
    pub(super) fn take_priority(&mut self, inbox: &mut Inbox) {
        while let Some(posted) = inbox.next_priority() {
            let ToSession::Dispatch(cancel) = &posted.message else {
                // The session ends: what runs is stopped now. What came before is still handled, so that neither what
                // was emitted nor what was asked for is lost.
                self.stop_backends();
                inbox.put_last(posted);
                continue;
            };
            let connection = cancel.connection.id;
            // What its sender sent before, and what the turn has consumed until now.
            let mut first = inbox.sent_before(&posted, |message| {
                message.dispatched_by() == Some(connection) || message.is_usage()
            });
            let mut usage = EmittedSize::default();
            first.iter().for_each(|held| usage += held.message.taken());
            self.ahead.taken(usage);
            first.push_back(posted);
            // What was held back for longer comes first.
            self.again.extend(first);
        }
    }

    /// Has the backends of all running turns stop.
    pub(super) fn stop_backends(&mut self) {
        for at in 0..self.chats.len() {
            // A worker's turn ends with the one that spawned it.
            if let Some(turn) = self.chats[at].running().map(str::to_owned)
                && self.chats[at].backend.is_some()
            {
                self.cancel_backend(at, turn);
            }
        }
    }
}
