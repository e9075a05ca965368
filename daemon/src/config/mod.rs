//! The configuration: read from files, checked key by key, overridden by flags.

mod files;
mod settings;

pub use files::{ConfigFiles, Environment, read, read_again};
pub use settings::{Config, DeltaWindow, JavaScriptLimits, Keep, PluginEntry, Port, RoutesListener, Unowned};
