//! A computer: a runtime of its own, whose time passes only when the simulation says so.

use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::LocalSet;

/// A computer. Dropping it ends everything on it at once.
#[derive(Debug)]
pub struct Machine {
    local: LocalSet,
    runtime: Runtime,
}

impl Machine {
    /// Creates a computer on which nothing runs.
    pub fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        Self { local: LocalSet::new(), runtime: runtime.expect("a runtime without threads") }
    }

    /// Returns a handle with which others start tasks here.
    pub fn handle(&self) -> Handle {
        self.runtime.handle().clone()
    }

    /// Starts a task.
    pub fn start(&self, task: impl Future<Output = ()> + 'static) {
        self.local.spawn_local(task);
    }

    /// Lets everything run for a while.
    pub fn run_for(&self, time: Duration) {
        self.local.block_on(&self.runtime, async { tokio::time::sleep(time).await });
    }

    /// Lets time pass without anything running, as while the process is suspended.
    pub fn skip(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::advance(time).await });
    }

    /// Drops something that belongs to this computer.
    pub fn drop_here<T>(&self, value: T) {
        let _entered = self.runtime.enter();
        drop(value);
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}
