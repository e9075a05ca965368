//! Turns of one connection's commands that take memory or time: a few of a kind at once, and none whose answer would wait
//! behind others that the peer does not read. So a peer that asks faster than it reads costs no more than one that waits
//! for its answers.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::core::outbox::Outbox;

/// The turns of one connection, by kind: one kind that is slow does not hold up the others.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Contents of resources.
    pub reads: Turn,
    /// Directories, and facts about what is in them.
    pub lists: Turn,
    /// Changes of resources.
    pub changes: Turn,
    /// Lists of sessions.
    pub sessions: Turn,
    /// What somebody typing may mean.
    pub completions: Turn,
    /// Records of use and of runs.
    pub usage: Turn,
}

/// The turns of one kind.
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

    /// Ends every wait: the connection is gone.
    pub fn close(&self) {
        let Self { reads, lists, changes, sessions, completions, usage } = self;
        for turn in [reads, lists, changes, sessions, completions, usage] {
            turn.0.close();
        }
    }
}

impl Turn {
    /// Waits for a turn, and until the peer has read most of what it was answered; `None` where it is gone.
    pub async fn next(&self, outbox: &Outbox) -> Option<SemaphorePermit<'_>> {
        let turn = self.0.acquire().await.ok()?;
        outbox.writable().await;
        (!outbox.is_closed()).then_some(turn)
    }
}
