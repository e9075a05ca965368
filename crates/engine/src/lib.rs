//! The engine of a host: sessions, automations, grants and fan-out, the state and its order.
//!
//! The only entry point is a [`Connection`], which receives parsed messages and answers into an [`outbox`]. Each
//! session has a mailbox; every read and change of the session passes it, in order. The resulting actions have one
//! host-wide sequence of numbers and are encoded once for all subscribers.
//!
//! The engine has no sockets, files, JavaScript or clock: it uses tokio's time, which tests pause, and a [`Clock`] that
//! is passed in.
//!
//! This crate is its upper layer: channels, connections and the host. ARCHITECTURE.md of this crate lists the layers below, each
//! a crate; what others need of those is exported here.

mod channels;
mod front;
pub mod host;

pub use crate::channels::{Channels, root_settings as settings};
pub use crate::front::Front;
pub use crate::front::connection::{self, Connection};
pub use crate::front::host_calls::PluginHostCalls;
pub use crate::front::relay::{LinkDialer, LinkTransport};
pub use crate::host::{ClusterState, Gauges, Host};
pub use ostler_engine_automations::{Automations, found as runs, schedule::in_words, schedule::next_times};
pub use ostler_engine_core::clock::Clock;
pub use ostler_engine_core::file_uris::{file_path, file_uri};
pub use ostler_engine_core::limits::Limits;
pub use ostler_engine_core::local_system::{Found, LocalSystem, Pinned, Stamp};
pub use ostler_engine_core::log::Log;
pub use ostler_engine_core::options::{HostOptions, McpServers};
pub use ostler_engine_core::outbound::Outbound;
pub use ostler_engine_core::plugin_folders::{PluginFolder, PluginFolders};
pub use ostler_engine_core::shared::Core;
pub use ostler_engine_core::stage::Stage;
pub use ostler_engine_core::web_links::Links;
pub use ostler_engine_core::yaml::Yaml;
pub use ostler_engine_core::{clock, events, fanout, feed, outbox, responder, wire};
pub use ostler_engine_sessions as sessions;
pub use ostler_engine_sessions::create_chat_tool::session_tools;
pub use ostler_engine_users::users::People;
pub use ostler_engine_users::users::principal::{self, Gate, Principal};
pub use ostler_engine_users::{usage, users};
