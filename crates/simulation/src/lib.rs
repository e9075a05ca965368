//! A cluster of hosts on a model of its database, in one thread and in simulated time. A seed decides about everything: what
//! clients do, how long each message takes, and which faults happen when; so the same seed has the same history.
//!
//! Each host is the engine with its stores, its automations and its links, on a runtime of its own, which can be ended, suspended
//! and continued. Between them is a network whose connections can be held up and cut. What is not simulated: the server with
//! its sockets, plugins in JavaScript, and SQL. The model of the database ([`database`]) passes the same suites as PostgreSQL
//! with its plugin, and a host uses it with the protocol of the plugin ([`member`]).

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod checker;
mod client;
pub mod database;
pub mod entropy;
pub mod history;
mod host;
mod ledger;
pub mod machine;
pub mod member;
pub mod network;
pub mod random;
mod schedule;
pub mod simulation;
