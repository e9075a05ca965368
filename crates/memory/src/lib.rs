//! Returns unused memory of an idle process to the system (D-011).
//!
//! After its start, a process retains program pages that only the start used, and free memory in its allocator.
//! [`give_back`] releases both. Nothing is lost: a program page that is needed again is read from the system's file cache
//! within microseconds.

/// Gives back what can be had again: free memory of the allocator, and the pages of the program itself.
///
/// Takes a moment (about as long as it takes to find out which pages those are), so a process that is at work has no
/// use for it. On a system other than Linux it does nothing.
pub fn give_back() {
    #[cfg(target_os = "linux")]
    linux::give_back();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{c_int, c_void};
    use std::ptr;

    use libc::{MADV_DONTNEED, PF_W, PT_LOAD, dl_iterate_phdr, dl_phdr_info, madvise};

    pub(super) fn give_back() {
        #[cfg(target_env = "gnu")]
        // SAFETY: it only gives back what the allocator itself counts as free, under the allocator's own locks.
        unsafe {
            libc::malloc_trim(0);
        }
        // SAFETY: the callback is a function that keeps nothing it is given.
        unsafe {
            dl_iterate_phdr(Some(of_object), ptr::null_mut());
        }
    }

    /// Gives back the pages of the first object, the program. Its libraries are others' too, and small.
    extern "C" fn of_object(object: *mut dl_phdr_info, _size: usize, _data: *mut c_void) -> c_int {
        const LAST: c_int = 1;
        // SAFETY: the loader calls this with an object that lives at least until it returns, and so do its headers.
        let (base, headers) = unsafe {
            let object = &*object;
            (object.dlpi_addr, std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)))
        };
        // SAFETY: it only reads a number of the system's.
        let Ok(page) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) else { return LAST };
        for header in headers.iter().filter(|header| header.p_type == PT_LOAD) {
            // What may be written was written when the program was loaded, and is in no file.
            if header.p_flags & PF_W != 0 {
                continue;
            }
            let (Ok(begin), Ok(length)) =
                (usize::try_from(base + header.p_vaddr), usize::try_from(header.p_memsz))
            else {
                continue;
            };
            // A page shared with the next segment may be one that was written.
            let (begin, end) = (begin.next_multiple_of(page), (begin + length) / page * page);
            if begin < end {
                // SAFETY: these pages are the file's, mapped privately and never written, so whoever reads them
                // next, another thread or this one on its return from here, finds the same there again. Where the
                // system refuses, it leaves them.
                unsafe {
                    madvise(ptr::with_exposed_provenance_mut(begin), end - begin, MADV_DONTNEED);
                }
            }
        }
        LAST
    }
}
