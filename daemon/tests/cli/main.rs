//! The command line, with real daemons: first use, operation, and work on plugins.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod answering;
mod authors;
mod backup;
mod commands;
mod first_use;
mod folders;
mod measuring;
#[cfg(not(any(
    feature = "acp",
    feature = "console",
    feature = "containers",
    feature = "git",
    feature = "github",
    feature = "postgres"
)))]
mod minimal;
mod operating;
mod pages;
mod printing;
mod problems;
mod secrets;
mod service;
mod starting;
mod watching;
mod webhook_verbs;
