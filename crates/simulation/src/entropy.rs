//! Random bytes of a thread from a seed. The hash maps of the standard library, the order in which `tokio::select!` asks its
//! branches, and ids depend on them.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::fs::File;
use std::io::Read as _;

thread_local! {
    static STATE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Takes all further random bytes of this thread from a seed. The thread must not have used any before.
pub fn seed_thread(seed: u64) {
    STATE.set(Some(seed));
    // The linker needs a reference to replace the function of the C library.
    std::hint::black_box(getrandom as unsafe extern "C" fn(*mut c_void, usize, c_uint) -> isize);
}

/// The function of the C library that the standard library and crates call for random bytes.
///
/// # Safety
/// As that function: `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, _flags: c_uint) -> isize {
    if length == 0 {
        return 0;
    }
    // SAFETY: the caller passes a buffer of this length.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    match STATE.try_with(Cell::get).ok().flatten() {
        Some(mut state) => {
            for chunk in bytes.chunks_mut(8) {
                let word = super::random::step(&mut state).to_le_bytes();
                chunk.copy_from_slice(&word[..chunk.len()]);
            }
            let _ = STATE.try_with(|held| held.set(Some(state)));
        }
        None => {
            let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(bytes));
            if read.is_err() {
                return -1;
            }
        }
    }
    isize::try_from(length).unwrap_or(-1)
}
