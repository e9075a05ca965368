//! Real daemons on a real PostgreSQL: their stores, users, moves from and to files, and clusters. `.ci/postgres` runs the
//! ignored tests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod documented;
mod migrate;
mod revocations;
mod stores;
mod users;
