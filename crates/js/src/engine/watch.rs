//! How long the engine has run without a pause.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Condition, Shared};

/// Looks at the clock while JavaScript runs, and stops what runs too long.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    since: Cell<Option<Instant>>,
    interrupted: Cell<bool>,
}

impl Watch {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, since: Cell::new(None), interrupted: Cell::new(false) }
    }

    /// A turn begins.
    pub(crate) fn start(&self) {
        self.since.set(Some(Instant::now()));
    }

    /// The turn is over; the engine waits again.
    pub(crate) fn stop(&self) {
        self.since.set(None);
        if self.interrupted.replace(false) {
            self.shared.set_condition(Condition::Running);
        }
    }

    /// Takes time out that was spent waiting, not running.
    pub(crate) fn excuse(&self, waited: Duration) {
        if let Some(since) = self.since.get() {
            self.since.set(Some(since + waited));
        }
    }

    /// Whether what runs has to stop. It gives the rest of the turn a fresh start: only what overran is lost.
    pub(crate) fn overrun(&self) -> bool {
        let limit = self.shared.options.busy_limit;
        let over = self.since.get().is_some_and(|since| since.elapsed() > limit);
        if over {
            self.interrupted.set(true);
            self.shared.set_condition(Condition::Interrupted);
            self.since.set(Some(Instant::now()));
        }
        over
    }

    /// Whether something was stopped in this turn.
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted.get()
    }
}
