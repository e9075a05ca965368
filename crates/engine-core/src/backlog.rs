//! The frames of a subscription that wait until its snapshot is sent. Only frames of this subscription wait, so that a
//! slow snapshot does not delay other channels of the connection.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::outbox::{Item, Outbox};

/// Retained frames, released once.
#[derive(Debug)]
pub struct Backlog(Mutex<Option<BacklogItems>>);

#[derive(Debug, Default)]
struct BacklogItems {
    items: Vec<Item>,
    bytes: usize,
}

impl Backlog {
    /// Creates a backlog that retains all frames.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(BacklogItems::default()))))
    }

    /// Retains a frame, or passes it on after the release. Disconnects a client whose backlog exceeds the limit.
    pub fn push(&self, outbox: &Outbox, item: Item) {
        match &mut *self.0.lock() {
            Some(kept) => {
                kept.bytes += item.bytes();
                match outbox.takes(kept.bytes) {
                    true => kept.items.push(item),
                    false => outbox.fall_behind(),
                }
            }
            None => outbox.push(item),
        }
    }

    /// Sends the snapshot, then releases all frames.
    pub fn release(&self, outbox: &Outbox, first: impl FnOnce()) {
        let mut held = self.0.lock();
        first();
        for item in held.take().into_iter().flat_map(|kept| kept.items) {
            outbox.push(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &'static str) -> Item {
        Item::Frame(text.into())
    }

    #[tokio::test]
    async fn frames_wait_for_the_answer_and_keep_their_order() {
        let (hold, outbox) = (Backlog::new(), Outbox::new(100));
        hold.push(&outbox, frame("1"));
        outbox.push(frame("another channel"));
        hold.push(&outbox, frame("2"));
        hold.release(&outbox, || outbox.push(frame("answer")));
        hold.push(&outbox, frame("3"));
        let mut items = Vec::new();
        assert_eq!(outbox.drain(&mut items).await, None);
        let texts: Vec<_> = items.iter().map(|item| item.frames()[0].clone()).collect();
        assert_eq!(texts, ["another channel", "answer", "1", "2", "3"]);
    }

    #[tokio::test]
    async fn a_client_too_much_waits_for_is_behind() {
        let (hold, outbox) = (Backlog::new(), Outbox::new(4));
        hold.push(&outbox, frame("12345"));
        assert!(outbox.is_closed());
    }
}
