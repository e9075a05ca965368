//! Automations: what fires them, how runs follow each other, whose they are, and several hosts that share them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

mod clock;
mod firing;
mod ordered;
mod overlap;
mod owners;
mod shared;
mod storage;
mod watch;
