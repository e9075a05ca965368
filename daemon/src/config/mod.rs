//! The configuration: read from files, checked key by key, overridden by flags.

mod edit;
mod files;
mod folders;
mod once;
mod settings;
mod text;

#[cfg(test)]
mod page;

pub use edit::edit;
pub use files::{ConfigFiles, Environment, FILE, folders, parse, read, read_again};
pub use folders::Folders;
pub use settings::{
    Config, DeltaWindow, HttpApi, JavaScriptLimits, Keep, LimitSettings, Mebibytes, Per, PluginEntry,
    PolicySwitch, Port, RoutesListener, Unowned, UsageSettings,
};
