//! What clients were told, for the checks at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// How long it took until a session of a lost host was served again.
#[derive(Debug, Clone)]
pub struct Failover {
    /// The channel that was asked for.
    pub channel: String,
    /// When the host was lost.
    pub lost: Duration,
    /// When the first client was served.
    pub served: Option<Duration>,
}

/// What was acknowledged, and what went wrong.
#[derive(Debug, Default)]
pub struct Entries {
    /// Turns whose start was published: the chat and the turn.
    pub turns: BTreeSet<(String, String)>,
    /// Titles whose change was published: the session and the title.
    pub titles: BTreeSet<(String, String)>,
    /// Events that were fired, by their numbers, and whether that was acknowledged.
    pub events: BTreeMap<u64, bool>,
    /// Sessions of lost hosts.
    pub failovers: Vec<Failover>,
    /// Whatever must not happen.
    pub failures: Vec<String>,
}

/// The shared entries.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Entries>>);

impl Ledger {
    /// Changes or reads the entries.
    pub fn with<T>(&self, act: impl FnOnce(&mut Entries) -> T) -> T {
        act(&mut self.0.lock())
    }

    /// Adds something that must not happen.
    pub fn fail(&self, what: String) {
        self.0.lock().failures.push(what);
    }
}
