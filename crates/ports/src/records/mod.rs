//! The record stores: in files, and in memory. Spec: *Records*.

mod encoded;
mod file;
mod find;
mod format;
mod memory;
mod uncached;

pub use file::FileRecords;
pub(crate) use format::RecordFormat;
pub use memory::memory_records;

use ostler_contract::stores::records::{check_options, check_record};
