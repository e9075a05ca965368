//! The stores a host has without any plugin.

#![deny(missing_docs)]

pub mod atomic;
#[cfg(feature = "conformance")]
pub mod conformance;
mod folder;
pub mod frontmatter;
mod records;
mod runs;
mod same;
mod sessions;
mod stamp;
mod state;
mod vault;
mod watchers;
mod worker;
pub mod yaml;

use std::sync::Arc;

pub use folder::Watching;
pub use records::{FileRecords, memory_records};
pub use sessions::SqliteSessions;
pub use state::StateDb;
pub use vault::FileVault;

/// Takes the lines a store has for the daemon's output.
pub type Report = Arc<dyn Fn(String) + Send + Sync>;
