//! An unbounded channel that uses a tenth of a kilobyte while it is empty. Tokio's allocates a block of slots for each,
//! and every awake session has two. See D-237.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::task::coop::cooperative;

/// The capacity that an empty queue retains.
const KEPT: usize = 32;

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<T>,
    /// The waiting receiver.
    waker: Option<Waker>,
    senders: usize,
    /// Whether the channel is closed for new messages.
    is_closed: bool,
}

#[derive(Debug)]
struct Shared<T>(Mutex<State<T>>);

/// The sending end.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// A sending end that does not keep the channel open.
#[derive(Debug)]
pub struct WeakSender<T>(Weak<Shared<T>>);

/// The receiving end.
#[derive(Debug)]
pub struct Receiver<T>(Arc<Shared<T>>);

/// Opens a channel. Messages are received in order.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = State { queue: VecDeque::new(), waker: None, senders: 1, is_closed: false };
    let shared = Arc::new(Shared(Mutex::new(state)));
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> State<T> {
    /// Frees the memory of a queue that was long.
    fn trim(&mut self) {
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            self.queue = VecDeque::new();
        }
    }

    /// Ready once there is a message, or the channel is closed and empty.
    fn poll_ready(&mut self, context: &Context<'_>) -> Poll<()> {
        if !self.queue.is_empty() || self.is_closed || self.senders == 0 {
            return Poll::Ready(());
        }
        match &mut self.waker {
            Some(waker) => waker.clone_from(context.waker()),
            waker => *waker = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl<T> Sender<T> {
    /// Sends a message.
    ///
    /// # Errors
    /// The receiver is closed or dropped; the message is returned.
    pub fn send(&self, message: T) -> Result<(), T> {
        let mut state = self.0.0.lock();
        if state.is_closed {
            return Err(message);
        }
        state.queue.push_back(message);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Returns the number of messages that were not received.
    pub fn waiting(&self) -> usize {
        self.0.0.lock().queue.len()
    }

    /// Returns whether the receiver is closed or dropped.
    pub fn is_closed(&self) -> bool {
        self.0.0.lock().is_closed
    }

    /// Returns a sender that does not keep the channel open.
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender(Arc::downgrade(&self.0))
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.0.lock().senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.senders -= 1;
        let waker = if state.senders == 0 { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> WeakSender<T> {
    /// Returns a sender, if another one exists.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        let shared = self.0.upgrade()?;
        let mut state = shared.0.lock();
        if state.senders == 0 {
            return None;
        }
        state.senders += 1;
        drop(state);
        Some(Sender(shared))
    }
}

impl<T> Receiver<T> {
    /// Returns the next message; `None` once the channel is closed and empty.
    pub async fn recv(&mut self) -> Option<T> {
        self.ready().await;
        self.try_recv()
    }

    /// Waits for messages and appends at most `most`; returns their number, 0 once the channel is closed and empty.
    pub async fn recv_many(&mut self, taken: &mut Vec<T>, most: usize) -> usize {
        self.ready().await;
        let mut state = self.0.0.lock();
        let count = state.queue.len().min(most);
        taken.extend(state.queue.drain(..count));
        state.trim();
        count
    }

    /// Returns the next message, if there is one.
    pub fn try_recv(&mut self) -> Option<T> {
        let mut state = self.0.0.lock();
        let message = state.queue.pop_front();
        state.trim();
        message
    }

    /// Returns the number of queued messages.
    pub fn len(&self) -> usize {
        self.0.0.lock().queue.len()
    }

    /// Returns whether no message is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the channel for new messages; queued ones are still received.
    pub fn close(&mut self) {
        self.0.0.lock().is_closed = true;
    }

    /// Counts against the task's budget, like every channel of tokio, so that a flood does not occupy a thread.
    async fn ready(&self) {
        cooperative(poll_fn(|context| self.0.0.lock().poll_ready(context))).await;
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.is_closed = true;
        // Dropped outside the lock, because a message can contain a sender.
        let waiting = std::mem::take(&mut state.queue);
        drop(state);
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_arrive_in_order_and_then_the_end() {
        let (sender, mut receiver) = channel();
        let other = sender.clone();
        let sending = tokio::spawn(async move {
            for number in 0..1_000 {
                sender.send(number).unwrap();
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
        let mut received = Vec::new();
        while received.len() < 500 {
            received.push(receiver.recv().await.unwrap());
        }
        drop(other);
        while receiver.recv_many(&mut received, 64).await > 0 {}
        sending.await.unwrap();
        assert_eq!(received, (0..1_000).collect::<Vec<_>>());
        assert_eq!(receiver.recv().await, None);
    }

    #[tokio::test]
    async fn a_closed_receiver_takes_what_was_sent_before() {
        let (sender, mut receiver) = channel();
        sender.send(1).unwrap();
        receiver.close();
        assert_eq!(sender.send(2), Err(2));
        assert!(sender.is_closed());
        assert_eq!((receiver.len(), receiver.recv().await, receiver.recv().await), (1, Some(1), None));
    }

    #[tokio::test]
    async fn the_last_sender_wakes_who_waits() {
        let (sender, mut receiver) = channel::<()>();
        let weak = sender.downgrade();
        let waiting = tokio::spawn(async move { (receiver.recv().await, receiver) });
        tokio::task::yield_now().await;
        let again = weak.upgrade().unwrap();
        drop(sender);
        drop(again);
        let (end, receiver) = waiting.await.unwrap();
        assert_eq!(end, None);
        assert!(weak.upgrade().is_none(), "a weak sender reopened a channel whose senders are gone");
        drop(receiver);
    }

    /// A message that holds the channel's other end, as an answer to it may.
    #[derive(Debug)]
    #[expect(dead_code, reason = "it is only dropped")]
    struct Holding(Option<Sender<Self>>);

    #[test]
    fn what_waits_is_dropped_with_the_receiver() {
        let (sender, receiver) = channel();
        sender.send(Holding(Some(sender.clone()))).unwrap();
        drop(receiver);
        assert!(sender.is_closed());
        assert!(sender.send(Holding(None)).is_err());
    }

    #[test]
    fn an_empty_queue_returns_its_memory() {
        let (sender, mut receiver) = channel();
        (0..10_000).for_each(|number| sender.send(number).unwrap());
        while receiver.try_recv().is_some() {}
        assert!(sender.0.0.lock().queue.capacity() <= KEPT);
    }

    #[tokio::test]
    async fn a_flood_lets_other_tasks_run() {
        let (sender, mut receiver) = channel();
        (0..100_000).for_each(|number| sender.send(number).unwrap());
        let other = tokio::spawn(async {});
        let mut received = 0;
        while !other.is_finished() {
            received += usize::from(receiver.recv().await.is_some());
            assert!(received < 10_000, "the receiver never yielded");
        }
    }
}
