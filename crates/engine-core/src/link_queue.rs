//! The queue of messages for the host at the other end of a link. Frames that several connections of the link share are
//! in it once, with the list of these connections.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use ostler_contract::Charge;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::fanout::Ticket;
use crate::outbox::{Batch, Frame, Item, Outbox};

/// How many of the latest messages are compared with a shared frame.
const LOOK_BACK: usize = 16;
/// The size of queued messages from which clients are not read further.
const PAUSE: usize = 1024 * 1024;

/// A connection that receives a frame.
#[derive(Debug)]
pub struct Receiver {
    /// Its number on the link.
    pub number: u64,
    outbox: Arc<Outbox>,
    /// Measures the queue of a stream.
    _ticket: Option<Ticket>,
}

/// A message to send.
#[derive(Debug)]
pub enum Queued {
    /// A message about a connection or the link.
    Message {
        text: String,
        /// The charge of its memory.
        charge: Option<Charge>,
    },
    /// A frame of one connection.
    Frame(Frame, Receiver),
    /// Frames of several connections.
    Shared(Arc<Batch>, Vec<Receiver>),
}

impl Queued {
    pub fn bytes(&self) -> usize {
        match self {
            Self::Message { text, .. } => text.len(),
            Self::Frame(frame, _) => frame.len(),
            Self::Shared(batch, _) => batch.bytes(),
        }
    }

    fn is_for(&self, number: u64) -> bool {
        match self {
            Self::Message { .. } => false,
            Self::Frame(_, to) => to.number == number,
            Self::Shared(_, to) => to.iter().any(|to| to.number == number),
        }
    }

    /// Returns its frames and their receivers.
    pub fn frames(&self) -> (&[Bytes], &[Receiver]) {
        match self {
            Self::Message { .. } => (&[], &[]),
            Self::Frame(frame, to) => (std::slice::from_ref(&**frame), std::slice::from_ref(to)),
            Self::Shared(batch, to) => (batch.frames(), to),
        }
    }

    /// Frees its memory once it is sent, and lets its connections continue.
    pub fn sent(self) {
        match self {
            Self::Message { .. } => {}
            Self::Frame(frame, to) => {
                let bytes = frame.len();
                drop(frame);
                to.outbox.sent(bytes, true);
            }
            Self::Shared(batch, to) => {
                for to in to {
                    to.outbox.sent(batch.bytes(), false);
                }
            }
        }
    }
}

/// The queue of one end of a link.
#[derive(Debug)]
pub struct LinkQueue {
    state: Mutex<State>,
    wake: Notify,
    room: Notify,
    /// The limit in bytes, beyond which the link counts as behind.
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Queued>,
    /// The size of queued messages and of those being sent.
    bytes: usize,
    /// Why the queue is closed.
    closed: Option<&'static str>,
}

/// The queue exceeds its limit.
const BEHIND: &str = "it did not keep up";

impl LinkQueue {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), wake: Notify::new(), room: Notify::new(), limit })
    }

    pub fn message(&self, text: String, charge: Option<Charge>) {
        let mut state = self.state.lock();
        self.push(&mut state, Queued::Message { text, charge });
    }

    /// Queues the frames of a connection. Frames that were just queued for another one are shared with it.
    pub fn frames(&self, number: u64, outbox: Arc<Outbox>, item: Item) {
        let mut state = self.state.lock();
        if state.closed.is_some() {
            return;
        }
        let (batch, ticket) = match item {
            Item::Frame(frame) => {
                let to = Receiver { number, outbox, _ticket: None };
                return self.push(&mut state, Queued::Frame(frame, to));
            }
            Item::Batch(batch) => (batch, None),
            Item::Stream(batch, ticket) => (batch, Some(ticket)),
        };
        let to = Receiver { number, outbox, _ticket: ticket };
        for entry in state.entries.iter_mut().rev().take(LOOK_BACK) {
            match entry {
                Queued::Shared(other, receivers) if Arc::ptr_eq(other, &batch) => {
                    return receivers.push(to);
                }
                // A frame must not overtake an earlier one of its connection.
                entry if entry.is_for(number) => break,
                _ => {}
            }
        }
        self.push(&mut state, Queued::Shared(batch, vec![to]));
    }

    fn push(&self, state: &mut State, entry: Queued) {
        if state.closed.is_some() {
            return;
        }
        state.bytes += entry.bytes();
        state.entries.push_back(entry);
        if state.bytes > self.limit {
            Self::end(state, BEHIND);
            self.room.notify_waiters();
        }
        self.wake.notify_one();
    }

    /// Removes what is queued for a connection that receives nothing more.
    pub fn forget(&self, number: u64) {
        let mut state = self.state.lock();
        let mut freed = 0;
        state.entries.retain_mut(|entry| {
            let bytes = entry.bytes();
            let stays = match entry {
                Queued::Message { .. } => true,
                Queued::Frame(_, to) => to.number != number,
                Queued::Shared(_, to) => {
                    to.retain(|to| to.number != number);
                    !to.is_empty()
                }
            };
            freed += if stays { 0 } else { bytes };
            stays
        });
        state.bytes -= freed;
    }

    /// Waits for messages; fails with the reason once the queue is closed.
    pub async fn ready(&self) -> Result<(), &'static str> {
        loop {
            {
                let state = self.state.lock();
                if let Some(why) = state.closed {
                    return Err(why);
                }
                if !state.entries.is_empty() {
                    return Ok(());
                }
            }
            self.wake.notified().await;
        }
    }

    /// Removes all messages. Each counts until [`LinkQueue::sent`].
    pub fn take(&self) -> VecDeque<Queued> {
        std::mem::take(&mut self.state.lock().entries)
    }

    /// Counts a message of so many bytes as sent.
    pub fn sent(&self, bytes: usize) {
        let mut state = self.state.lock();
        let before = state.bytes;
        state.bytes = before.saturating_sub(bytes);
        let has_room = before >= PAUSE && state.bytes < PAUSE;
        drop(state);
        if has_room {
            self.room.notify_waiters();
        }
    }

    /// Waits until there is room for another message of a client, or the queue is closed.
    pub async fn has_room(&self) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            {
                let state = self.state.lock();
                if state.closed.is_some() || state.bytes < PAUSE {
                    return;
                }
            }
            room.await;
        }
    }

    /// Closes the queue: what is queued is not sent.
    pub fn close(&self, why: &'static str) {
        Self::end(&mut self.state.lock(), why);
        self.wake.notify_one();
        self.room.notify_waiters();
    }

    fn end(state: &mut State, why: &'static str) {
        state.closed.get_or_insert(why);
        state.entries.clear();
        state.bytes = 0;
    }
}

