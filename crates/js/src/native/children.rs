//! The child processes of all plugins: they end with this process, whether or not their engines end first.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The running process groups; `None` after [`end_children`], which prevents further starts.
static GROUPS: Mutex<Option<BTreeSet<i32>>> = Mutex::new(Some(BTreeSet::new()));

fn groups() -> MutexGuard<'static, Option<BTreeSet<i32>>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all running child processes of plugins with their groups, and prevents further starts. This is for the end of
/// the process, because the engines' threads may only end with it.
pub fn end_children() {
    for group in groups().take().into_iter().flatten() {
        // The group may have ended already.
        let _ = signal(-group, libc::SIGKILL);
    }
}

/// A process group that ends with the process, until this is dropped.
pub(super) struct Group(i32);

impl Group {
    /// Starts a child process as the leader of a group. `id` returns its process id.
    pub(super) fn start<T>(
        start: impl FnOnce() -> io::Result<T>,
        id: impl FnOnce(&T) -> i32,
    ) -> io::Result<(T, Self)> {
        // The lock is held during the start; otherwise [`end_children`] could miss the new group.
        let mut running = groups();
        let Some(running) = running.as_mut() else {
            return Err(io::Error::from_raw_os_error(libc::ECANCELED));
        };
        let child = start()?;
        let group = id(&child);
        running.insert(group);
        Ok((child, Self(group)))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(running) = groups().as_mut() {
            running.remove(&self.0);
        }
    }
}

/// The child processes that engines reap, each on its own thread, which may be busy.
static AWAITED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn awaited() -> MutexGuard<'static, BTreeSet<i32>> {
    AWAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether an engine reaps a process.
pub fn awaits_child(id: i32) -> bool {
    awaited().contains(&id)
}

/// A child process that an engine reaps, until this is dropped.
pub(super) struct Awaited(i32);

impl Awaited {
    pub(super) fn new(id: i32) -> Self {
        awaited().insert(id);
        Self(id)
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        awaited().remove(&self.0);
    }
}

/// Resets the child's signal handlers, as Node does. The daemon may ignore signals because it was started in the
/// background, and a shell cannot trap signals that were ignored at its start.
pub(super) fn hear_signals(command: &mut Command) {
    const SIGNALS: std::ops::Range<i32> = 1..32;
    let hear = || {
        for number in SIGNALS {
            // SAFETY: it only changes the signal handlers of this process. Those that cannot be changed stay as they
            // are.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls, which neither allocate nor lock.
    unsafe { command.pre_exec(hear) };
}

/// Lets the system kill the child when the thread that started it ends, even if the process crashes. An engine has one
/// thread, and its children must end with it.
#[cfg(target_os = "linux")]
pub(super) fn end_with_thread(command: &mut Command) {
    let parent = std::process::id();
    let ask = move || {
        // SAFETY: `prctl` with these arguments takes two numbers and accesses no memory of ours.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // If the parent ended between the fork and the line above, no signal is sent.
        match std::os::unix::process::parent_id() == parent {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: the closure only makes two system calls, which neither allocate nor lock.
    unsafe { command.pre_exec(ask) };
}

#[cfg(not(target_os = "linux"))]
pub(super) fn end_with_thread(_: &mut Command) {}

pub(super) fn signal(id: i32, number: i32) -> io::Result<()> {
    // SAFETY: `kill` takes two numbers and accesses no memory of ours.
    if unsafe { libc::kill(id, number) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
