//! The Agent Host Protocol as this host speaks it.
//!
//! The wire types are Microsoft's ([`wire`], the `ahp-types` crate). This crate adds what a host needs: a table of
//! commands ([`commands`]) and one of actions ([`actions`]), whose rows contain the required grant; JSON-RPC framing
//! that returns ids unchanged ([`message`]); errors ([`error`]); the differences between the two protocol versions
//! ([`version`]); channel URIs ([`uri`]) and grants ([`grants`]).
//!
//! Nothing here does I/O or reads a clock.

#![deny(missing_docs)]

pub mod actions;
pub mod commands;
pub mod decimal;
pub mod error;
pub mod event_path;
pub mod grants;
pub mod message;
pub mod names;
pub mod nearest;
pub mod origins;
pub mod own;
mod resource;
pub mod run_list;
pub mod sent;
pub mod surrogates;
pub mod template;
pub mod unread;
pub mod uri;
pub mod version;

pub use ahp_types as wire;
pub use error::RpcError;
pub use message::{Id, Message};
pub use resource::bare_resource;
pub use serde_json::{Map, Value, json};
pub use version::Version;

/// A JSON object, the form of `_meta`, `config` and other open maps.
pub type JsonObject = serde_json::Map<String, Value>;

#[cfg(test)]
mod fuzzing;
