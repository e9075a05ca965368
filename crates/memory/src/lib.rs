//! Returns memory to the system that the allocator has free (D-237).
//!
//! An allocator retains what a busy hour left free, in case it is needed again. A daemon that then waits for hours does
//! not need it.

/// Returns the free memory of the allocator to the system.
///
/// It takes the allocator's locks for a moment, so call it while the process is idle. It does nothing where the C library
/// is not GNU's.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it returns only what the allocator itself counts as free, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
