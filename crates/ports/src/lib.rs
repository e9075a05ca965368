//! The stores a host has without any plugin: records, the vault, automations and sessions.
//!
//! Each is a native value of its registration point, and registered as a plugin registers one, so that a
//! plugin may replace any of them. What a person writes is a file in the configuration folder and is read
//! again when it is edited; what the host writes is in SQLite. Nothing here blocks a tokio worker: files and
//! SQLite are touched on threads of their own.

#![deny(missing_docs)]

/// A member of a point that holds the store it is of.
macro_rules! member {
    ($store:expr, $function:expr) => {{
        let store = $store.clone();
        ostler_contract::Call::new(move |arguments| $function(&*store, arguments))
    }};
}

pub mod atomic;
mod automations;
#[cfg(feature = "conformance")]
pub mod conformance;
mod files;
mod folder;
pub mod frontmatter;
mod policies;
mod records;
mod runs;
mod sessions;
mod stamp;
mod state;
mod usage;
mod vault;
mod worker;
pub mod yaml;

pub use ostler_contract::stores::Report;

pub use automations::{FileAutomations, MemoryAutomations};
pub use files::DiskFiles;
pub use folder::Watching;
pub use policies::FilePolicies;
pub use records::{FileRecords, memory_records};
pub use runs::RunRetention;
pub use sessions::SqliteSessions;
pub use stamp::Stamp;
pub use state::{Relocated, StateDb};
pub use usage::SqliteUsage;
pub use vault::FileVault;