/// The link that transmits the items of an outbox in place of a transport.
#[derive(Debug)]
pub struct Linked {
    pub queue: Arc<LinkQueue>,
    pub number: u64,
    pub outbox: Weak<Outbox>,
}

impl Linked {
    pub fn add(&self, item: Item) {
        if let Some(outbox) = self.outbox.upgrade() {
            self.queue.frames(self.number, outbox, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn batch(text: &'static str) -> Arc<Batch> {
        Batch::new(vec![text.into()])
    }

    fn texts(queue: &LinkQueue) -> Vec<(Vec<u64>, String)> {
        let entries = queue.take();
        let text = |entry: &Queued| {
            let (frames, to) = entry.frames();
            let frames = frames.iter().map(|frame| String::from_utf8_lossy(frame).into_owned());
            (to.iter().map(|to| to.number).collect(), frames.collect::<Vec<_>>().join(" "))
        };
        let texts = entries.iter().map(text).collect();
        for entry in entries {
            let bytes = entry.bytes();
            entry.sent();
            queue.sent(bytes);
        }
        texts
    }

    #[test]
    fn a_frame_of_several_connections_is_queued_once() {
        let queue = LinkQueue::new(1000);
        let outboxes: Vec<_> = (0..3).map(|number| Outbox::linked_to(&queue, number, 1000)).collect();
        let shared = batch("shared");
        outboxes[0].push(Item::Batch(shared.clone()));
        outboxes[1].send("own".to_owned());
        outboxes[2].push(Item::Batch(shared.clone()));
        // It follows the frame that was queued before for the same connection.
        outboxes[1].push(Item::Batch(shared));
        let expected = [(vec![0, 2], "shared"), (vec![1], "own"), (vec![1], "shared")];
        let expected = expected.map(|(to, text)| (to, text.to_owned()));
        assert_eq!(texts(&queue), expected);
    }

    #[test]
    fn held_frames_follow_the_answer() {
        let queue = LinkQueue::new(1000);
        let outbox = Outbox::linked_to(&queue, 7, 1000);
        outbox.hold();
        outbox.push(Item::Batch(batch("later")));
        outbox.release("answer".to_owned());
        assert_eq!(texts(&queue), [(vec![7], "answer".to_owned()), (vec![7], "later".to_owned())]);
    }

    #[tokio::test]
    async fn a_connection_that_is_behind_ends_without_the_others() {
        let queue = LinkQueue::new(1000);
        let (slow, other) = (Outbox::linked_to(&queue, 1, 10), Outbox::linked_to(&queue, 2, 10));
        let shared = batch("12345678");
        slow.push(Item::Batch(shared.clone()));
        other.push(Item::Batch(shared));
        slow.send("123".to_owned());
        assert!(slow.is_closed() && !other.is_closed());
        assert_eq!(texts(&queue), [(vec![2], "12345678".to_owned())]);
        // What is sent makes room.
        other.send("12345678".to_owned());
        assert!(!other.is_closed());
        assert_eq!(queue.ready().await, Ok(()));
    }

    #[tokio::test]
    async fn a_link_that_is_behind_is_closed() {
        let queue = LinkQueue::new(PAUSE + 10);
        queue.message("x".repeat(PAUSE), None);
        assert!(queue.has_room().now_or_never().is_none(), "it waits");
        queue.message("x".repeat(20), None);
        assert_eq!(queue.ready().await, Err(BEHIND));
        queue.has_room().await;
    }
}
