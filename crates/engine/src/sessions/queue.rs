//! The mailbox of a session: a queue with a priority lane.
//!
//! A cancellation, the disposal and the end of a session do not wait behind what backends emitted. They travel in the
//! priority lane, which the actor looks into before each message. What a client sent before its cancellation is still
//! handled before it: the lane records how many requests were sent earlier, and the actor takes those of the same client
//! out of the queue, past the emitted actions. See D-267.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ostler_protocol::actions::Class;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::ToSession;
use super::actor::Actor;

/// How many messages are taken out of the channel at once.
pub(super) const BATCH: usize = 256;

/// A message on its way, boxed: a channel allocates its slots in blocks, also while it is empty.
#[derive(Debug)]
pub struct Posted {
    /// Its number among the messages of the session that no backend emitted, from 1; 0 for an emitted one.
    order: u64,
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
    sender: mpsc::UnboundedSender<Box<Posted>>,
    lane: Arc<Lane>,
}

/// The session has ended or sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotTaken;

impl Mailbox {
    /// Opens a mailbox.
    pub fn open() -> (Self, Inbox) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let lane = Arc::<Lane>::default();
        let inbox = Inbox { receiver, lane: lane.clone(), taken: Vec::new(), queue: VecDeque::new() };
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
        self.lane.waiting.lock().push_back(Box::new(Posted { order, message }));
        self.lane.count.fetch_add(1, Ordering::Release);
        let sent = self.post(0, ToSession::Priority);
        if sent.is_err() {
            // Nothing reads it any more; a waiting answer is dropped with it.
            self.lane.waiting.lock().clear();
        }
        sent
    }

    fn post(&self, order: u64, message: ToSession) -> Result<(), NotTaken> {
        self.sender.send(Box::new(Posted { order, message })).map_err(|_| NotTaken)
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
    receiver: mpsc::UnboundedReceiver<Box<Posted>>,
    lane: Arc<Lane>,
    #[expect(clippy::vec_box, reason = "the channel fills it with what it holds")]
    taken: Vec<Box<Posted>>,
    queue: VecDeque<Box<Posted>>,
}

impl Inbox {
    /// Waits for a message; answers whether there will be one.
    pub async fn ready(&mut self) -> bool {
        if !self.queue.is_empty() {
            return true;
        }
        let count = self.receiver.recv_many(&mut self.taken, BATCH).await;
        self.queue.extend(self.taken.drain(..));
        count > 0
    }

    /// The next message that has come already, in order.
    pub fn next(&mut self) -> Option<Box<Posted>> {
        self.queue.pop_front()
    }

    /// How many messages a round takes.
    pub fn round(&self) -> usize {
        self.queue.len().min(BATCH)
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

    /// Takes what was sent before a message and has to be handled before it, though it waits behind others.
    pub fn sent_before(
        &mut self,
        posted: &Posted,
        goes_first: impl Fn(&ToSession) -> bool,
    ) -> VecDeque<Box<Posted>> {
        self.pull();
        let first = |held: &Posted| held.order < posted.order && goes_first(&held.message);
        let (before, rest) = std::mem::take(&mut self.queue).into_iter().partition(|held| first(held));
        self.queue = rest;
        before
    }

    /// Puts a message behind everything that has come until now.
    pub fn put_last(&mut self, posted: Box<Posted>) {
        self.pull();
        self.queue.push_back(posted);
    }

    /// Takes everything out of the channel that is in it now.
    fn pull(&mut self) {
        for _ in 0..self.receiver.len() {
            self.queue.extend(self.receiver.try_recv().ok());
        }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.receiver.is_empty() && !self.has_priority()
    }

    /// Lets no more messages in.
    pub fn close(&mut self) {
        self.receiver.close();
    }

    /// Takes any message that waits, in no particular order of lanes.
    pub fn try_next(&mut self) -> Option<Box<Posted>> {
        self.next_priority().or_else(|| self.queue.pop_front()).or_else(|| self.receiver.try_recv().ok())
    }

    /// Gives back the memory of a session that pauses.
    pub fn release(&mut self) {
        super::rest::release(&mut self.taken);
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
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
            let usage = first.iter().filter(|held| held.message.is_emitted()).count();
            self.ahead.taken(usage);
            first.push_back(posted);
            // What was held back for longer comes first.
            self.again.extend(first);
        }
    }

    /// Has the backends of all running turns stop.
    fn stop_backends(&mut self) {
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
