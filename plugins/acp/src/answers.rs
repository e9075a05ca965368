//! The messages that wait to be written to an agent, and the requests of the agent that are open.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ostler_contract::{Budget, Charge};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The maximum number of an agent's requests without a received answer. More are rejected.
pub const UNANSWERED: usize = 256;
/// How long the first request above that number waits for room. The host may be slower than an agent that reads.
const ROOM: Duration = Duration::from_millis(200);
/// The maximum size of answers that an agent has not read, in bytes. Further ones wait.
const UNREAD: usize = 8 << 20;

/// Counts a request until it is answered.
#[derive(Debug)]
pub struct OpenRequest(Answers);

impl OpenRequest {
    /// Counts one more.
    pub fn new(answers: &Answers) -> Self {
        answers.0.open.fetch_add(1, Ordering::Relaxed);
        Self(answers.clone())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.0.room.notify_one();
    }
}

/// The messages that were sent to an agent and not written yet, in order.
#[derive(Debug, Clone)]
pub struct Answers(Arc<Unwritten>);

#[derive(Debug)]
struct Unwritten {
    messages: Mutex<VecDeque<Option<Charge>>>,
    /// The budget of answers.
    budget: Budget,
    /// How many requests are open.
    open: AtomicUsize,
    /// Notified when a request is answered, or an answer is written.
    room: Notify,
    /// Whether a request has waited for room and found none.
    is_stuck: AtomicBool,
}

impl Answers {
    /// Creates the empty list of a connection.
    pub fn new() -> Self {
        Self(Arc::new(Unwritten {
            messages: Mutex::default(),
            budget: Budget::new(UNREAD),
            open: AtomicUsize::new(0),
            room: Notify::new(),
            is_stuck: AtomicBool::new(false),
        }))
    }

    /// Waits until an answer of this size may be sent; `None` once the connection is closed.
    pub async fn take(&self, size: usize) -> Option<Charge> {
        self.0.budget.take(size).await
    }

    /// Ends the waiting for the budget.
    pub fn close(&self) {
        self.0.budget.close();
    }

    /// Records a message that was sent.
    pub fn sent(&self, charge: Option<Charge>) {
        self.0.messages.lock().push_back(charge);
    }

    /// Records that the oldest message was written.
    pub fn written(&self) {
        // Messages that the connection sends by itself are not in here.
        self.0.messages.lock().pop_front();
        self.0.room.notify_one();
    }

    /// Returns the number of messages that are not written yet.
    pub fn unwritten(&self) -> usize {
        self.0.messages.lock().len()
    }

    fn are_too_many(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) + self.unwritten() >= UNANSWERED
    }

    /// Returns whether the agent sends more requests than it reads answers. Only the first request above the limit waits, since
    /// the messages after it wait as well.
    pub async fn stay_too_many(&self) -> bool {
        let is_stuck =
            self.are_too_many() && (self.0.is_stuck.load(Ordering::Relaxed) || !self.have_room().await);
        self.0.is_stuck.store(is_stuck, Ordering::Relaxed);
        is_stuck
    }

    /// Waits for room; returns whether there is any in time.
    async fn have_room(&self) -> bool {
        let room = async {
            while self.are_too_many() {
                self.0.room.notified().await;
            }
        };
        tokio::time::timeout(ROOM, room).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_reads_no_answers_is_refused_after_one_wait() {
        let answers = Answers::new();
        let mut open: Vec<_> = (1..UNANSWERED).map(|_| OpenRequest::new(&answers)).collect();
        let begun = tokio::time::Instant::now();
        assert!(!answers.stay_too_many().await);
        open.push(OpenRequest::new(&answers));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(answers.stay_too_many().await);
        assert_eq!(begun.elapsed(), ROOM);
        assert!(answers.stay_too_many().await);
        assert_eq!(begun.elapsed(), ROOM, "only the first one waits");
        open.pop();
        answers.sent(None);
        assert!(answers.stay_too_many().await, "an answer that is not written counts");
        answers.written();
        assert!(!answers.stay_too_many().await);
        open.push(OpenRequest::new(&answers));
        assert!(answers.stay_too_many().await);
        assert_eq!(begun.elapsed(), 2 * ROOM, "it read answers in between, so one waits again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_reads_is_not_refused_while_the_host_answers_slowly() {
        let answers = Answers::new();
        let mut open: Vec<_> = (0..UNANSWERED).map(|_| OpenRequest::new(&answers)).collect();
        let begun = tokio::time::Instant::now();
        let answer = async {
            tokio::time::sleep(ROOM / 2).await;
            open.pop();
        };
        assert!(!tokio::join!(answers.stay_too_many(), answer).0);
        assert_eq!(begun.elapsed(), ROOM / 2);
        answers.sent(None);
        let write = async {
            tokio::time::sleep(ROOM / 2).await;
            answers.written();
        };
        assert!(!tokio::join!(answers.stay_too_many(), write).0);
        assert_eq!(begun.elapsed(), ROOM);
    }
}
