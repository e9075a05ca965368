//! The bounded queue of messages for one client. A client that falls behind is disconnected and can reconnect; it never
//! blocks the host.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use ostler_contract::budget::SMALL;
use ostler_contract::{Budget, Charge};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::fanout::Ticket;
use crate::link_queue::{LinkQueue, Linked};
use crate::wire::{Sender, Tap};

/// Frames published together. They are encoded once for all subscribers; a transport stores its encoding next to them,
/// also created once.
#[derive(Debug)]
pub struct Batch {
    frames: Vec<Bytes>,
    bytes: usize,
    /// The transport's encoding of all frames.
    pub encoded: OnceLock<Bytes>,
    /// Its charge to the host's budget, once it is queued for a client.
    charge: OnceLock<Charge>,
}

impl Batch {
    /// Creates a batch of frames, in order, each one JSON text.
    pub fn new(frames: Vec<Bytes>) -> Arc<Self> {
        let bytes = frames.iter().map(Bytes::len).sum();
        Arc::new(Self { frames, bytes, encoded: OnceLock::new(), charge: OnceLock::new() })
    }

    /// Each one JSON text.
    pub fn frames(&self) -> &[Bytes] {
        &self.frames
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges its memory, once for all its clients; returns whether it was available.
    fn charge(&self, host: &Budget) -> bool {
        if self.charge.get().is_some() {
            return true;
        }
        // The frames, and the transport's encoding of them.
        let charge = host.try_take(2 * self.bytes);
        charge.is_some_and(|charge| {
            let _ = self.charge.set(charge);
            true
        })
    }
}

/// A frame of one client, with its charge to the client's budget.
#[derive(Debug)]
pub struct Frame {
    bytes: Bytes,
    charge: Option<Charge>,
}

impl Frame {
    /// Creates a frame whose memory was charged before.
    pub fn charged(bytes: Bytes, charge: Charge) -> Self {
        Self { bytes, charge: Some(charge) }
    }
}

impl<T: Into<Bytes>> From<T> for Frame {
    fn from(bytes: T) -> Self {
        Self { bytes: bytes.into(), charge: None }
    }
}

impl std::ops::Deref for Frame {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

/// An item to write.
#[derive(Debug)]
pub enum Item {
    /// A frame for this client only.
    Frame(Frame),
    /// Frames shared with others.
    Batch(Arc<Batch>),
    /// Frames of a stream, which measures its queue by the ticket.
    Stream(Arc<Batch>, Ticket),
}

impl Item {
    /// Each one JSON text.
    pub fn frames(&self) -> &[Bytes] {
        match self {
            Self::Frame(frame) => std::slice::from_ref(&frame.bytes),
            Self::Batch(batch) | Self::Stream(batch, _) => batch.frames(),
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.len(),
            Self::Batch(batch) | Self::Stream(batch, _) => batch.bytes,
        }
    }
}

/// Why a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// The connection is complete: the peer closed it, or the host stops.
    Done,
    /// The client's backlog exceeds the limit; it has to reconnect.
    Behind,
    /// It violated the protocol.
    Protocol,
    /// It sent a message that is too large.
    TooLarge,
    /// It sent text that is not UTF-8.
    NotText,
    /// No memory is available for its messages.
    NoMemory,
    /// What it subscribed to is served by another host now; it has to reconnect.
    Moved,
    /// The host lost its lease in the cluster; the client has to reconnect.
    LostLease,
    /// The token or the sign-in that opened it is no longer valid.
    SignedOut,
    /// The host cannot read its users, and the one of the connection may have been removed; the client has to reconnect.
    UnreadUsers,
}

/// The limit of the queue, in bytes.
pub const DEFAULT_LIMIT: usize = 16 * 1024 * 1024;
/// The size of queued answers from which no further requests of the peer are read.
const PAUSE: usize = 1024 * 1024;
/// The part of the queue that a stream can use.
const STREAMED: usize = 4;
/// Larger single items, which are requested answers, can be queued in addition, up to this multiple of the limit.
const LARGE: usize = 8;

/// The queue of one connection.
#[derive(Debug)]
pub struct Outbox {
    state: Mutex<State>,
    wake: Notify,
    behind: Notify,
    /// The number of requests without an answer.
    owed: AtomicUsize,
    settled: Notify,
    /// Notified when the transport has written the drained items.
    written: Notify,
    limit: usize,
    /// The connection's part of the host's budget.
    budget: Budget,
    host: Budget,
    tap: Option<Tap>,
    link: Option<Linked>,
}

/// The number on a link of what the other host itself receives.
pub const HOST_NUMBER: u64 = 0;

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Item>,
    bytes: usize,
    /// Bytes of frames for this client only, queued or being written.
    own: usize,
    /// Of these, the bytes being written.
    writing: usize,
    /// Of these, the bytes of single items that are larger than the limit.
    large: usize,
    /// Items that wait while answers that have to precede them are prepared.
    held: VecDeque<Item>,
    /// The number of these answers.
    holds: usize,
    closed: Option<Closed>,
}

