//! What the engine asks of the system it runs on. Handed in by whoever may read files.

use std::collections::BTreeMap;
use std::fmt;

/// What stands at a path of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// A directory; a file otherwise.
    pub is_directory: bool,
    /// Where it is once every link is followed.
    pub real: String,
}

/// A part the versions file pins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pinned {
    /// The version.
    pub version: String,
    /// The package it is built from, where the file names one.
    pub package: Option<String>,
    /// Parts that have to stand beside it.
    pub requires: Vec<String>,
}

/// When a file was written, in nanoseconds of the system's clock, and its size.
pub type Stamp = (u128, u64);

/// What is asked of this host while a plan is made; handed in by whoever may read files.
pub trait LocalSystem: Send + Sync {
    /// The home of the user the host runs as.
    fn home(&self) -> Option<String>;
    /// What stands at a path.
    fn look(&self, path: &str) -> Option<Found>;
    /// What tells whether a file is another one than before; nothing where there is none.
    fn stamp(&self, _path: &str) -> Option<Stamp> {
        None
    }
    /// The parts the versions file pins, read anew.
    ///
    /// # Errors
    /// The sentence that says what is wrong with the file.
    fn parts(&self) -> Result<BTreeMap<String, Pinned>, String>;
}

impl fmt::Debug for dyn LocalSystem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LocalSystem")
    }
}
