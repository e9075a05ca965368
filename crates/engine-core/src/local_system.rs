//! The engine's access to the local system, passed in because the engine reads no files.

use std::collections::BTreeMap;
use std::fmt;

/// The file or directory at a path of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Whether it is a directory; otherwise it is a file.
    pub is_directory: bool,
    /// Its real path, with links followed.
    pub real: String,
}

/// A part that the versions file pins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pinned {
    pub version: String,
    /// Its source package, if the file names one.
    pub package: Option<String>,
    /// Parts that it requires.
    pub requires: Vec<String>,
}

/// The modification time of a file, in nanoseconds of the system's clock, and its size.
pub type Stamp = (u128, u64);

/// Access to this host for plans of machines.
pub trait LocalSystem: Send + Sync {
    /// Returns the home directory of the host's user.
    fn home(&self) -> Option<String>;
    /// Returns the file or directory at a path.
    fn look(&self, path: &str) -> Option<Found>;
    /// Returns the stamp of a file, which shows whether it has changed; `None` if there is no file.
    fn stamp(&self, _path: &str) -> Option<Stamp> {
        None
    }
    /// Reads the parts that the versions file pins.
    ///
    /// # Errors
    /// A message with what is wrong with the file.
    fn parts(&self) -> Result<BTreeMap<String, Pinned>, String>;
}

impl fmt::Debug for dyn LocalSystem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LocalSystem")
    }
}
