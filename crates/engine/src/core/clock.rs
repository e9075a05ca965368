//! What time it is: handed in, so that the engine reads no clock of its own and tests can set it.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// A source of wall-clock time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// A clock from a function.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// A clock that starts at `start` and goes on with tokio's time, paused when tokio's is.
    pub fn following_tokio(start: Timestamp) -> Self {
        let begun = tokio::time::Instant::now();
        Self::new(move || {
            let passed = begun.elapsed();
            start.checked_add(passed).unwrap_or(start)
        })
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// Now, as the protocol writes it: ISO 8601 with milliseconds.
    pub fn iso(&self) -> String {
        iso(self.now())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Clock")
    }
}

/// ISO 8601 with milliseconds.
pub fn iso(timestamp: Timestamp) -> String {
    format!("{timestamp:.3}")
}

/// Milliseconds from one ISO 8601 instant to another, never negative; 0 where one does not read.
pub fn millis_between(from: &str, to: Timestamp) -> i64 {
    from.parse::<Timestamp>().map_or(0, |from| (to.as_millisecond() - from.as_millisecond()).max(0))
}
