//! Which queued writes are one transaction. Independent of the database, so that the simulation of a cluster uses it too.

use std::collections::HashSet;
use std::sync::Arc;

/// The maximum number of writes in a transaction.
const WRITES: usize = 256;

pub trait QueuedWrite {
    /// The run of the host that made it.
    fn incarnation(&self) -> &Arc<str>;

    /// The session that it appends to, and whether it removes the session.
    fn target(&self) -> Option<(&str, bool)>;

    /// The session whose owner it changes.
    fn moves(&self) -> Option<&str>;
}

/// The writes of one transaction.
pub struct Batch<W> {
    writes: Vec<W>,
    /// Sessions that are appended to.
    appended: HashSet<String>,
    /// Sessions that are claimed or released.
    moved: HashSet<String>,
}

impl<W> Default for Batch<W> {
    fn default() -> Self {
        Self { writes: Vec::new(), appended: HashSet::new(), moved: HashSet::new() }
    }
}

impl<W: QueuedWrite> Batch<W> {
    /// Whether a write can be in this transaction: positions of sessions are read once, at its beginning, and everything in it
    /// is of one run of the host.
    pub fn takes(&self, next: &W) -> bool {
        let Some(last) = self.writes.last() else { return true };
        // Writes after the removal of a session create it again, in another transaction.
        let ends = last.target().is_some_and(|(_, ends)| ends);
        let appends = next.target().is_some_and(|(session, _)| self.moved.contains(session));
        let moves = next.moves().is_some_and(|session| self.appended.contains(session));
        !ends && !appends && !moves && last.incarnation() == next.incarnation()
    }

    /// Adds a write that it takes.
    pub fn add(&mut self, write: W) {
        self.appended.extend(write.target().map(|(session, _)| session.to_owned()));
        self.moved.extend(write.moves().map(str::to_owned));
        self.writes.push(write);
    }

    /// Whether it has the maximum number of writes.
    pub fn is_full(&self) -> bool {
        self.writes.len() >= WRITES
    }

    /// Returns the writes in their order.
    pub fn into_writes(self) -> Vec<W> {
        self.writes
    }
}
