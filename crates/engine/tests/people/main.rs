//! People, what grants and policies allow them, and strangers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod client_resources;
mod grants;
mod people;
mod policies;
mod strangers;
