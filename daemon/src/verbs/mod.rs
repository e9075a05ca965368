//! What the command line does besides serving: one file per word.

mod ask;
mod config;
mod plugin;
mod restart;
mod start;
mod status;
mod stop;
pub mod vault;

pub use config::config;
pub use plugin::{PluginVerb, plugin};
pub use restart::{RestartFlags, restart};
pub use start::start;
pub use status::status;
pub use stop::stop;
pub use vault::VaultVerb;
