//! The host's log: lines a person reads, handed to whoever writes them.

use std::fmt;
use std::sync::Arc;

/// Where lines go.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(&str) + Send + Sync>);

impl Log {
    /// A log that hands each line to `write`.
    pub fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    /// Writes one line.
    pub fn line(&self, line: impl fmt::Display) {
        (self.0)(&line.to_string());
    }
}

impl Default for Log {
    fn default() -> Self {
        Self::new(|line| tracing::info!("{line}"))
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Log")
    }
}
