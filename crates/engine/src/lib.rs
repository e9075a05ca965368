//! The engine of a host: sessions, automations, grants and fan-out, the state and its order.
//!
//! One door leads in: a [`Connection`] that takes parsed messages and answers into an [`outbox`]. Each session
//! has a mailbox of its own; everything that reads or changes it passes there, in order. What comes of it goes
//! out under one host-wide number, encoded once for all who watch.
//!
//! The engine has no sockets, no files, no JavaScript and no clock of its own: time is tokio's, which tests
//! pause, and a [`Clock`] that is handed in.

#![deny(missing_docs)]

mod advertised;
mod agents;
mod automations;
mod changes_follow;
mod changesets;
mod client_resources;
pub mod clock;
mod closing;
mod commands;
mod completions;
pub mod connection;
mod containers;
mod directories;
mod editor_settings;
pub mod events;
pub mod fanout;
mod file_uris;
mod held;
pub mod host;
mod host_calls;
mod in_time;
pub mod limits;
pub mod log;
mod machines;
mod mcp_servers;
mod mentions;
pub mod outbox;
mod peer;
pub mod people;
mod plugin_channels;
mod plugin_commands;
mod plugin_gate;
mod policies;
pub mod principal;
mod pull_requests;
mod refusals;
mod resources;
mod reverse;
mod root;
mod session_settings;
mod session_tools;
pub mod sessions;
pub mod settings;
mod telemetry;
mod terminals;
pub mod usage;
mod watched;
pub mod wire;
mod worktrees;

pub use clock::Clock;
pub use connection::Connection;
pub use host::{Host, HostOptions, McpServers, Outbound, Yaml};
pub use host_calls::HostDoor;
pub use limits::Limits;
pub use log::Log;
pub use machines::{Found, Here, Pinned, Stamp};
pub use people::People;
pub use principal::{Gate, Principal};
pub use session_tools::session_tools;
