//! One engine: a thread of its own, on which alone its JavaScript runs.

mod rejections;
mod shared;
mod state;
mod thread;
mod turn;
mod watch;

pub(crate) use rejections::{Rejection, Rejections};
use shared::Condition;
pub(crate) use shared::{Reply, Shared};
pub(crate) use state::{Held, Settle, State, Table};
pub use thread::Engine;
pub(crate) use thread::{Message, Post};
pub(crate) use turn::memory_used;
pub(crate) use watch::Watch;
