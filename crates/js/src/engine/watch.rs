//! What the engine may not do without end: run without a pause, and take memory.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::{Condition, Memory, Shared};

/// Why a plugin was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overrun {
    /// It ran for too long without a pause.
    Busy,
    /// Its values outgrew its memory.
    Memory,
}

/// How long the thread has worked. On a machine that has much else to do, and while a plugin waits for a child, time
/// passes that it did not use.
fn worked() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes what it is handed, which is ours. A system without such a clock leaves it as it is.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

/// Looks at the clock and at the memory while JavaScript runs, and stops what goes too far.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    memory: Rc<Memory>,
    since: Cell<Option<Duration>>,
    interrupted: Cell<Option<Overrun>>,
    short: Cell<bool>,
}

impl Watch {
    pub(crate) fn new(shared: Arc<Shared>, memory: Rc<Memory>) -> Self {
        Self { shared, memory, since: Cell::new(None), interrupted: Cell::new(None), short: Cell::new(false) }
    }

    /// How many bytes the engine's values take.
    pub(crate) fn memory_used(&self) -> usize {
        self.memory.used()
    }

    /// How many bytes more they may take.
    pub(crate) fn memory_left(&self) -> usize {
        self.memory.left()
    }

    /// The memory that is counted, for what is not taken through QuickJS.
    pub(crate) fn memory(&self) -> Rc<Memory> {
        self.memory.clone()
    }

    /// A turn begins.
    pub(crate) fn start(&self) {
        self.since.set(Some(worked()));
    }

    /// The turn is over; the engine waits again.
    pub(crate) fn stop(&self) {
        self.since.set(None);
        self.shared.set_used(worked(), self.memory_used());
        self.short.set(false);
        self.memory.take_refused();
        if self.interrupted.take().is_some() {
            self.shared.set_condition(Condition::Running);
        }
    }

    /// Whether what runs has to stop. It gives the rest of the turn a fresh start: only what overran is lost.
    /// `collect` frees what nothing holds any more.
    pub(crate) fn overrun(&self, collect: impl FnOnce()) -> bool {
        if self.shared.is_killed() {
            return true;
        }
        let limit = self.shared.options.busy_limit;
        let busy = self.since.get().is_some_and(|since| worked().saturating_sub(since) > limit);
        if busy {
            self.since.set(Some(worked()));
            self.interrupt(Overrun::Busy);
            return true;
        }
        if self.memory.over() {
            collect();
        }
        let over = self.memory.over();
        if over {
            self.interrupt(Overrun::Memory);
        }
        over
    }

    fn interrupt(&self, why: Overrun) {
        self.interrupted.set(Some(why));
        self.shared.set_condition(match why {
            Overrun::Busy => Condition::Interrupted,
            Overrun::Memory => Condition::Starved,
        });
    }

    /// Why something was stopped in this turn, if it was.
    pub(crate) fn interrupted(&self) -> Option<Overrun> {
        self.interrupted.get()
    }

    /// Whether memory was short in this turn.
    pub(crate) fn starved(&self) -> bool {
        self.short.set(self.short.get() || self.memory.take_refused());
        self.short.get() || self.interrupted.get() == Some(Overrun::Memory)
    }
}
