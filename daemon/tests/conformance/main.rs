//! One suite for plugins of both kinds: each case is written once and run against a plugin written twice, natively
//! and in JavaScript, loaded by the loader into a host in memory.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
mod side;

mod agent;
mod cases;
mod channel;
mod chat_preamble;
mod copies;
mod examples;
mod host;
mod listener;
mod method;
mod module;
mod ports;
mod registration;
mod resource_provider;
mod resources;
mod route;
mod session_setting;
mod stores;
mod tool;
mod tools_server;
mod trigger_type;
