//! The stores of @ostler/postgres on a real PostgreSQL. `.ci/postgres` runs these tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod growth;
mod interruptions;
mod poolers;
mod suites;
mod switch_over;
mod texts;
mod versions;
