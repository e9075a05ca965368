//! What stores of the same point have in common, wherever they store: validation, equality, and the notification of watchers.

pub mod automations;
pub mod equality;
pub mod records;
pub mod runs;
pub mod transfer;
pub mod watchers;

use std::sync::Arc;

pub use watchers::Watchers;

/// Receives the lines that a store writes to the log.
pub type Report = Arc<dyn Fn(String) + Send + Sync>;
