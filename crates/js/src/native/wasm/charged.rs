//! The memory of a store, charged to its plugin.

use std::rc::Rc;

use wasmi::ResourceLimiter;
use wasmi::errors::{MemoryError, TableError};

use crate::engine::Memory;

type Limited<T> = std::result::Result<T, wasmi_core::LimiterError>;

/// The size of a table entry.
const ENTRY: usize = 16;

/// The memory that a store has charged to the plugin.
pub(super) struct Charged {
    memory: Rc<Memory>,
    taken: usize,
    last: usize,
    refused: bool,
}

impl Charged {
    pub(super) fn new(memory: Rc<Memory>) -> Self {
        Self { memory, taken: 0, last: 0, refused: false }
    }

    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let taken = self.memory.charge(bytes);
        if taken {
            self.taken += bytes;
        }
        self.last = if taken { bytes } else { 0 };
        self.refused |= !taken;
        taken
    }

    /// Returns whether an allocation was refused since the last query.
    pub(super) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    fn give_last(&mut self) {
        self.memory.discharge(self.last);
        self.taken -= self.last;
        self.last = 0;
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.memory.discharge(self.taken);
    }
}

impl ResourceLimiter for Charged {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Limited<bool> {
        let fits = maximum.is_none_or(|maximum| desired <= maximum);
        Ok(fits && self.take(desired.saturating_sub(current)))
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Limited<bool> {
        let fits = maximum.is_none_or(|maximum| desired <= maximum);
        Ok(fits && self.take(desired.saturating_sub(current).saturating_mul(ENTRY)))
    }

    fn memory_grow_failed(&mut self, _: &MemoryError) -> Limited<()> {
        self.give_last();
        Ok(())
    }

    fn table_grow_failed(&mut self, _: &TableError) -> Limited<()> {
        self.give_last();
        Ok(())
    }

    fn instances(&self) -> usize {
        10_000
    }

    fn tables(&self) -> usize {
        10_000
    }

    fn memories(&self) -> usize {
        10_000
    }
}
