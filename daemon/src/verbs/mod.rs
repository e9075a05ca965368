//! What the command line does besides serving: one file per word.

mod ask;
mod author;
mod config;
pub mod people;
mod plugin;
pub mod restart;
mod start;
pub mod status;
mod stop;
pub mod vault;
mod webhook;

pub use config::config;
pub use people::{GroupVerb, UserVerb};
pub use plugin::{PluginVerb, plugin};
pub use restart::RestartFlags;
pub use start::start;
pub use stop::stop;
pub use vault::VaultVerb;
pub use webhook::webhook;
