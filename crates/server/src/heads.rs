//! Connections that wait for the head of their next request. They are not authenticated, so their number is limited:
//! one more closes the oldest.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use tokio::sync::Notify;

/// Their maximum number.
const MOST: usize = 1024;

/// The waiting connections of a server.
#[derive(Debug, Default)]
pub(crate) struct Heads(Mutex<WaitingHeads>);

#[derive(Debug, Default)]
struct WaitingHeads {
    next: u64,
    /// Oldest first.
    all: BTreeMap<u64, Arc<Notify>>,
}

/// A connection, which waits between the end of an answer and the head of the next request.
#[derive(Debug)]
pub(crate) struct Head {
    heads: Arc<Heads>,
    /// Its number among the waiting connections.
    number: Mutex<u64>,
    given_up: Arc<Notify>,
}

impl Heads {
    /// Adds a connection, which can close the oldest.
    pub fn expect(self: &Arc<Self>) -> Head {
        let given_up = Arc::new(Notify::new());
        let number = Mutex::new(self.add(&given_up));
        Head { heads: self.clone(), number, given_up }
    }

    fn add(&self, given_up: &Arc<Notify>) -> u64 {
        let mut waiting = self.waiting();
        if waiting.all.len() >= MOST
            && let Some((_, oldest)) = waiting.all.pop_first()
        {
            oldest.notify_one();
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.all.insert(number, given_up.clone());
        number
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingHeads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Head {
    /// The head has arrived.
    pub fn came(&self) {
        self.heads.waiting().all.remove(&*self.number());
    }

    /// Wraps the answer, after which the next head can arrive.
    pub fn answered<B>(self: Arc<Self>, body: B) -> Answer<B> {
        Answer { body, head: Again(self) }
    }

    fn number(&self) -> MutexGuard<'_, u64> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when this connection must close in favor of a newer one.
    pub async fn given_up(&self) {
        self.given_up.notified().await;
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        self.came();
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) struct Answer<B> {
    body: B,
    #[expect(dead_code, reason = "its end is what counts")]
    head: Again,
}

#[derive(Debug)]
struct Again(Arc<Head>);

impl Drop for Again {
    fn drop(&mut self) {
        *self.0.number() = self.0.heads.add(&self.0.given_up);
    }
}

impl<B: Body + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn the_oldest_without_a_head_makes_room() {
        let heads = Arc::new(Heads::default());
        let known = heads.expect();
        known.came();
        let mut waiting: Vec<_> = (0..MOST).map(|_| heads.expect()).collect();
        assert!(waiting[0].given_up().now_or_never().is_none());
        let newest = heads.expect();
        assert!(waiting[0].given_up().now_or_never().is_some());
        assert!(waiting[1].given_up().now_or_never().is_none());
        assert!(known.given_up().now_or_never().is_none(), "its head is there");
        waiting.truncate(2);
        let _another = heads.expect();
        assert!(waiting[1].given_up().now_or_never().is_none() && newest.given_up().now_or_never().is_none());
    }

    #[test]
    fn a_connection_waits_again_once_it_is_answered() {
        let heads = Arc::new(Heads::default());
        let first = Arc::new(heads.expect());
        first.came();
        let answer = first.clone().answered(());
        let waiting: Vec<_> = (0..MOST).map(|_| heads.expect()).collect();
        assert!(waiting[0].given_up().now_or_never().is_none(), "an answer is under way");
        drop(answer);
        assert!(waiting[0].given_up().now_or_never().is_some());
        let _newer: Vec<_> = (1..MOST).map(|_| heads.expect()).collect();
        assert!(first.given_up().now_or_never().is_none());
        let _newest = heads.expect();
        assert!(first.given_up().now_or_never().is_some());
        drop(first);
        drop(waiting);
        assert_eq!(heads.waiting().all.len(), MOST);
    }
}
