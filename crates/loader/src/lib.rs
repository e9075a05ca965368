//! The whole way of one plugin: configuration entry, resolution, import, id, options, secrets, `apply`; and
//! the fold of all of them into the one registry.
//!
//! A plugin that goes wrong anywhere costs itself and one line. Spec: *Plugin id*, *Configuration entry*,
//! *Options and credentials*, *Plugin loading*.

mod hidden;
mod id;
mod inspect;
mod load;
mod manifest;
pub mod options;
mod resolve;

pub use hidden::Hidden;
pub use inspect::{Importer, InspectedPlugin};
pub use load::{Loaded, LoadedPlugin, Loader, PluginConfig, State};
pub use manifest::{Manifest, satisfies};
pub use resolve::{Resolved, resolve};
