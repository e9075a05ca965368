//! What waits to be written to one client: bounded, so that a client that falls behind is dropped to
//! reconnect and never holds the host.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::wire::{Sender, Tap};

/// Frames published together. They are encoded once for all subscribers; a transport that frames them keeps
/// its own encoding beside them, made once too.
#[derive(Debug)]
pub struct Batch {
    frames: Vec<Bytes>,
    bytes: usize,
    /// The transport's encoding of all frames.
    pub encoded: OnceLock<Bytes>,
}

impl Batch {
    /// Frames, in order: each one JSON text.
    pub fn new(frames: Vec<Bytes>) -> Arc<Self> {
        let bytes = frames.iter().map(Bytes::len).sum();
        Arc::new(Self { frames, bytes, encoded: OnceLock::new() })
    }

    /// Each one JSON text.
    pub fn frames(&self) -> &[Bytes] {
        &self.frames
    }
}

/// One thing to write.
#[derive(Debug, Clone)]
pub enum Item {
    /// A frame of this client alone.
    Frame(Bytes),
    /// Frames shared with others.
    Batch(Arc<Batch>),
}

impl Item {
    /// Each one JSON text.
    pub fn frames(&self) -> &[Bytes] {
        match self {
            Self::Frame(frame) => std::slice::from_ref(frame),
            Self::Batch(batch) => batch.frames(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.len(),
            Self::Batch(batch) => batch.bytes,
        }
    }
}

/// Why a connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// The host is done with it: the peer asked, or the host stops.
    Done,
    /// More waits for the client than it may; it has to reconnect.
    Behind,
    /// It broke the protocol.
    Protocol,
    /// It sent more at once than is taken.
    TooLarge,
}

/// How much may wait, in bytes.
pub const DEFAULT_LIMIT: usize = 16 * 1024 * 1024;
/// Things larger than that on their own, an answer that was asked for, wait beside it up to so many times as much.
const LARGE: usize = 8;

/// The queue of one connection.
#[derive(Debug)]
pub struct Outbox {
    state: Mutex<State>,
    wake: Notify,
    behind: Notify,
    /// How many requests have no answer yet.
    owed: AtomicUsize,
    settled: Notify,
    limit: usize,
    tap: Option<Tap>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Item>,
    bytes: usize,
    /// Of these, the bytes of things that are larger than the limit on their own.
    large: usize,
    /// While the answer that has to come first is made, everything else waits here.
    held: Option<VecDeque<Item>>,
    closed: Option<Closed>,
}

impl Outbox {
    /// An empty one that takes `limit` bytes before its client counts as behind.
    pub fn new(limit: usize) -> Arc<Self> {
        Self::with(limit, None)
    }

    /// One whose frames may be recorded.
    pub(crate) fn tapped(limit: usize, tap: Tap) -> Arc<Self> {
        Self::with(limit, Some(tap))
    }

    /// Where its connection's frames are recorded, while they are.
    pub(crate) fn tap(&self) -> Option<&Tap> {
        self.tap.as_ref().filter(|tap| tap.is_on())
    }

