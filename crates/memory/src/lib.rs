//! Returns free memory of the allocator to the system (D-237).
//!
//! An allocator retains freed memory for later use. A daemon that then waits for hours does not need it.

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

/// Makes the allocator map each large block separately, so that it is returned to the system as soon as it is freed.
///
/// By default the threshold for this grows up to 32 MiB with the freed blocks. Messages and answers of a few MiB would
/// then leave gaps between longer-lived blocks. Call it once, before threads start. It does nothing where the C library
/// is not GNU's.
pub fn map_large() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets a parameter of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 512 * 1024);
    }
}

/// Returns the anonymous memory that the process uses, in bytes.
pub fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    field.trim().strip_suffix(" kB")?.parse::<usize>().ok()?.checked_mul(1024)
}
