//! The children of every plugin in this process: they end with it, whether or not the engines are told to.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The groups that run; `None` once they were ended, after which none is started.
static GROUPS: Mutex<Option<BTreeSet<i32>>> = Mutex::new(Some(BTreeSet::new()));

fn groups() -> MutexGuard<'static, Option<BTreeSet<i32>>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills every child of a plugin that still runs, with its group, and lets no plugin start another: for the end of
/// the process, which the engines' threads end with and not before.
pub fn end_children() {
    for group in groups().take().into_iter().flatten() {
        // It may have gone by itself.
        let _ = signal(-group, libc::SIGKILL);
    }
}

/// A group that is ended with the process, until this is dropped.
pub(super) struct Group(i32);

impl Group {
    /// Starts a child that leads one. `id` says which process it is.
    pub(super) fn start<T>(
        start: impl FnOnce() -> io::Result<T>,
        id: impl FnOnce(&T) -> i32,
    ) -> io::Result<(T, Self)> {
        // Held while it starts: one started meanwhile would be missed.
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

/// The children whose ends engines collect, each on its own thread, which may be busy.
static AWAITED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn awaited() -> MutexGuard<'static, BTreeSet<i32>> {
    AWAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an engine collects the end of a process.
pub fn awaits_child(id: i32) -> bool {
    awaited().contains(&id)
}

/// A child whose end is collected by an engine, until this is dropped.
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

/// Has the child hear every signal, as Node's children do: what the daemon ignores, because whoever started it in the
/// background did, a shell could not even trap.
pub(super) fn hear_signals(command: &mut Command) {
    const SIGNALS: std::ops::Range<i32> = 1..32;
    let hear = || {
        for number in SIGNALS {
            // SAFETY: it changes only what this process does at a signal. Those that cannot be changed stay as they are.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: system calls and nothing else, none allocates or takes a lock.
    unsafe { command.pre_exec(hear) };
}

/// Has the system kill the child when the thread that starts it is gone, however the process ends: an engine has
/// one thread, and its children are to end with it.
#[cfg(target_os = "linux")]
pub(super) fn end_with_thread(command: &mut Command) {
    let parent = std::process::id();
    let ask = move || {
        // SAFETY: `prctl` with these arguments takes two numbers and touches no memory of ours.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // Gone between the fork and the line above, it would have said nothing.
        match std::os::unix::process::parent_id() == parent {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    };
    // SAFETY: two system calls and nothing else, neither allocates or takes a lock.
    unsafe { command.pre_exec(ask) };
}

#[cfg(not(target_os = "linux"))]
pub(super) fn end_with_thread(_: &mut Command) {}

pub(super) fn signal(id: i32, number: i32) -> io::Result<()> {
    // SAFETY: `kill` takes two numbers and touches no memory of ours.
    if unsafe { libc::kill(id, number) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
