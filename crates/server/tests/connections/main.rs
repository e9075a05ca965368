//! Connections over real sockets: those of clients, of senders of HTTP requests and of other hosts.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod closing;
mod doors;
mod heads;
mod links;
