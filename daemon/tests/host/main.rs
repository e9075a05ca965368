//! A real daemon as its clients, its people and other programs use it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod acknowledged;
mod announcing;
mod api;
mod authority;
mod automation_changes;
mod automations;
mod bad_input;
mod chats;
mod console;
mod credentials;
mod environment;
mod full_disk;
mod git;
mod git_programs;
mod git_sharing;
mod git_staging;
mod git_worktrees;
mod github;
mod lists;
mod machines;
mod observing;
mod origins;
mod people;
mod plugins;
mod routes;
mod runs;
mod serving;
mod tools_endpoint;
mod webhooks;
