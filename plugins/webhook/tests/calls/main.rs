//! Calls of endpoints: whose they are, what they start, and what their senders are told.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

mod bodies;
mod bots;
mod cloudevents;
mod clustered;
mod day;
mod echo;
mod endpoints;
mod explain;
mod extras;
mod filters;
mod log;
mod malformed;
mod more_senders;
mod not_stored;
mod ordered;
mod replays;
mod seen_through;
mod senders;
mod shared_log;
mod unknown;
mod unstored_turns;
