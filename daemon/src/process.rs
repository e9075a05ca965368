//! Other processes: whether they run, and telling them something.

use std::time::{Duration, Instant};

use crate::exit::Exit;

/// What a daemon can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// To end.
    Stop,
    /// To start again, unless a turn runs.
    Restart,
    /// To start again at once.
    RestartAnyway,
}

impl Signal {
    /// As the log writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "SIGTERM",
            Self::Restart => "SIGHUP",
            Self::RestartAnyway => "SIGUSR2",
        }
    }
}

/// Tells a process.
///
/// # Errors
/// Exit 1 where it is another user's, or gone.
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

/// Tells a process.
///
/// # Errors
/// Exit 1: this system has no signals.
#[cfg(not(unix))]
pub fn send_signal(pid: u32, _: Signal) -> Result<(), Exit> {
    Err(Exit::machine(format!("signals are not supported on this system; end pid {pid} with system tools")))
}

/// How many files and sockets are asked for at most. Programs that plugins start may walk through as many as they may
/// have.
#[cfg(unix)]
const MOST_FILES: u64 = 65_536;

/// Takes as many files and sockets as the system lets this process have: a shell's own limit, 1,024 as a rule, is soon
/// reached by connections.
#[cfg(unix)]
pub fn take_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(MOST_FILES, |most| most.min(MOST_FILES));
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        // What it has stays where the system says no.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// There is no such limit to take.
#[cfg(not(unix))]
pub fn take_files() {}

#[cfg(unix)]
fn pid_of(pid: u32) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)
}

/// Whether a process is there.
#[cfg(unix)]
pub fn runs(pid: u32) -> bool {
    pid_of(pid).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// Whether a process is there; nobody knows here.
#[cfg(not(unix))]
pub fn runs(_: u32) -> bool {
    true
}

/// Leaves the terminal it was started in, so that closing it ends nothing.
pub fn leave_terminal() {
    // One that leads a group already has left.
    #[cfg(unix)]
    let _ = rustix::process::setsid();
}

/// Asks every 100 ms until there is an answer or the time is over.
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
