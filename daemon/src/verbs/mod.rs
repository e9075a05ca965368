//! The commands of the command line, one file each.

pub(crate) mod agent;
mod ask;
mod author;
mod automation;
mod backup;
mod config;
mod init;
mod logs;
mod notify;
mod plugin;
pub mod restart;
mod session;
mod start;
pub mod status;
mod stop;
mod usage;
pub mod users;
pub mod vault;
mod webhook;

pub use agent::{AgentVerb, agent};
pub use automation::{AutomationVerb, automation};
pub use backup::{BackupFlags, RestoreFlags, backup, restore};
pub use config::config;
pub use init::{InitFlags, init};
pub use logs::{LogsFlags, logs};
pub use notify::{NotifyVerb, notify};
pub use plugin::{PluginVerb, plugin};
pub use restart::RestartFlags;
pub use session::{SessionVerb, session};
pub use start::start;
pub use stop::stop;
pub use usage::{UsageFlags, usage};
pub use users::{GroupVerb, UserVerb};
pub use vault::VaultVerb;
pub use webhook::webhook;