    fn with(limit: usize, tap: Option<Tap>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            wake: Notify::new(),
            behind: Notify::new(),
            owed: AtomicUsize::new(0),
            settled: Notify::new(),
            limit,
            tap,
        })
    }

    /// One request more is to be answered here.
    pub(crate) fn owe(&self) {
        self.owed.fetch_add(1, Ordering::AcqRel);
    }

    /// One request has had its answer.
    pub(crate) fn paid(&self) {
        if self.owed.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.settled.notify_waiters();
        }
    }

    /// Waits until every request so far has had its answer.
    pub async fn settled(&self) {
        loop {
            let settled = self.settled.notified();
            if self.owed.load(Ordering::Acquire) == 0 {
                return;
            }
            settled.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Queues something to write.
    pub fn push(&self, item: Item) {
        let mut state = self.state();
        if state.closed.is_some() {
            return;
        }
        let bytes = item.bytes();
        state.bytes += bytes;
        if bytes > self.limit && state.large + bytes <= self.limit.saturating_mul(LARGE) {
            state.large += bytes;
        }
        if state.bytes - state.large > self.limit {
            self.end_behind(&mut state);
        } else if let Some(held) = &mut state.held {
            held.push_back(item);
            return;
        } else {
            state.queue.push_back(item);
            if state.queue.len() > 1 {
                // Whoever drains was woken by the first.
                return;
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Whether so many bytes may wait.
    pub(crate) fn takes(&self, bytes: usize) -> bool {
        bytes <= self.limit
    }

    /// Ends the connection: more waits for its client than may.
    pub(crate) fn fall_behind(&self) {
        let mut state = self.state();
        if state.closed.is_none() {
            self.end_behind(&mut state);
            drop(state);
            self.wake.notify_one();
        }
    }

    fn end_behind(&self, state: &mut State) {
        state.closed = Some(Closed::Behind);
        state.queue.clear();
        state.held = None;
        self.behind.notify_one();
    }

    /// Queues text of this client alone.
    pub fn send(&self, text: String) {
        self.push(Item::Frame(text.into()));
    }

    /// Makes what is queued from now on wait until [`Outbox::release`].
    pub fn hold(&self) {
        let mut state = self.state();
        if state.held.is_none() {
            state.held = Some(VecDeque::new());
        }
    }

    /// Queues `first`, then what waited.
    pub fn release(&self, first: String) {
        let mut state = self.state();
        if let Some(held) = state.held.take() {
            state.bytes += first.len();
            state.queue.push_back(Item::Frame(first.into()));
            state.queue.extend(held);
            drop(state);
            self.wake.notify_one();
        } else {
            drop(state);
            self.send(first);
        }
    }

    /// Ends the connection once what is queued is written; at once where the client is behind.
    pub fn close(&self, why: Closed) {
        let mut state = self.state();
        state.closed.get_or_insert(why);
        drop(state);
        self.wake.notify_one();
    }

    /// Resolves once the client is behind: whoever writes to it may be stuck in that.
    pub async fn overrun(&self) {
        loop {
            if self.state().closed == Some(Closed::Behind) {
                return;
            }
            self.behind.notified().await;
        }
    }

    /// Whether nothing more is taken.
    pub fn is_closed(&self) -> bool {
        self.state().closed.is_some()
    }

    /// Waits for something to write and moves it into `into`; answers why when there will be no more.
    pub async fn drain(&self, into: &mut Vec<Item>) -> Option<Closed> {
        let before = into.len();
        let drained = self.next(into).await;
        if let Some(tap) = self.tap() {
            let frames = into[before..].iter().flat_map(Item::frames);
            tap.record(Sender::Host, frames.map(|frame| &frame[..]));
        }
        drained
    }

    async fn next(&self, into: &mut Vec<Item>) -> Option<Closed> {
        loop {
            {
                let mut state = self.state();
                if !state.queue.is_empty() {
                    into.extend(state.queue.drain(..));
                    let held = state.held.iter().flatten().map(Item::bytes);
                    let (bytes, large) = held.fold((0, 0), |(bytes, large), one| {
                        (bytes + one, large + if one > self.limit { one } else { 0 })
                    });
                    (state.bytes, state.large) = (bytes, large);
                    return None;
                }
                if let Some(why) = state.closed {
                    return Some(why);
                }
            }
            self.wake.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(item: &Item) -> String {
        item.frames().iter().map(|frame| String::from_utf8_lossy(frame).into_owned()).collect()
    }

    #[tokio::test]
    async fn what_is_held_comes_after_the_answer() {
        let outbox = Outbox::new(1024);
        outbox.hold();
        outbox.push(Item::Batch(Batch::new(vec!["later".into()])));
        outbox.release("answer".to_owned());
        outbox.send("last".to_owned());
        let mut out = Vec::new();
        assert_eq!(outbox.drain(&mut out).await, None);
        assert_eq!(out.iter().map(text).collect::<Vec<_>>(), ["answer", "later", "last"]);
    }

    #[tokio::test]
    async fn a_client_that_falls_behind_is_closed() {
        let outbox = Outbox::new(10);
        outbox.send("12345".to_owned());
        outbox.send("123456".to_owned());
        assert!(outbox.is_closed());
        assert_eq!(outbox.drain(&mut Vec::new()).await, Some(Closed::Behind));
    }

    #[tokio::test]
    async fn an_answer_larger_than_the_limit_is_written() {
        let outbox = Outbox::new(10);
        outbox.send("small".to_owned());
        outbox.send("x".repeat(60));
        outbox.send("more".to_owned());
        assert!(!outbox.is_closed());
        let mut out = Vec::new();
        assert_eq!(outbox.drain(&mut out).await, None);
        assert_eq!(out.len(), 3);
        // What waits together is bounded all the same.
        for _ in 0..2 {
            outbox.send("x".repeat(60));
        }
        assert_eq!(outbox.drain(&mut out).await, Some(Closed::Behind));
    }

    #[tokio::test]
    async fn what_was_queued_is_written_before_the_close() {
        let outbox = Outbox::new(100);
        outbox.send("bye".to_owned());
        outbox.close(Closed::Done);
        outbox.send("too late".to_owned());
        let mut out = Vec::new();
        assert_eq!(outbox.drain(&mut out).await, None);
        assert_eq!(out.len(), 1);
        assert_eq!(outbox.drain(&mut out).await, Some(Closed::Done));
    }
}
