//! Work that takes a processor for long, beside the tasks that share threads.

use tokio::runtime::{Handle, RuntimeFlavor};

/// From so many bytes on it is worth while to have other tasks go on elsewhere.
const LONG: usize = 256 * 1024;

/// Does work over so many bytes. Where that takes long, the tasks of this thread go on on another one meanwhile, also
/// where there is but one processor: the system divides it between the two.
pub(crate) fn beside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let shares =
        Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    match bytes >= LONG && shares {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}
