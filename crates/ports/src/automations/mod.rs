//! The automation stores: definitions in files that users edit, or in memory; runs in the state database.

mod file;
mod format;
mod memory;

pub use file::FileAutomations;
pub(crate) use format::{automation_text, read_automation};
pub use memory::MemoryAutomations;
