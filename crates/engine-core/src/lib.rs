//! The base of the engine: time, numbers, the log, options, limits, events, and the path of a frame from the one
//! sequence to a client's outbox. It does not know users, sessions or connections.

pub mod agents;
pub mod backlog;
pub mod clock;
pub mod editor_settings;
pub mod envelope;
pub mod events;
pub mod fanout;
pub mod feed;
pub mod file_uris;
pub mod ids;
pub mod lean_channel;
pub mod limits;
pub mod link_queue;
pub mod local_system;
pub mod log;
pub mod long_work;
pub mod message;
pub mod options;
pub mod outbound;
pub mod outbox;
pub mod plugin_folders;
pub mod refusals;
pub mod responder;
pub mod root;
pub mod shared;
pub mod stage;
pub mod tasks;
pub mod terminal_lists;
pub mod titles;
pub mod traces;
pub mod weak;
pub mod web_links;
pub mod wire;
pub mod yaml;
