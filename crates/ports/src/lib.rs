//! The stores a host has without any plugin: records, the vault, automations and sessions.
//!
//! Each is a native value of its registration point, and registered as a plugin registers one, so that a
//! plugin may replace any of them. What a person writes is a file in the configuration folder and is read
//! again when it is edited; what the host writes is in SQLite. Nothing here blocks a tokio worker: files and
//! SQLite are touched on threads of their own.
//!
//! ```
//! use std::sync::Arc;
//! use ostler_ports::Defaults;
//!
//! # async fn start(config_dir: &std::path::Path, host: ostler_contract::PluginHost) -> Result<(), ostler_contract::Thrown> {
//! let stores = Defaults::open(config_dir, Arc::new(|line| tracing(line))).await?;
//! stores.install(&host)?;
//! # Ok(())
//! # }
//! # fn tracing(_: String) {}
//! ```

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
mod same;
mod sessions;
mod stamp;
mod state;
mod usage;
mod vault;
mod watchers;
mod worker;
pub mod yaml;

use std::path::Path;
use std::sync::Arc;

use ostler_contract::points::{AutomationStore, RecordStore, SessionStore, Usage, Vault};
use ostler_contract::{PluginHost, Thrown};

pub use automations::{FileAutomations, MemoryAutomations};
pub use files::DiskFiles;
pub use folder::Watching;
pub use policies::FilePolicies;
pub use records::{FileRecords, memory_records};
pub use sessions::SqliteSessions;
pub use stamp::Stamp;
pub use state::{Relocated, StateDb};
pub use usage::SqliteUsage;
pub use vault::FileVault;

/// Takes the lines a store has for the daemon's output.
pub type Report = Arc<dyn Fn(String) + Send + Sync>;

/// The stores the daemon is built with.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// Records.
    pub records: RecordStore,
    /// Secrets.
    pub vault: Vault,
    /// Automations and their runs.
    pub automations: AutomationStore,
    /// Sessions, their chats and turns.
    pub sessions: SessionStore,
    /// What work cost.
    pub usage: Usage,
}

impl Defaults {
    /// Opens the stores of a configuration folder. One that cannot be opened says why; a host without it would
    /// lose what it is asked to keep.
    pub async fn open(config_dir: &Path, report: Report) -> Result<Self, Thrown> {
        let folder = config_dir.to_owned();
        let db = watchers::blocking(move || StateDb::open(&folder)).await??;
        let automations = FileAutomations::open(config_dir, db.clone(), report.clone()).await?;
        Ok(Self {
            records: Arc::new(FileRecords::new(config_dir, report.clone())).into_point(),
            vault: Arc::new(FileVault::new(config_dir, report.clone())?).into_point(),
            automations: Arc::new(automations).into_point(),
            sessions: Arc::new(SqliteSessions::new(db.clone(), report.clone())).into_point(),
            usage: Arc::new(SqliteUsage::new(db, report)).into_point(),
        })
    }

    /// Registers each, as a plugin does.
    pub fn install(&self, host: &PluginHost) -> Result<(), Thrown> {
        host.register_records(self.records.clone(), None)?;
        host.register_vault(self.vault.clone(), None)?;
        host.register_automations(self.automations.clone(), None)?;
        host.register_usage(self.usage.clone(), None)?;
        host.register_sessions(self.sessions.clone(), None)
    }
}
