//! The base of the engine: time, numbers, the log, options, limits, events, and the path of a frame from the one
//! sequence to a client's outbox. It does not know users, sessions or connections.

pub(crate) mod agents;
pub mod backlog;
pub mod clock;
pub(crate) mod editor_settings;
pub(crate) mod envelope;
pub mod events;
pub mod fanout;
pub mod feed;
pub(crate) mod file_uris;
pub(crate) mod ids;
pub(crate) mod lean_channel;
pub(crate) mod limits;
pub(crate) mod link_queue;
pub(crate) mod local_system;
pub(crate) mod log;
pub(crate) mod long_work;
pub(crate) mod message;
pub(crate) mod options;
pub(crate) mod outbound;
pub mod outbox;
pub(crate) mod plugin_folders;
pub(crate) mod refusals;
pub mod responder;
pub(crate) mod root;
pub mod shared;
pub(crate) mod stage;
pub(crate) mod tasks;
pub(crate) mod terminal_lists;
pub(crate) mod titles;
pub(crate) mod traces;
pub(crate) mod weak;
pub(crate) mod web_links;
pub mod wire;
pub(crate) mod yaml;
