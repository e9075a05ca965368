//! CPU-bound work that may take long.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::pin;
use std::task::{Context, Poll};
use std::thread;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};

/// The size in bytes from which work is done on a thread of its own.
const LONG: usize = 256 * 1024;

/// What is added to the nice value of such a thread: while it competes with one that serves everyone, it gets a tenth of
/// its time.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Held by long work, one at a time: its copies are not all in memory at once, and it takes at most one processor.
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether this thread is one that does long work.
    static IS_BESIDE: Cell<bool> = const { Cell::new(false) };
}

/// Does work over `bytes` bytes. If there are many, it is done on a thread with low priority, and the other tasks of
/// this thread continue on another one.
pub(crate) fn long_work<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes < LONG || IS_BESIDE.get() {
        return work();
    }
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(|| beside(&runtime, work))
        }
        _ => work(),
    }
}

/// Awaits a future that works over `bytes` bytes. Each of its polls is done as `long_work` is, with everything that
/// belongs to it: the copies of a long text and the release of their memory too.
pub(crate) async fn long_task<F: Future<Output: Send> + Send>(bytes: usize, future: F) -> F::Output {
    if bytes < LONG {
        return future.await;
    }
    let mut future = pin!(future);
    poll_fn(|context| {
        let waker = context.waker().clone();
        long_work(bytes, || -> Poll<F::Output> { future.as_mut().poll(&mut Context::from_waker(&waker)) })
    })
    .await
}

/// Does work on a thread with low priority, or on this one if the system has no thread left.
fn beside<T: Send>(runtime: &Handle, work: impl FnOnce() -> T + Send) -> T {
    let work = Mutex::new(Some(work));
    let take = || match work.lock().take() {
        Some(work) => work,
        None => unreachable!("the work is done by the thread or, without it, here"),
    };
    let span = tracing::Span::current();
    let done = thread::scope(|scope| {
        let thread = thread::Builder::new().name("long work".to_owned()).spawn_scoped(scope, || {
            IS_BESIDE.set(true);
            lower_priority();
            let _runtime = runtime.enter();
            let _turn = TURN.lock();
            span.in_scope(take())
        });
        thread.ok().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    });
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn place() -> (Option<String>, i32) {
        let nice = rustix::process::getpriority_process(None).unwrap();
        (thread::current().name().map(ToOwned::to_owned), nice)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn long_work_has_a_thread_with_low_priority_and_short_work_has_not() {
        let here = place();
        assert_eq!(long_work(LONG - 1, place), here);
        let (name, nice) = long_work(LONG, || long_work(LONG, place));
        assert_eq!(name.as_deref(), Some("long work"));
        if cfg!(target_os = "linux") {
            assert_eq!(nice, (here.1 + NICE).min(19));
        }
        assert_eq!(place(), here);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_long_task_may_wait_and_start_tasks() {
        let task = async {
            let before = place().0;
            tokio::time::sleep(Duration::from_millis(1)).await;
            let spawned = tokio::spawn(async { 7 }).await.unwrap();
            (before, spawned, place().0)
        };
        let name = Some("long work".to_owned());
        assert_eq!(long_task(LONG, task).await, (name.clone(), 7, name));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn long_work_is_done_one_at_a_time() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks = (0..4).map(|_| {
            let (now, most) = (now.clone(), most.clone());
            tokio::spawn(async move {
                long_work(LONG, || {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                });
            })
        });
        futures::future::join_all(tasks).await.into_iter().for_each(|done| done.unwrap());
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_panic_reaches_the_task_and_later_work_is_done() {
        let panicked = tokio::spawn(async { long_work(LONG, || panic!("on purpose")) }).await;
        assert!(panicked.unwrap_err().is_panic());
        assert_eq!(long_work(LONG, || 1), 1);
    }

    #[tokio::test]
    async fn a_runtime_with_one_thread_does_long_work_itself() {
        let here = place();
        assert_eq!(long_work(LONG, place), here);
        assert_eq!(long_task(LONG, async { place() }).await, here);
    }
}
