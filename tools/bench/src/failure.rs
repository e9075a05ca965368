//! The error of a benchmark.

use std::fmt;

/// The error of a benchmark.
#[derive(Debug)]
pub struct Failure(String);

/// A result with a [`Failure`].
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Creates a failure from a sentence.
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

/// Adds a description of the failed operation to an error.
pub trait During<T> {
    /// Returns the error as `<what>: <why>`.
    fn during(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> During<T> for std::result::Result<T, E> {
    fn during(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure(format!("{what}: {error}")))
    }
}
