//! Plugins in JavaScript: what they find, what they do, and what becomes of those that go wrong.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/server.rs"]
mod server;
#[path = "../support/mod.rs"]
mod support;

mod contract;
mod differential;
mod http;
mod http2;
mod isolation;
mod modules;
mod node;
mod profiling;
mod recorded;
mod sdk;
mod source_maps;
mod stores;
mod surface;
mod testing;
mod workers;
