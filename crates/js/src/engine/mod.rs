//! One engine: a dedicated thread, the only one that runs its JavaScript.

mod family;
mod heap;
mod idle;
mod memory;
mod poll;
mod rejections;
mod shared;
mod state;
mod thread;
mod turn;
mod watch;
mod worker;

pub(crate) use family::Family;
pub use heap::{HeapSummary, HeapUse};
pub(crate) use idle::waited;
pub(crate) use memory::Memory;
pub(crate) use rejections::{Rejection, Rejections};
use shared::Condition;
pub(crate) use shared::{Reply, Shared};
pub(crate) use state::{BoundFunction, Settle, State, Table};
pub use thread::Engine;
pub(crate) use thread::{Message, Post};
pub(crate) use watch::{Overrun, Watch};
pub(crate) use worker::{Ended, Link, Setup};
