//! Several real daemons on one real PostgreSQL. `.ci/postgres` runs these tests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod clock;
mod disk;
mod faults;
mod history;
mod hosts;
mod load;
mod log;
mod ownership;
mod relay;
mod runs;
#[path = "../tls/mod.rs"]
mod tls;
