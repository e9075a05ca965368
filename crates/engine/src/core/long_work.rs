//! CPU-bound work that may take long.

use tokio::runtime::{Handle, RuntimeFlavor};

/// The size in bytes from which other tasks move to another thread.
const LONG: usize = 256 * 1024;

/// Does work over `bytes` bytes. If there are many, the other tasks of this thread continue on another thread, also on a
/// single processor, which the system divides between both.
pub(crate) fn long_work<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let shares =
        Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    match bytes >= LONG && shares {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}
