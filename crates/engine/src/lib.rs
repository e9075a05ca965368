//! The engine of a host: sessions, automations, grants and fan-out, the state and its order.
//!
//! The only entry point is a [`Connection`], which receives parsed messages and answers into an [`outbox`]. Each
//! session has a mailbox; every read and change of the session passes it, in order. The resulting actions have one
//! host-wide sequence of numbers and are encoded once for all subscribers.
//!
//! The engine has no sockets, files, JavaScript or clock: it uses tokio's time, which tests pause, and a [`Clock`] that
//! is passed in.
//!
//! Each folder is a layer with a list of the layers it may import, in ARCHITECTURE.md of this crate and in `cargo xtask tidy`.

mod automations;
mod channels;
mod core;
mod front;
pub mod host;
mod resources;
pub mod sessions;
pub mod usage;
pub mod users;
mod workspace;

pub use crate::automations::{Automations, found as runs, schedule::next_times};
pub use crate::channels::{Channels, root_settings as settings};
pub use crate::core::clock::Clock;
pub use crate::core::file_uris::{file_path, file_uri};
pub use crate::core::limits::Limits;
pub use crate::core::local_system::{Found, LocalSystem, Pinned, Stamp};
pub use crate::core::log::Log;
pub use crate::core::options::{HostOptions, McpServers};
pub use crate::core::outbound::Outbound;
pub use crate::core::plugin_folders::{PluginFolder, PluginFolders};
pub use crate::core::shared::Core;
pub use crate::core::stage::Stage;
pub use crate::core::web_links::Links;
pub use crate::core::yaml::Yaml;
pub use crate::core::{clock, events, fanout, feed, outbox, responder, wire};
pub use crate::front::Front;
pub use crate::front::connection::{self, Connection};
pub use crate::front::host_calls::PluginHostCalls;
pub use crate::front::relay::{LinkDialer, LinkTransport};
pub use crate::host::{ClusterState, Gauges, Host};
pub use crate::sessions::create_chat_tool::session_tools;
pub use crate::users::People;
pub use crate::users::principal::{self, Gate, Principal};
