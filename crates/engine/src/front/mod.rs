//! The way in: connections and what their messages ask, plugins' own connections, and what plugins ask of the host.

pub(crate) mod advertised;
pub(crate) mod client_requests;
pub(crate) mod commands;
pub(crate) mod completions;
pub mod connection;
pub(crate) mod host_calls;
pub(crate) mod mentions;
pub(crate) mod peer;
pub(crate) mod plugin_commands;
