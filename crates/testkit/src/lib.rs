//! A host in memory, with clients, for tests of plugins and of the host.

#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod attacks;
mod builds;
pub mod cases;
mod cluster;
mod memory_host;
pub mod mirror;
mod not_run;
pub mod postgres;
pub mod proxy;
mod raw;
mod stage;
mod transport;
pub mod wire;
pub mod wrapped_store;

pub use builds::{build, builds};
pub use cluster::{ClusteredHost, MemoryCluster};
pub use memory_host::{Builder, Lines, MemoryHost, SIGN_IN};
pub use not_run::not_run;
pub use raw::RawClient;
pub use stage::{Stage, action};
pub use transport::MemoryTransport;
