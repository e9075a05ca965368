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

/// The minimum size of a block whose allocation fails beyond the limit.
const LARGE: usize = 4 << 10;
/// The minimum distance of the second limit from the first, for the small blocks allocated between two interrupt
/// checks.
const HEADROOM: usize = 64 << 20;

/// The charged bytes after which the cycle collector runs again.
const COLLECT_AFTER: usize = 8 << 20;

/// The granularity, in bytes, with which the other engines of the plugin learn of this engine's usage.
const REPORTED: usize = 256 << 10;

/// The memory usage of one engine's values. Lives on the engine's thread.
pub(crate) struct Memory {
    limit: Option<usize>,
    family: Arc<Family>,
    reported: Cell<usize>,
    used: Cell<usize>,
    refused: Cell<bool>,
    /// The bytes charged since the last collection.
    charged: Cell<usize>,
    /// The charged bytes that are not released.
    outside: Cell<usize>,
}

impl Memory {
    /// `limit` is the limit of this engine, in addition to that of its family.
    pub(crate) fn new(limit: Option<usize>, family: Arc<Family>) -> Self {
        Self {
            limit,
            family,
            reported: Cell::new(0),
            used: Cell::new(0),
            refused: Cell::new(false),
            charged: Cell::new(0),
            outside: Cell::new(0),
        }
    }

    /// Returns the current limit of the values, in bytes.
    fn limit(&self) -> Option<usize> {
        let Some(shared) = self.family.limit() else { return self.limit };
        let shared = shared.saturating_sub(self.used_by_others());
        Some(self.limit.map_or(shared, |own| own.min(shared)))
    }

    /// Returns the remaining bytes.
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

    /// Returns the bytes that the values use.
    pub(crate) fn used(&self) -> usize {
        self.used.get()
    }

    /// Returns whether the values exceed the limit.
    pub(crate) fn over(&self) -> bool {
        self.limit().is_some_and(|limit| self.used.get() > limit)
    }

    /// Charges memory outside QuickJS's heap, unless that exceeds the limit. Returns whether it was charged.
    pub(crate) fn charge(&self, bytes: usize) -> bool {
        let after = self.used.get().saturating_add(bytes);
        if self.limit().is_some_and(|limit| after > limit) {
            return false;
        }
        self.set_used(after);
        self.charged.set(self.charged.get().saturating_add(bytes));
        self.outside.set(self.outside.get().saturating_add(bytes));
        true
    }

    /// Returns whether enough was charged since the last `true` that the cycle collector has to run. QuickJS only
    /// counts its own allocations.
    pub(crate) fn wants_collection(&self) -> bool {
        let wants = self.charged.get() > COLLECT_AFTER;
        if wants {
            self.charged.set(0);
        }
        wants
    }

    /// Releases charged memory.
    pub(crate) fn discharge(&self, bytes: usize) {
        self.outside.set(self.outside.get().saturating_sub(bytes));
        self.gave(bytes);
    }

    /// Returns the bytes outside QuickJS's heap.
    pub(super) fn outside(&self) -> usize {
        self.outside.get()
    }

    /// Returns the bytes that the other engines of the plugin use, as last reported.
    pub(super) fn used_by_others(&self) -> usize {
        self.family.used().saturating_sub(self.reported.get())
    }

    /// Returns whether an allocation was refused since the last query.
    pub(crate) fn take_refused(&self) -> bool {
        self.refused.replace(false)
    }

    /// Sets whether an allocation was refused.
    pub(crate) fn set_refused(&self, refused: bool) {
        self.refused.set(refused);
    }

    /// Returns whether a block of `size` bytes can grow the usage by `more` bytes.
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
        // If the system's allocation failed, the block is null and its size 0.
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

/// The allocator of an engine: the system's, with counted sizes.
pub(crate) struct Counted(pub(crate) Rc<Memory>);

// SAFETY: every block comes from the system's `malloc` family, which aligns for any type, and is freed with it.
unsafe impl Allocator for Counted {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if !self.0.grants(size, size) {
            return std::ptr::null_mut();
        }
        // SAFETY: `malloc` accepts any size.
        self.0.took(unsafe { libc::malloc(size) }.cast())
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        match count.checked_mul(size) {
            Some(bytes) if self.0.grants(bytes, bytes) => {
                // SAFETY: `calloc` accepts any size.
                self.0.took(unsafe { libc::calloc(count, size) }.cast())
            }
            _ => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&mut self, block: *mut u8) {
        self.0.gave(usable(block));
        // SAFETY: the caller passes a block of this allocator, or null.
        unsafe { libc::free(block.cast()) };
    }

    unsafe fn realloc(&mut self, block: *mut u8, size: usize) -> *mut u8 {
        let had = usable(block);
        if !self.0.grants(size.saturating_sub(had), size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller passes a block of this allocator, or null.
        let moved: *mut u8 = unsafe { libc::realloc(block.cast(), size) }.cast();
        if moved.is_null() && size > 0 {
            // The allocation failed; the old block is still valid.
            return moved;
        }
        self.0.gave(had);
        self.0.took(moved)
    }

    unsafe fn usable_size(block: *mut u8) -> usize {
        usable(block)
    }
}

/// Returns the size of a block as the system allocated it.
fn usable(block: *mut u8) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: callers only pass live blocks of the system's allocator.
    #[cfg(target_vendor = "apple")]
    return unsafe { libc::malloc_size(block.cast()) };
    // SAFETY: as above.
    #[cfg(not(target_vendor = "apple"))]
    unsafe {
        libc::malloc_usable_size(block.cast())
    }
}
