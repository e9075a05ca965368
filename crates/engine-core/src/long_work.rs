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

/// The long work of this process.
static LONG_WORK: Turns = Turns::new(64);

/// Does work over `bytes` bytes. If there are many, it is done on a thread with low priority, and the other tasks of
/// this thread continue on another one.
///
/// The work calls no plugin, starts no task or thread and takes no lock that others wait for: a thread would inherit the
/// priority, which cannot be raised again without a privilege.
pub fn long_work<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes < LONG || !shares_thread() {
        return work();
    }
    LONG_WORK.take(work)
}

/// Does work over `bytes` bytes at once and with the priority of this thread. If there are many, the other tasks of this
/// thread continue on another one. This is for calls of plugins, which convert long arguments, and for work that other
/// sessions wait for.
pub fn prompt_work<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    match bytes >= LONG && shares_thread() {
        true => block_in_place(work),
        false => work(),
    }
}

/// Whether this thread belongs to a runtime that has others.
fn shares_thread() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Work that is done one after the other: its copies are not all in memory at once, and it takes at most one processor.
struct Turns {
    /// Held by the work that is done.
    turn: Mutex<()>,
    /// How much work waits for its turn or has it.
    waiting: AtomicUsize,
    /// How much of it may wait. Each one that waits holds a thread of the runtime, and of these there are at most 512.
    most: usize,
    /// The size of the stack of a thread, if it is not the usual one.
    stack: Option<usize>,
}

impl Turns {
    const fn new(most: usize) -> Self {
        Self { turn: Mutex::new(()), waiting: AtomicUsize::new(0), most, stack: None }
    }

    /// Does work in its turn, on a thread with low priority. If too much waits already, the work is done at once and at
    /// normal priority.
    fn take<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        block_in_place(|| {
            let waiting = self.waiting.fetch_add(1, Ordering::Relaxed);
            let _left = Left(&self.waiting);
            if waiting >= self.most {
                return work();
            }
            self.beside(self.turn.lock(), work)
        })
    }

    /// Does work on a thread with low priority, or on this one if the system has no thread left; then without a turn,
    /// which long work that is part of it would wait for.
    fn beside<T: Send>(&self, turn: MutexGuard<'_, ()>, work: impl FnOnce() -> T + Send) -> T {
        let work = Mutex::new(Some(work));
        let take = || match work.lock().take() {
            Some(work) => work,
            None => unreachable!("the work is done by the thread or, without it, here"),
        };
        let span = tracing::Span::current();
        let builder = thread::Builder::new().name("long work".to_owned());
        let builder = match self.stack {
            Some(size) => builder.stack_size(size),
            None => builder,
        };
        let done = thread::scope(|scope| {
            let thread = builder.spawn_scoped(scope, || {
                lower_priority();
                span.in_scope(take())
            });
            thread.ok().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        drop(turn);
        done.unwrap_or_else(|| take()())
    }
}

/// Counts work that has ended, also with a panic.
struct Left<'a>(&'a AtomicUsize);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
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

    /// Starts work that has its turn until something is sent; returns once it has it.
    async fn occupy(turns: &'static Turns) -> (mpsc::Sender<()>, tokio::task::JoinHandle<()>) {
        let ((begun, begins), (end, ends)) = (mpsc::channel(), mpsc::channel());
        let work = tokio::spawn(async move {
            turns.take(move || {
                begun.send(()).unwrap();
                ends.recv_timeout(Duration::from_secs(10)).unwrap();
            });
        });
        block_in_place(|| begins.recv_timeout(Duration::from_secs(10))).unwrap();
        (end, work)
    }

    async fn until_waiting(turns: &Turns, count: usize) {
        tokio::time::timeout(Duration::from_secs(10), async {
            while turns.waiting.load(Ordering::Relaxed) < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn long_work_is_done_one_at_a_time() {
        static TURNS: Turns = Turns::new(64);
        let (end, first) = occupy(&TURNS).await;
        let (did, done) = mpsc::channel();
        let second = tokio::spawn(async move { TURNS.take(move || did.send(()).unwrap()) });
        until_waiting(&TURNS, 2).await;
        // It waits for the lock by now, or is about to.
        block_in_place(|| done.recv_timeout(Duration::from_millis(20))).unwrap_err();
        end.send(()).unwrap();
        first.await.unwrap();
        second.await.unwrap();
        done.recv().unwrap();
        assert_eq!(TURNS.waiting.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn work_is_done_at_once_if_too_much_waits() {
        static TURNS: Turns = Turns::new(2);
        let (end, first) = occupy(&TURNS).await;
        let second = tokio::spawn(async { TURNS.take(|| ()) });
        until_waiting(&TURNS, 2).await;
        let here = name();
        assert_eq!(TURNS.take(name), here);
        end.send(()).unwrap();
        first.await.unwrap();
        second.await.unwrap();
        assert_eq!(TURNS.take(name).as_deref(), Some("long work"));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_is_done_without_a_thread_if_the_system_has_none_left() {
        // More than a process can address, so that its thread cannot be started.
        static TURNS: Turns = Turns { stack: Some(usize::MAX / 4), ..Turns::new(64) };
        let here = name();
        let both = TURNS.take(|| (name(), TURNS.take(name)));
        assert_eq!(both, (here.clone(), here));
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
