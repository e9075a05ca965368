//! The Agent Host Protocol as this host speaks it.
//!
//! The wire types are Microsoft's own ([`wire`], the `ahp-types` crate). What stands here is what a host
//! adds to them: one table of commands ([`commands`]) and one of actions ([`actions`]), each row carrying the
//! grant it asks for; JSON-RPC framing that echoes ids as they came ([`message`]); errors ([`error`]); the
//! two protocol versions and what one lacks of the other ([`version`]); channel URIs ([`uri`]) and the
//! vocabulary of grants ([`grants`]).
//!
//! Nothing here does I/O or reads a clock.

#![deny(missing_docs)]

pub mod actions;
pub mod commands;
pub mod error;
pub mod grants;
pub mod message;
pub mod names;
pub mod nearest;
pub mod own;
mod resource;
pub mod run_list;
pub mod surrogates;
pub mod unread;
pub mod uri;
pub mod version;

pub use ahp_types as wire;
pub use error::RpcError;
pub use message::{Id, Message};
pub use resource::bare_resource;
pub use serde_json::{Map, Value, json};
pub use version::Version;

/// A JSON object, as `_meta`, `config` and other open maps travel.
pub type JsonObject = serde_json::Map<String, Value>;
