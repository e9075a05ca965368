//! What stores of the same point have in common, wherever they store: validation, equality, and the notification of watchers.

pub mod automations;
pub mod edits;
pub mod equality;
pub mod records;
mod report;
pub mod runs;
pub mod transfer;
mod unreadable;
pub mod watchers;

pub use report::Report;
pub use unreadable::Unreadable;
pub use watchers::Watchers;
