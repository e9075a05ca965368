//! The limits of running code: CPU time without a pause, and memory.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::{Condition, Memory, Shared};

/// The reason why a plugin was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overrun {
    /// It ran for too long without a pause.
    Busy,
    /// Its values exceeded the memory limit.
    Memory,
}

/// Returns the CPU time of this thread. Wall-clock time would also count while the machine is busy and while a plugin
/// waits for a child process.
fn worked() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to our own variable. A system without this clock leaves the variable unchanged.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

/// Checks the limits of CPU time and memory while JavaScript runs, and interrupts code that exceeds them.
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

    /// Returns the bytes that the engine's values use.
    pub(crate) fn memory_used(&self) -> usize {
        self.memory.used()
    }

    /// Returns the remaining bytes.
    pub(crate) fn memory_left(&self) -> usize {
        self.memory.left()
    }

    /// Returns the memory counter, for allocations outside QuickJS.
    pub(crate) fn memory(&self) -> Rc<Memory> {
        self.memory.clone()
    }

    /// Starts a turn.
    pub(crate) fn start(&self) {
        self.since.set(Some(worked()));
        self.shared.profiler.turn(true);
    }

    /// Ends a turn.
    pub(crate) fn stop(&self) {
        self.since.set(None);
        self.shared.profiler.turn(false);
        self.shared.set_used(worked(), self.memory_used());
        self.short.set(false);
        self.memory.take_refused();
        if self.interrupted.take().is_some() {
            self.shared.set_condition(Condition::Running);
        }
    }

    /// Returns whether the running code has to stop. The time limit then restarts, so that the rest of the turn can
    /// still run. `collect` runs the cycle collector.
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

    /// Returns why code was interrupted in this turn, if any was.
    pub(crate) fn interrupted(&self) -> Option<Overrun> {
        self.interrupted.get()
    }

    /// Returns whether memory was short in this turn.
    pub(crate) fn starved(&self) -> bool {
        self.short.set(self.short.get() || self.memory.take_refused());
        self.short.get() || self.interrupted.get() == Some(Overrun::Memory)
    }
}
