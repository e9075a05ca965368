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

/// Has the allocator map each large piece of memory by itself, so that it is the system's again as soon as it is freed.
///
/// By default the size from which it does so grows up to 32 MiB with what is freed. Messages and answers of a few MiB
/// would then leave gaps between what stays. Call it once, before threads start. It does nothing where the C library is
/// not GNU's.
pub fn map_large() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets a parameter of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 512 * 1024);
    }
}

/// How many bytes of memory that is no file's the process has in use.
pub fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    field.trim().strip_suffix(" kB")?.parse::<usize>().ok()?.checked_mul(1024)
}
