//! The children that this process did not start: descendants whose own parent ended, which the kernel gives to it.

use std::collections::BTreeSet;
use std::sync::Once;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};

use super::scope::is_mark;
use super::table::{self, Lingering};

/// How long after the end of a child those of adopted ones are collected, and how often it is looked for more.
const REAP: Duration = Duration::from_millis(200);
/// How many times a child that has ended is seen before nobody is taken to wait for it.
const LOOKS: u32 = 15;

/// Says whether a part of this process waits for a child.
type WaitsFor = fn(i32) -> bool;

/// The parts of this process that start children themselves and collect their ends late.
static WAITING: Mutex<Vec<WaitsFor>> = Mutex::new(Vec::new());

/// Leaves children to a part of this process that starts them itself, and that may not collect their ends as soon as they end:
/// the others that have ended are taken to be adopted ones.
pub fn leave_children_to(waits_for: fn(i32) -> bool) {
    WAITING.lock().push(waits_for);
}

/// Collects the ends of processes that this one has adopted, as they end. `started` are its own children, whose ends others
/// collect.
pub(crate) fn reap_adopted(started: &'static Mutex<BTreeSet<i32>>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        drop(tokio::spawn(async move {
            let Ok(mut ended) = signal(SignalKind::child()) else { return };
            while ended.recv().await.is_some() {
                let mut lingering = Lingering::new();
                loop {
                    tokio::time::sleep(REAP).await;
                    let looked = tokio::task::spawn_blocking(move || {
                        // No child is started meanwhile: it could end before it is noted.
                        let started = started.lock();
                        let waiting = WAITING.lock().clone();
                        let is_others =
                            |pid| started.contains(&pid) || waiting.iter().any(|waits_for| waits_for(pid));
                        table::reap_adopted(&is_mark, &is_others, &mut lingering, LOOKS);
                        lingering
                    });
                    lingering = looked.await.unwrap_or_default();
                    if lingering.is_empty() {
                        break;
                    }
                }
            }
        }));
    });
}

/// Makes the daemon the parent of descendants whose own parent ended, so that their ends can be collected.
pub(crate) fn adopt_orphans() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    });
}
