//! The stores and the files of a host, from outside.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod edits;
mod killed;
mod lines;
mod not_run;

mod atomic;
mod automations;
mod files;
mod find_runs;
mod install;
mod policies;
mod records;
mod relocate;
mod state;
mod strangers;
mod usage;
mod vault;
