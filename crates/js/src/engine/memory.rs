//! The memory limit of an engine's values (D-091).
//!
//! QuickJS handles a failed allocation reliably only if it can still allocate the error. A large block beyond the limit
//! fails and throws at the allocation. A small block succeeds, and the running code is interrupted at the next
//! opportunity. At a second, much higher limit every allocation fails.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use rquickjs::allocator::Allocator;

use super::Family;

/// A block from this size on is refused beyond the limit.
const LARGE: usize = 4 << 10;
/// The second limit is at least this far above the first: room for the small blocks taken between two chances to
/// interrupt.
const HEADROOM: usize = 64 << 20;

/// The collector looks for cycles once this much was charged since it last did.
const COLLECT_AFTER: usize = 8 << 20;

/// The other engines of the plugin know what this one takes to this many bytes.
const REPORTED: usize = 256 << 10;

/// What the values of one engine take. Lives on its thread.
pub(crate) struct Memory {
    limit: Option<usize>,
    family: Arc<Family>,
    reported: Cell<usize>,
    used: Cell<usize>,
    refused: Cell<bool>,
    charged: Cell<usize>,
}

impl Memory {
    /// `limit` is this engine's own, beside that of its family.
    pub(crate) fn new(limit: Option<usize>, family: Arc<Family>) -> Self {
        Self {
            limit,
            family,
            reported: Cell::new(0),
            used: Cell::new(0),
            refused: Cell::new(false),
            charged: Cell::new(0),
        }
    }

    /// How many bytes the values may take now.
    fn limit(&self) -> Option<usize> {
        let Some(shared) = self.family.limit() else { return self.limit };
        let others = self.family.used().saturating_sub(self.reported.get());
        let shared = shared.saturating_sub(others);
        Some(self.limit.map_or(shared, |own| own.min(shared)))
    }

    /// How many bytes more they may take.
    pub(crate) fn left(&self) -> usize {
        self.limit().map_or(usize::MAX, |limit| limit.saturating_sub(self.used()))
    }

    fn set_used(&self, used: usize) {
        self.used.set(used);
        let reported = self.reported.get();
        if used.abs_diff(reported) > REPORTED {
            self.family.report(reported, used);
            self.reported.set(used);
        }
    }

    /// How many bytes the values take.
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// Whether the values take more than they may.
    pub(crate) fn over(&self) -> bool {
        self.limit().is_some_and(|limit| self.used.get() > limit)
    }

    /// Takes memory that holds no value of QuickJS's, where there is room.
    pub(crate) fn charge(&self, bytes: usize) -> bool {
        let after = self.used.get().saturating_add(bytes);
        if self.limit().is_some_and(|limit| after > limit) {
            return false;
        }
        self.set_used(after);
        self.charged.set(self.charged.get().saturating_add(bytes));
        true
    }

    /// Whether so much was charged since this last held that the collector has to look for what nothing holds any more:
    /// QuickJS counts only what it takes itself.
    pub(crate) fn wants_collection(&self) -> bool {
        let wants = self.charged.get() > COLLECT_AFTER;
        if wants {
            self.charged.set(0);
        }
        wants
    }

    /// Gives back what was charged.
    pub(crate) fn discharge(&self, bytes: usize) {
        self.gave(bytes);
    }

    /// Whether something was refused since this was last asked.
    pub(crate) fn take_refused(&self) -> bool {
        self.refused.replace(false)
    }

    /// Whether `more` bytes may be taken by a block that will have `size`.
    fn grants(&self, more: usize, size: usize) -> bool {
        let Some(limit) = self.limit() else { return true };
        let after = self.used.get().saturating_add(more);
        let granted = after <= limit || (size < LARGE && after <= limit.saturating_add(limit.max(HEADROOM)));
        if !granted {
            self.refused.set(true);
        }
        granted
    }

    fn took(&self, block: *mut u8) -> *mut u8 {
        // A block that the system refused is null, and has no size.
        self.set_used(self.used.get() + usable(block));
        block
    }

    fn gave(&self, bytes: usize) {
        self.set_used(self.used.get().saturating_sub(bytes));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.family.report(self.reported.get(), 0);
    }
}

/// What hands an engine its memory: the system's own allocator, counted.
pub(crate) struct Counted(pub(crate) Rc<Memory>);

// SAFETY: every block comes from the system's `malloc` family, which aligns for any type, and goes back to it.
unsafe impl Allocator for Counted {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if !self.0.grants(size, size) {
            return std::ptr::null_mut();
        }
        // SAFETY: any size may be asked for.
        self.0.took(unsafe { libc::malloc(size) }.cast())
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        match count.checked_mul(size) {
            Some(bytes) if self.0.grants(bytes, bytes) => {
                // SAFETY: any size may be asked for.
                self.0.took(unsafe { libc::calloc(count, size) }.cast())
            }
            _ => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&mut self, block: *mut u8) {
        self.0.gave(usable(block));
        // SAFETY: the caller holds a block of this allocator's, or null.
        unsafe { libc::free(block.cast()) };
    }

    unsafe fn realloc(&mut self, block: *mut u8, size: usize) -> *mut u8 {
        let had = usable(block);
        if !self.0.grants(size.saturating_sub(had), size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller holds a block of this allocator's, or null.
        let moved: *mut u8 = unsafe { libc::realloc(block.cast(), size) }.cast();
        if moved.is_null() && size > 0 {
            // The system had none: the block is still where it was.
            return moved;
        }
        self.0.gave(had);
        self.0.took(moved)
    }

    unsafe fn usable_size(block: *mut u8) -> usize {
        usable(block)
    }
}

/// The size of a block, as the system gave it.
fn usable(block: *mut u8) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: only blocks of the system's allocator that are still held come here.
    #[cfg(target_vendor = "apple")]
    return unsafe { libc::malloc_size(block.cast()) };
    // SAFETY: as above.
    #[cfg(not(target_vendor = "apple"))]
    unsafe {
        libc::malloc_usable_size(block.cast())
    }
}
