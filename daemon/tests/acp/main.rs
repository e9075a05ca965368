//! `@ostler/acp` on a real daemon: agents that deviate, fail and hang, and real ones.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod deviations;
mod faults;
mod processes;
mod real;
mod talk;
mod turns;
