//! CPU-bound work that may take long.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// The size in bytes from which other tasks move to another thread.
const LONG: usize = 256 * 1024;

/// What is added to the nice value of a thread that does long work: such a thread gets a tenth of the time of one that
/// serves all clients.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Held by long work, one at a time: its copies are not all in memory at once, and it takes at most one processor.
static TURN: Mutex<()> = Mutex::new(());

/// How much work waits for its turn or has it.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// How much work may wait. Each one that waits holds a thread of the runtime, and of these there are at most 512. More
/// work is done at once, at normal priority.
const MOST_WAITING: usize = 64;

/// Does work over `bytes` bytes. If there are many, it is done on a thread with low priority, and the other tasks of
/// this thread continue on another one.
///
/// The work calls no plugin, starts no task or thread and takes no lock that others wait for: a thread would inherit the
/// priority, which cannot be raised again without a privilege.
pub(crate) fn long_work<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes < LONG || !shares_thread() {
        return work();
    }
    block_in_place(|| {
        let waiting = WAITING.fetch_add(1, Ordering::Relaxed);
        let _left = Left;
        if waiting >= MOST_WAITING {
            return work();
        }
        beside(TURN.lock(), work)
    })
}

/// Does work over `bytes` bytes at once and with the priority of this thread. If there are many, the other tasks of this
/// thread continue on another one. This is for calls of plugins, which convert long arguments, and for work that other
/// sessions wait for.
pub(crate) fn prompt_work<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    match bytes >= LONG && shares_thread() {
        true => block_in_place(work),
        false => work(),
    }
}

/// Whether this thread belongs to a runtime that has others.
fn shares_thread() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Counts work that has ended, also with a panic.
struct Left;

impl Drop for Left {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Does work on a thread with low priority, or on this one if the system has no thread left; then without a turn, which
/// long work that is part of it would wait for.
fn beside<T: Send>(turn: MutexGuard<'_, ()>, work: impl FnOnce() -> T + Send) -> T {
    let work = Mutex::new(Some(work));
    let take = || match work.lock().take() {
        Some(work) => work,
        None => unreachable!("the work is done by the thread or, without it, here"),
    };
    let span = tracing::Span::current();
    let done = thread::scope(|scope| {
        let thread = thread::Builder::new().name("long work".to_owned()).spawn_scoped(scope, || {
            lower_priority();
            span.in_scope(take())
        });
        thread.ok().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
    drop(turn);
    done.unwrap_or_else(|| take()())
}

/// Lowers the priority of this thread for good.
fn lower_priority() {
    // Elsewhere the value is one of the whole process. Without a lower priority the work is done all the same.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn name() -> Option<String> {
        thread::current().name().map(ToOwned::to_owned)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn long_work_has_a_thread_and_short_work_and_calls_have_not() {
        let here = name();
        assert_eq!(long_work(LONG - 1, name), here);
        assert_eq!(prompt_work(LONG, name), here);
        assert_eq!(long_work(LONG, || long_work(LONG, name)).as_deref(), Some("long work"));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn only_the_thread_of_long_work_has_a_low_priority() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let here = nice();
        assert_eq!(long_work(LONG, nice), (here + NICE).min(19));
        assert_eq!((nice(), prompt_work(LONG, nice)), (here, here));
        assert_eq!(tokio::task::spawn_blocking(nice).await.unwrap(), here);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn long_work_is_done_one_at_a_time() {
        let ((begun, begins), (end, ends)) = (mpsc::channel(), mpsc::channel());
        let first = tokio::spawn(async move {
            long_work(LONG, move || {
                begun.send(()).unwrap();
                ends.recv_timeout(Duration::from_secs(10)).unwrap();
            });
        });
        block_in_place(|| begins.recv_timeout(Duration::from_secs(10))).unwrap();
        let (did, done) = mpsc::channel();
        let second = tokio::spawn(async move { long_work(LONG, move || did.send(()).unwrap()) });
        assert!(block_in_place(|| done.recv_timeout(Duration::from_millis(50))).is_err());
        end.send(()).unwrap();
        first.await.unwrap();
        second.await.unwrap();
        assert!(done.recv().is_ok());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_panic_reaches_the_task_and_later_work_is_done() {
        let panicked = tokio::spawn(async { long_work(LONG, || panic!("on purpose")) }).await;
        assert!(panicked.unwrap_err().is_panic());
        assert_eq!(long_work(LONG, || 1), 1);
    }

    #[tokio::test]
    async fn a_runtime_with_one_thread_does_long_work_itself() {
        let here = name();
        assert_eq!(long_work(LONG, name), here);
    }
}
