//! Connections that have not sent the head of a request yet. Nobody knows who they are of, so there may be only so many:
//! one more makes the oldest end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// How many there may be.
const MOST: usize = 1024;

/// Those of a server.
#[derive(Debug, Default)]
pub(crate) struct Heads(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// Oldest first.
    all: BTreeMap<u64, Arc<Notify>>,
}

/// One of them, until its head is there or this is dropped.
#[derive(Debug)]
pub(crate) struct Head {
    heads: Arc<Heads>,
    number: u64,
    given_up: Arc<Notify>,
}

impl Heads {
    /// One more, for which the oldest may have to end.
    pub fn expect(self: &Arc<Self>) -> Head {
        let given_up = Arc::new(Notify::new());
        let mut waiting = self.waiting();
        if waiting.all.len() >= MOST
            && let Some((_, oldest)) = waiting.all.pop_first()
        {
            oldest.notify_one();
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.all.insert(number, given_up.clone());
        Head { heads: self.clone(), number, given_up }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Head {
    /// It is there.
    pub fn came(&self) {
        self.heads.waiting().all.remove(&self.number);
    }

    /// Resolves when this connection has to end for a newer one.
    pub async fn given_up(&self) {
        self.given_up.notified().await;
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        self.came();
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
}
