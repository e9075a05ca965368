//! A daemon under `strace`: its disk is slow, fails, is full or is lost in the middle, or everything loses power.
//!
//! These tests say that they did not run where `strace` is not installed or may not trace.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;

use crate::recorded::{Recorded, strace, traced};
use crate::roads::{self, Outside};
use crate::support::{Daemon, Folder, wait_for};
use crate::told::Told;
use crate::{Dice, found, rounds, seed};

/// The power cuts after which a host is started, which `OSTLER_POWER_CUTS` overrides.
const POWER_CUTS: u32 = 24;
/// How long the daemon works before it is killed.
const WORK: Duration = Duration::from_secs(3);
/// How long it takes at most until everything has been acknowledged once, on a slow disk and on a busy computer.
const LONGEST: Duration = Duration::from_secs(60);

/// A daemon under `strace`, and what that writes.
struct Traced {
    daemon: Daemon,
    log: tempfile::TempDir,
}

impl Traced {
    /// Nothing where it cannot be traced on this computer, which the caller reports.
    fn start(folder: &Folder, faults: &[&str]) -> Result<Self, &'static str> {
        let strace = strace().ok_or("strace is not installed")?;
        let log = tempfile::tempdir().unwrap();
        let mut probe = traced(&strace, &log.path().join("probe"), &[]);
        if !probe.arg("true").output().is_ok_and(|ended| ended.status.success()) {
            return Err("strace may not trace");
        }
        let command = folder.told(traced(&strace, &log.path().join("calls"), faults), &[]);
        Ok(Self { daemon: folder.started(command), log })
    }

    /// Kills the daemon; everything that it did.
    fn kill(self) -> String {
        let id = self.daemon.child.id();
        self.daemon.kill();
        let path = self.log.path().join("calls");
        wait_for(|| Some(()).filter(|()| is_untraced(id, &path))).expect("strace ends");
        fs::read_to_string(path).unwrap()
    }
}

/// Whether no process traces into this file any more: it holds its last line, and is closed.
fn is_untraced(daemon: u32, log: &Path) -> bool {
    let ended = fs::read_to_string(log).unwrap_or_default();
    let killed = format!("{daemon} ");
    ended.ends_with('\n')
        && ended
            .lines()
            .last()
            .is_some_and(|line| line.starts_with(&killed) && line.contains("+++ killed by SIGKILL +++"))
}

/// Lets the lanes work until everything has been acknowledged.
async fn work(
    folder: &Folder,
    daemon: &Daemon,
    outside: &Outside,
    told: &Told,
    enough: impl Fn() -> bool,
) -> JoinSet<()> {
    let lanes = roads::begin(folder, daemon, outside, told, 0).await;
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < WORK || !enough() {
        assert!(begun.elapsed() < LONGEST, "not everything was acknowledged in time: {}", told.figures());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // They end with the daemon, which the caller kills; until then they go on.
    lanes
}

/// The moments after an acknowledgment at which the power is cut, oldest first.
fn moments(told: &Told, mut dice: Dice) -> Vec<SystemTime> {
    let acknowledged = told.acknowledged();
    let mut moments: Vec<_> = (0..rounds("OSTLER_POWER_CUTS", POWER_CUTS))
        .map(|_| acknowledged[dice.roll(acknowledged.len() as u64) as usize])
        .collect();
    moments.sort();
    moments
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_answered_is_lost_by_a_power_cut() {
    let outside = Outside::start().await;
    let folder = roads::folder(&outside);
    // Makes the home of what runs there.
    drop(folder.command(&[]));
    let mut recorded = Recorded::of(folder.path());
    let traced = match Traced::start(&folder, &[]) {
        Ok(traced) => traced,
        Err(reason) => return ostler_testkit::not_run(reason),
    };
    let told = Told::default();
    let lanes = work(&folder, &traced.daemon, &outside, &told, || told.of_every_kind()).await;
    recorded.read(&traced.kill());
    lanes.join_all().await;
    // The index of SQLite's log is memory that processes share; the log of the daemon is written by this test's pipe.
    recorded.assert_is_on_the_disk(|path| {
        path.ends_with("log") || path.extension().is_some_and(|extension| extension == "db-shm")
    });
    let seed = seed();
    println!("{}, seed {seed}", told.figures());
    for moment in moments(&told, Dice(seed)) {
        recorded.rebuild(moment);
        let daemon = folder.start();
        found::check(&folder, &daemon, &outside, &told, moment).await;
        daemon.kill();
    }
}

/// What happens to the disk of a daemon, and what is acknowledged nevertheless is there after the next start.
async fn with_faults(faults: &[&str], everything: bool) {
    let outside = Outside::start().await;
    let folder = roads::folder(&outside);
    let traced = match Traced::start(&folder, faults) {
        Ok(traced) => traced,
        Err(reason) => return ostler_testkit::not_run(reason),
    };
    let told = Told::default();
    let lanes = work(&folder, &traced.daemon, &outside, &told, || !everything || told.of_every_kind()).await;
    let calls = traced.kill();
    lanes.join_all().await;
    assert!(calls.contains("(INJECTED)") || calls.contains("(DELAYED)"), "nothing was disturbed");
    // What it says of its disk is not of the next start.
    fs::remove_file(folder.path().join("log")).unwrap();
    let daemon = folder.start();
    found::check(&folder, &daemon, &outside, &told, SystemTime::now()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_on_a_slow_disk_is_stored() {
    with_faults(&["fsync,fdatasync:delay_enter=20000"], true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_on_a_failing_disk_is_stored() {
    with_faults(&["fsync,fdatasync:error=EIO:when=9+5"], false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_on_a_full_disk_is_stored() {
    with_faults(&["pwrite64,ftruncate:error=ENOSPC:when=300+"], false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_on_a_disk_that_is_lost_is_stored() {
    with_faults(&["pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2:error=EIO:when=200+"], false)
        .await;
}
