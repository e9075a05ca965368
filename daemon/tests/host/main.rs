//! A real daemon as its clients, its people and other programs use it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod acknowledged;
mod announcing;
mod api;
#[cfg(feature = "console")]
mod authority;
#[cfg(all(feature = "git", feature = "github"))]
mod automation_changes;
mod automations;
mod bad_input;
mod chats;
#[cfg(feature = "console")]
mod console;
mod credentials;
#[cfg(all(feature = "acp", feature = "git"))]
mod environment;
mod full_disk;
#[cfg(feature = "git")]
mod git;
#[cfg(feature = "git")]
mod git_programs;
#[cfg(feature = "git")]
mod git_sharing;
#[cfg(feature = "git")]
mod git_staging;
#[cfg(feature = "git")]
mod git_worktrees;
#[cfg(all(feature = "git", feature = "github"))]
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
