//! Adopted children: descendants whose parent ended, which the kernel assigns to this process.

use std::collections::BTreeSet;
use std::sync::Once;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};

use super::scope::is_mark;
use super::table::{self, Lingering};

/// How long after the end of a child the exit statuses of adopted ones are collected, and how often more are looked
/// for.
const REAP: Duration = Duration::from_millis(200);
/// How many times an ended child is seen before it is assumed that no one waits for it.
const LOOKS: u32 = 15;

/// Returns whether a part of this process waits for a child.
type WaitsFor = fn(i32) -> bool;

/// The parts of this process that start children themselves and collect their exit statuses late.
static WAITING: Mutex<Vec<WaitsFor>> = Mutex::new(Vec::new());

/// Registers a part of this process that starts children itself and may collect their exit statuses late. All other
/// ended children count as adopted.
pub fn leave_children_to(waits_for: fn(i32) -> bool) {
    WAITING.lock().push(waits_for);
}

/// Collects the exit statuses of adopted processes as they end. `started` are children of this process, whose exit
/// statuses others collect.
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
                        // No child is started in the meantime, because it could end before it is recorded.
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

/// Makes the daemon the parent of descendants whose parent ended, so that their exit statuses can be collected.
pub(crate) fn adopt_orphans() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    });
}
