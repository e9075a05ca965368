//! The built-in stores of a host: records, the vault, automations and sessions.
//!
//! Each is a native value of its registration point, registered like a plugin's, so that a plugin can replace any of
//! them. What users write is in files in the configuration folder, which are read again when they are edited; what the
//! host writes is in SQLite. Nothing here blocks a tokio worker: separate threads access files and SQLite.

#![deny(missing_docs)]

/// Creates a member of a registration point that contains its store.
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
mod disk;
mod files;
mod folder;
pub mod frontmatter;
mod policies;
mod records;
mod runs;
mod sessions;
mod stamp;
mod state;
mod transfer;
mod usage;
mod vault;
mod worker;
pub mod yaml;

pub use ostler_contract::stores::Report;

pub use automations::{FileAutomations, MemoryAutomations};
pub use disk::{DiskProbe, free_space};
pub use files::DiskFiles;
pub use folder::Watching;
pub use policies::FilePolicies;
pub use records::{FileRecords, memory_records};
pub use runs::RunRetention;
pub use sessions::SqliteSessions;
pub use stamp::Stamp;
pub use state::{Relocated, StateDb};
pub use transfer::{Bodies, EditedContent, EditedFile, FileTransfer, read_edited_files, write_edited_file};
pub use usage::SqliteUsage;
pub use vault::FileVault;

#[cfg(test)]
mod fuzzing;
