//! Slots for a connection's commands that use much memory or time: a few of a kind concurrently, and none while the
//! peer does not read its answers. A peer that sends requests faster than it reads costs no more than one that waits
//! for its answers.

use ostler_engine_core::outbox::Outbox;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The slots of one connection, by kind, so that a slow kind does not delay the others.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Contents of resources.
    pub reads: Turn,
    /// Directories, and facts about their entries.
    pub lists: Turn,
    /// Changes of resources.
    pub changes: Turn,
    /// Lists of sessions.
    pub sessions: Turn,
    pub completions: Turn,
    /// Usage entries and runs.
    pub usage: Turn,
}

/// The slots of one kind.
#[derive(Debug)]
pub(crate) struct Turn(Semaphore);

impl Turns {
    pub fn new() -> Self {
        let turn = |at_once| Turn(Semaphore::new(at_once));
        Self {
            reads: turn(4),
            lists: turn(2),
            changes: turn(4),
            sessions: turn(1),
            completions: turn(2),
            usage: turn(2),
        }
    }

    /// Ends every wait because the connection is closed.
    pub fn close(&self) {
        let Self { reads, lists, changes, sessions, completions, usage } = self;
        for turn in [reads, lists, changes, sessions, completions, usage] {
            turn.0.close();
        }
    }
}

impl Turn {
    /// Waits for a slot, and until the peer has read most of its answers; `None` if it has disconnected.
    pub async fn next(&self, outbox: &Outbox) -> Option<SemaphorePermit<'_>> {
        let turn = self.0.acquire().await.ok()?;
        outbox.writable().await;
        (!outbox.is_closed()).then_some(turn)
    }
}
