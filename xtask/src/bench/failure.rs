//! Why a benchmark could not be run, as a sentence.

use std::fmt;

/// Why a benchmark could not be run.
#[derive(Debug)]
pub struct Failure(String);

/// What may fail with one.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A sentence.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// Says what was being done when something failed.
pub trait During<T> {
    /// `<what>: <why>`
    fn during(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> During<T> for std::result::Result<T, E> {
    fn during(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure(format!("{what}: {error}")))
    }
}
