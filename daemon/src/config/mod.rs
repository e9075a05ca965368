//! The configuration: read from files, checked key by key, overridden by flags.

mod edit;
mod files;
mod once;
mod settings;

#[cfg(test)]
mod page;

pub use edit::edit;
pub use files::{ConfigFiles, Environment, FILE, folder, parse, read, read_again};
pub use settings::{
    Config, DeltaWindow, HttpApi, JavaScriptLimits, Keep, Per, PluginEntry, PolicySwitch, Port,
    RoutesListener, Unowned, UsageSettings,
};
