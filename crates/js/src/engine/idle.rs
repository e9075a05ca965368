//! How long the thread of an engine waited for work.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static IDLE: Idle = Idle {
        since: Instant::now(),
        waited: Cell::default(),
        wait_began: Cell::default(),
    };
}

struct Idle {
    since: Instant,
    waited: Cell<Duration>,
    /// When the wait that has not ended began.
    wait_began: Cell<Option<Instant>>,
}

/// Measures the waits of a runtime that the current thread is going to drive.
pub(super) fn observe(runtime: &mut tokio::runtime::Builder) -> &mut tokio::runtime::Builder {
    IDLE.with(|_| ());
    runtime.on_thread_park(|| IDLE.with(|idle| idle.wait_began.set(Some(Instant::now())))).on_thread_unpark(
        || {
            IDLE.with(|idle| {
                if let Some(began) = idle.wait_began.take() {
                    idle.waited.set(idle.waited.get() + began.elapsed());
                }
            });
        },
    )
}

/// Returns how long this thread waited, and how long it has been observed.
pub(crate) fn waited() -> (Duration, Duration) {
    IDLE.with(|idle| (idle.waited.get(), idle.since.elapsed()))
}
