//! Loading of plugins: configuration entry, resolution, import, id, options, secrets, `apply`, and the merge of all
//! registrations into one registry.
//!
//! A plugin that fails at any step is skipped with one line. Spec: *Plugin id*, *Configuration entry*, *Options and
//! credentials*, *Plugin loading*.

mod hidden;
mod id;
mod inspect;
mod load;
mod manifest;
pub mod options;
mod resolve;

pub use hidden::Hidden;
pub use inspect::{Importer, InspectedPlugin, LineSink};
pub use load::{Loaded, LoadedPlugin, Loader, PluginConfig, State};
pub use manifest::{Manifest, satisfies};
pub use resolve::{Resolved, resolve};
