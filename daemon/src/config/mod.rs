//! The configuration: read from files, checked key by key, overridden by flags.

mod declare;
mod edit;
mod files;
mod folders;
mod keys;
mod once;
mod text;

#[cfg(test)]
mod page;

pub use declare::{Apply, Effect, Key, RootSetting};
pub use edit::edit;
pub use files::{ConfigFiles, Environment, FILE, folders, future_folders, parse, read, read_again};
pub use folders::Folders;
pub use keys::{
    Config, DeltaWindow, HttpApi, JavaScriptLimits, KEYS, LimitSettings, LogFormat, LogSettings, Mebibytes,
    OtlpSettings, Per, PluginEntry, PolicySwitch, Port, RoutesListener, RunFlags, RunSettings,
    StorageLocation, Unowned, UsageSettings,
};
