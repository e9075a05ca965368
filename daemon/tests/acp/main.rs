//! `@ostler/acp` on a real daemon: agents that deviate, fail and hang, and real ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, clippy::zombie_processes)]

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod bots;
mod deviations;
mod editor;
mod faults;
mod frames;
mod listing;
mod model;
mod processes;
mod real;
mod talk;
mod tools;
mod turns;
