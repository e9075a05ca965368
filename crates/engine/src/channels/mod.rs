//! Channels that are neither a session's nor an automation's: the settings of the root channel, telemetry, and the
//! channels of plugins.

pub(crate) mod plugin;
pub mod root_settings;
pub(crate) mod telemetry;
