//! What happened, in order, with the time of the simulation.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// The recorded history, and the time of the simulation.
#[derive(Debug, Clone, Default)]
pub struct History(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    now: Duration,
    lines: Vec<String>,
}

impl History {
    /// Returns the time since the beginning.
    pub fn now(&self) -> Duration {
        self.0.lock().now
    }

    /// Sets the time.
    pub fn set_now(&self, now: Duration) {
        self.0.lock().now = now;
    }

    /// Adds a line.
    pub fn note(&self, who: &str, what: impl Display) {
        let mut inner = self.0.lock();
        let line = format!("{:9.3} {who}: {what}", inner.now.as_secs_f64());
        inner.lines.push(line);
    }

    /// Returns all lines.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().lines.clone()
    }
}
