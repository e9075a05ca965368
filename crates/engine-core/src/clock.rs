//! The wall clock, passed in so that tests can set it.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// A source of wall-clock time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Creates a clock from a function.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Creates a clock that starts at `start` and advances with tokio's time, also when that is paused.
    pub fn following_tokio(start: Timestamp) -> Self {
        let begun = tokio::time::Instant::now();
        Self::new(move || {
            let passed = begun.elapsed();
            start.checked_add(passed).unwrap_or(start)
        })
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// Returns the current time as the protocol writes it: ISO 8601 with milliseconds.
    pub fn iso(&self) -> String {
        iso(self.now())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Clock")
    }
}

/// Formats a time as ISO 8601 with milliseconds.
pub fn iso(timestamp: Timestamp) -> String {
    format!("{timestamp:.3}")
}

/// Returns the milliseconds from one ISO 8601 instant to another, never negative; 0 if one is invalid.
pub fn millis_between(from: &str, to: Timestamp) -> i64 {
    from.parse::<Timestamp>().map_or(0, |from| (to.as_millisecond() - from.as_millisecond()).max(0))
}