#[derive(Debug, Clone, Copy)]
pub struct OutboxSize {
    /// Requests without a response.
    pub requests: usize,
    pub messages: usize,
    /// Their size in bytes.
    pub bytes: usize,
}

impl Outbox {
    /// Creates an empty outbox with a limit in bytes, beyond which its client counts as behind.
    pub fn new(limit: usize) -> Arc<Self> {
        let host = Budget::new(usize::MAX / 2);
        Self::with(limit, host.part(usize::MAX / 2), host, None)
    }

    /// Creates the outbox of a connection with its part of the host's budget; its frames can be recorded.
    pub fn within(limit: usize, budget: Budget, host: Budget, tap: Tap) -> Arc<Self> {
        Self::with(limit, budget, host, Some(tap))
    }

    /// Creates the outbox of a connection whose client is at the other end of a link, under a number.
    pub fn across(
        limit: usize,
        budget: Budget,
        host: Budget,
        queue: Arc<LinkQueue>,
        number: u64,
    ) -> Arc<Self> {
        Arc::new_cyclic(|outbox| Self {
            link: Some(Linked { queue, number, outbox: outbox.clone() }),
            ..Self::empty(limit, budget, host, None)
        })
    }

    /// Returns whether it is that of another host itself, for its own clients.
    pub fn is_of_host(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.number == HOST_NUMBER)
    }

    /// Creates the outbox of a connection on a link, for tests.
    #[cfg(test)]
    pub fn linked_to(queue: &Arc<LinkQueue>, number: u64, limit: usize) -> Arc<Self> {
        let host = Budget::new(usize::MAX / 2);
        Self::across(limit, host.part(usize::MAX / 2), host, queue.clone(), number)
    }

    /// The connection's part of the host's budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The recorder of its connection's frames, if any.
    pub fn tap(&self) -> Option<&Tap> {
        self.tap.as_ref().filter(|tap| tap.is_on())
    }

    fn with(limit: usize, budget: Budget, host: Budget, tap: Option<Tap>) -> Arc<Self> {
        Arc::new(Self::empty(limit, budget, host, tap))
    }

    fn empty(limit: usize, budget: Budget, host: Budget, tap: Option<Tap>) -> Self {
        Self {
            state: Mutex::default(),
            wake: Notify::new(),
            behind: Notify::new(),
            owed: AtomicUsize::new(0),
            settled: Notify::new(),
            written: Notify::new(),
            limit,
            budget,
            host,
            tap,
            link: None,
        }
    }

    /// Counts a request; returns the number of requests without an answer.
    pub fn owe(&self) -> usize {
        self.owed.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Waits until the peer has received enough of its answers for more requests to be read.
    pub async fn writable(&self) {
        while self.is_full() {
            let written = self.written.notified();
            tokio::pin!(written);
            written.as_mut().enable();
            if self.is_full() {
                written.await;
            }
        }
    }

    fn is_full(&self) -> bool {
        let state = self.state();
        state.own >= PAUSE && state.closed.is_none()
    }

    pub fn waiting(&self) -> OutboxSize {
        let state = self.state();
        OutboxSize {
            requests: self.owed.load(Ordering::Acquire),
            messages: state.queue.len() + state.held.len(),
            bytes: state.bytes,
        }
    }

    /// Counts an answer to a request.
    pub fn paid(&self) {
        if self.owed.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.settled.notify_waiters();
        }
    }

    /// Waits until every request so far has an answer.
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

    /// Charges an item that is about to be queued; returns whether it can be. A small item for an empty queue always
    /// can.
    fn charge(&self, state: &State, item: &mut Item) -> bool {
        let idle = state.bytes == 0 && state.own == 0;
        match item {
            Item::Frame(frame) if frame.charge.is_some() => true,
            Item::Frame(frame) => {
                let bytes = frame.bytes.len();
                let mut charge = self.budget.try_take(bytes);
                if charge.is_none() && idle && bytes <= SMALL {
                    charge = Some(self.budget.take_anyway(bytes));
                }
                frame.charge = charge;
                frame.charge.is_some()
            }
            Item::Batch(batch) => batch.charge(&self.host) || idle,
            Item::Stream(batch, _) => batch.bytes == 0 || batch.charge(&self.host) || idle,
        }
    }

    pub fn push(&self, mut item: Item) {
        let mut state = self.state();
        if state.closed.is_some() {
            return;
        }
        if !self.charge(&state, &mut item) {
            self.end_behind(&mut state);
            drop(state);
            self.wake.notify_one();
            return;
        }
        self.queue(state, item);
    }

    /// Queues a charged item.
    fn queue(&self, mut state: MutexGuard<'_, State>, item: Item) {
        let bytes = item.bytes();
        state.bytes += bytes;
        if matches!(item, Item::Frame(_)) {
            state.own += bytes;
        }
        if bytes > self.limit && state.large + bytes <= self.limit.saturating_mul(LARGE) {
            state.large += bytes;
        }
        if state.bytes - state.large > self.limit {
            self.end_behind(&mut state);
        } else if state.holds > 0 {
            state.held.push_back(item);
            return;
        } else if let Some(link) = &self.link {
            return link.add(item);
        } else {
            state.queue.push_back(item);
            if state.queue.len() > 1 {
                // The first item has woken the transport.
                return;
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Queues an item of a stream if there is memory for it; returns whether it was queued. The rest of the memory is
    /// reserved for items that the client needs.
    pub fn offer(&self, mut item: Item) -> bool {
        let state = self.state();
        if state.closed.is_some() {
            return true;
        }
        let waits = state.bytes > 0 && state.bytes + item.bytes() > self.limit / STREAMED;
        if waits || !self.charge(&state, &mut item) {
            return false;
        }
        self.queue(state, item);
        true
    }

    /// Returns whether so many bytes can be queued.
    pub fn takes(&self, bytes: usize) -> bool {
        bytes <= self.limit
    }

    /// Ends the connection because its backlog exceeds the limit.
    pub fn fall_behind(&self) {
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
        state.held.clear();
        if let Some(link) = &self.link {
            link.queue.forget(link.number);
        }
        self.behind.notify_one();
        self.ended();
    }

    /// Nothing more is written, so waiting tasks continue.
    fn ended(&self) {
        self.budget.close();
        self.written.notify_waiters();
    }

    /// Queues text for this client only.
    pub fn send(&self, text: String) {
        self.push(Item::Frame(text.into()));
    }

    /// Queues an answer, or the error that there is no memory for it.
    pub fn answer(&self, text: String, instead: impl FnOnce() -> String) {
        self.push(Item::Frame(self.framed(text, instead)));
    }

    /// Returns the frame of an answer, or of the error that there is no memory for it. A small one is charged when it
    /// is queued.
    pub fn framed(&self, text: String, instead: impl FnOnce() -> String) -> Frame {
        let bytes = text.len();
        if bytes <= SMALL {
            return text.into();
        }
        match self.budget.try_take(bytes) {
            Some(charge) => Frame::charged(text.into(), charge),
            None => {
                let instead = instead();
                let charge = self.budget.take_anyway(instead.len());
                Frame::charged(instead.into(), charge)
            }
        }
    }

    /// Makes later items wait until [`Outbox::release`], which is called once for each hold.
    pub fn hold(&self) {
        self.state().holds += 1;
    }

    /// Queues `first`, then the waiting items unless another hold exists.
    pub fn release(&self, first: impl Into<Frame>) {
        let mut state = self.state();
        if state.holds == 0 {
            drop(state);
            return self.push(Item::Frame(first.into()));
        }
        let mut first = Item::Frame(first.into());
        if !self.charge(&state, &mut first) {
            self.end_behind(&mut state);
            drop(state);
            self.wake.notify_one();
            return;
        }
        state.bytes += first.bytes();
        state.own += first.bytes();
        match &self.link {
            Some(link) => link.add(first),
            None => state.queue.push_back(first),
        }
        self.end_hold(state);
    }

    /// Ends a hold whose answer is sent later, because the waiting items do not depend on it.
    pub fn unhold(&self) {
        self.end_hold(self.state());
    }

    fn end_hold(&self, mut state: MutexGuard<'_, State>) {
        state.holds = state.holds.saturating_sub(1);
        if state.holds == 0 {
            let held = std::mem::take(&mut state.held);
            match &self.link {
                Some(link) => held.into_iter().for_each(|item| link.add(item)),
                None => state.queue.extend(held),
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Ends the connection once all queued items are written; immediately if the client is behind.
    pub fn close(&self, why: Closed) {
        let mut state = self.state();
        state.closed.get_or_insert(why);
        drop(state);
        self.ended();
        self.wake.notify_one();
    }

    /// Resolves once the client is behind, because a write to it may be blocked.
    pub async fn overrun(&self) {
        loop {
            if self.state().closed == Some(Closed::Behind) {
                return;
            }
            self.behind.notified().await;
        }
    }

    pub fn is_closed(&self) -> bool {
        self.state().closed.is_some()
    }

    /// Counts frames that the link has sent; `own` if they are for this client only.
    pub fn sent(&self, bytes: usize, own: bool) {
        let mut state = self.state();
        state.bytes = state.bytes.saturating_sub(bytes);
        if bytes > self.limit {
            state.large = state.large.saturating_sub(bytes);
        }
        if own {
            state.own = state.own.saturating_sub(bytes);
            drop(state);
            self.written.notify_waiters();
        }
    }

    /// Waits until the outbox of a connection on a link is closed; returns the reason.
    pub async fn closed(&self) -> Closed {
        let mut none = Vec::new();
        loop {
            if let Some(why) = self.drain(&mut none).await {
                return why;
            }
        }
    }

    /// Waits for items and moves them into `into`; returns the reason once the outbox is closed and empty.
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
                let written = std::mem::take(&mut state.writing);
                if written > 0 {
                    state.own -= written;
                    self.written.notify_waiters();
                }
                if !state.queue.is_empty() {
                    let own = state.queue.iter().filter(|item| matches!(item, Item::Frame(_)));
                    state.writing = own.map(Item::bytes).sum();
                    into.extend(state.queue.drain(..));
                    let held = state.held.iter().map(Item::bytes);
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
    use futures::FutureExt as _;

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
    async fn what_is_held_comes_after_every_answer_that_holds_it() {
        let outbox = Outbox::new(1024);
        outbox.hold();
        outbox.hold();
        outbox.send("later".to_owned());
        outbox.release("answer".to_owned());
        outbox.send("last".to_owned());
        outbox.release("other answer".to_owned());
        let mut out = Vec::new();
        assert_eq!(outbox.drain(&mut out).await, None);
        assert_eq!(out.iter().map(text).collect::<Vec<_>>(), ["answer", "other answer", "later", "last"]);
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
    async fn answers_are_charged_until_they_are_written() {
        let host = Budget::new(4 * PAUSE);
        let outbox = Outbox::with(16 * PAUSE, host.part(2 * PAUSE), host.clone(), None);
        let answer = || outbox.answer("x".repeat(PAUSE), || "no memory".to_owned());
        answer();
        answer();
        assert_eq!(host.used(), 2 * PAUSE);
        answer();
        assert!(!outbox.is_closed());
        let mut out = Vec::new();
        assert_eq!(outbox.drain(&mut out).await, None);
        assert_eq!(out.iter().map(|item| item.bytes()).collect::<Vec<_>>(), [PAUSE, PAUSE, 9]);
        assert!(outbox.writable().now_or_never().is_none(), "what is being written counts");
        out.clear();
        assert_eq!(host.used(), 0);
        let next = async { outbox.drain(&mut out).await };
        tokio::select! {
            biased;
            _ = next => unreachable!("nothing is queued"),
            () = outbox.writable() => {}
        }
    }

    #[tokio::test]
    async fn a_client_that_is_behind_is_closed_when_the_host_has_no_memory_left() {
        let host = Budget::new(64);
        let (behind, idle) =
            [(), ()].map(|()| Outbox::with(1024, host.part(1024), host.clone(), None)).into();
        behind.push(Item::Batch(Batch::new(vec!["a".repeat(30).into()])));
        let batch = Batch::new(vec!["b".repeat(30).into()]);
        idle.push(Item::Batch(batch.clone()));
        behind.push(Item::Batch(batch));
        assert!(behind.is_closed() && !idle.is_closed());
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
