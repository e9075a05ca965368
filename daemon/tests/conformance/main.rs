//! One suite for plugins of both kinds: each case is written once and run against a plugin written twice, natively
//! and in JavaScript, loaded by the loader into a host in memory.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
mod side;

mod agent;
mod around;
mod cases;
mod channel;
mod chat_preamble;
mod computers;
mod containers;
mod copies;
mod examples;
mod host;
mod lanes;
mod listener;
mod machine_examples;
mod method;
mod module;
mod ports;
mod registration;
mod resource_provider;
mod resources;
mod route;
mod session_setting;
mod stores;
mod terminals;
mod tool;
mod tools_server;
mod trigger_type;
mod worker;
