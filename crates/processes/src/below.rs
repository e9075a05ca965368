//! Everything that this process started itself, without a scope.

use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::time::{Instant, sleep};

use super::{POLL, table};

/// Ends all descendants of this process: sends SIGTERM, then SIGKILL to those that do not end in time. Finds none on
/// systems without a process table.
pub async fn end_descendants(grace: Duration) {
    let found: Vec<(Pid, u64)> =
        table::descendants(getpid()).into_iter().filter_map(|pid| Some((pid, began(pid)?))).collect();
    let running = || found.iter().filter(|(pid, start)| began(*pid) == Some(*start)).map(|(pid, _)| *pid);
    for pid in running() {
        let _ = kill_process(pid, Signal::TERM);
    }
    let until = Instant::now() + grace;
    while running().next().is_some() && Instant::now() < until {
        sleep(POLL).await;
    }
    for pid in running().chain(table::descendants(getpid())) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn began(pid: Pid) -> Option<u64> {
    table::started(pid.as_raw_nonzero().get())
}
