//! People, what grants and policies allow them, and strangers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod authority;
mod client_resources;
mod command_lines;
mod grants;
mod issuers;
mod pages;
mod people;
mod policies;
mod steering;
mod strangers;
mod unknown;
mod unread;
