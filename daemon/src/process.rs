//! Other processes: whether they run, and signals to them.

use std::time::{Duration, Instant};

use crate::exit::Exit;

/// A signal to a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Stop.
    Stop,
    /// Restart, unless a turn runs.
    Restart,
    /// Restart immediately.
    RestartAnyway,
}

impl Signal {
    /// Returns its name in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "SIGTERM",
            Self::Restart => "SIGHUP",
            Self::RestartAnyway => "SIGUSR2",
        }
    }
}

/// Sends a signal to a process.
///
/// # Errors
/// Exit 1 if it belongs to another user, or has ended.
#[cfg(unix)]
pub fn send_signal(pid: u32, signal: Signal) -> Result<(), Exit> {
    let number = match signal {
        Signal::Stop => rustix::process::Signal::TERM,
        Signal::Restart => rustix::process::Signal::HUP,
        Signal::RestartAnyway => rustix::process::Signal::USR2,
    };
    let told = pid_of(pid).ok_or_else(|| Exit::machine(format!("{pid} is not a process id")))?;
    rustix::process::kill_process(told, number)
        .map_err(|error| Exit::machine(format!("cannot signal pid {pid}: {error}")))
}

/// Sends a signal to a process.
///
/// # Errors
/// Exit 1: this system has no signals.
#[cfg(not(unix))]
pub fn send_signal(pid: u32, _: Signal) -> Result<(), Exit> {
    Err(Exit::machine(format!("signals are not supported on this system; end pid {pid} with system tools")))
}

/// The maximum number of file descriptors that is requested, because some programs iterate over all possible ones.
#[cfg(unix)]
const MOST_FILES: u64 = 65_536;

/// Raises the limit of file descriptors as far as the system allows, because connections soon reach the usual limit of
/// a shell, 1,024.
#[cfg(unix)]
pub fn take_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(MOST_FILES, |most| most.min(MOST_FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        // The limit stays if the system rejects the change.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// This system has no such limit.
#[cfg(not(unix))]
pub fn take_files() {}

#[cfg(unix)]
fn pid_of(pid: u32) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Returns whether a process exists.
#[cfg(unix)]
pub fn runs(pid: u32) -> bool {
    pid_of(pid).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// Returns whether a process exists, which is unknown on this system.
#[cfg(not(unix))]
pub fn runs(_: u32) -> bool {
    true
}

/// Detaches from the terminal, so that closing it does not end the process.
pub fn leave_terminal() {
    // The leader of a group is already detached.
    #[cfg(unix)]
    let _ = rustix::process::setsid();
}

/// Calls a function every 100 ms until it returns a value or the time is over.
pub async fn poll<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() >= end {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
