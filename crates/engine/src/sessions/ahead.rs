//! How far a backend may run ahead of its session.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ostler_contract::Thrown;

/// So many emitted actions may wait. A backend that never pauses would fill the memory of the host with more.
const MOST: usize = 50_000;

/// The emitted actions that wait in a session's mailbox.
#[derive(Debug, Clone, Default)]
pub(super) struct Ahead(Arc<AtomicUsize>);

impl Ahead {
    /// Takes a place for one more.
    ///
    /// # Errors
    /// There is none: the backend has to pause.
    pub fn wait_one_more(&self) -> Result<(), Thrown> {
        if self.0.fetch_add(1, Ordering::Relaxed) < MOST {
            return Ok(());
        }
        self.0.fetch_sub(1, Ordering::Relaxed);
        let why = format!("{MOST} emitted actions wait already; pause before there are more");
        Err(Thrown { name: "QuotaExceededError".to_owned(), ..Thrown::new(why) })
    }

    /// Takes a place whether or not there is one: what ends a turn is always heard.
    pub fn wait_last(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives back the places of emitted actions that were taken out.
    pub fn taken(&self, emitted: usize) {
        if emitted > 0 {
            self.0.fetch_sub(emitted, Ordering::Relaxed);
        }
    }
}
