//! `@ostler/acp` on a real daemon: agents that deviate, fail and hang, and real ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, clippy::zombie_processes)]

#[path = "../support/mod.rs"]
mod support;

mod account;
mod agent;
mod always;
mod approvals;
mod bots;
mod choices;
mod client_plugins;
mod client_tools;
mod command_turns;
mod defaults;
mod deviations;
mod editor;
mod editor_answers;
mod faults;
mod floods;
mod frames;
mod listing;
mod machines;
mod model;
mod presets;
mod processes;
mod real;
mod record;
mod requests;
mod schema;
mod schema_table;
mod talk;
mod tools;
mod turns;
mod unstable;
mod variants;
