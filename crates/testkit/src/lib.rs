//! A host in memory, with clients, for tests of plugins and of the host.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod memory_host;
mod raw;
mod transport;
pub mod wire;

pub use memory_host::{Builder, Lines, MemoryHost};
pub use raw::RawClient;
pub use transport::MemoryTransport;
