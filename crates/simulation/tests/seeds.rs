//! Random schedules of a cluster. Each seed runs in a process of its own, because the first simulation of a process is the same
//! each time.
//!
//! `OSTLER_SIMULATION_SEEDS` is how many seeds run, and `OSTLER_SIMULATION_FIRST` the first of them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use ostler_simulation::simulation::run;

/// How many seeds run without a request for more.
const SEEDS: u64 = 4;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a seed in another process; returns its history.
fn outcome_of(seed: u64, folder: &Path) -> Result<String, String> {
    let path: PathBuf = folder.join(format!("{seed}.txt"));
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["one_seed", "--exact", "--ignored", "--nocapture"])
        .env("OSTLER_SIMULATION_SEED", seed.to_string())
        .env("OSTLER_SIMULATION_HISTORY", &path)
        .output()
        .unwrap();
    let history = std::fs::read_to_string(&path).unwrap_or_default();
    if child.status.success() {
        return Ok(history);
    }
    let said = String::from_utf8_lossy(&child.stderr).into_owned();
    Err(format!(
        "seed {seed} fails; repeat it with\n\
         OSTLER_SIMULATION_SEED={seed} cargo test -p ostler-simulation --test seeds one_seed -- --ignored --nocapture\n{said}"
    ))
}

#[test]
#[ignore = "runs the seed that OSTLER_SIMULATION_SEED names"]
fn one_seed() {
    let seed = number("OSTLER_SIMULATION_SEED").expect("OSTLER_SIMULATION_SEED is a number");
    let outcome = run(seed);
    let history = outcome.history.join("\n");
    if let Ok(path) = std::env::var("OSTLER_SIMULATION_HISTORY") {
        std::fs::write(path, &history).unwrap();
    }
    assert!(
        outcome.failures.is_empty(),
        "seed {seed}: {:#?}\nthe last of its history:\n{}",
        outcome.failures,
        {
            let lines = outcome.history.len();
            outcome.history[lines.saturating_sub(60)..].join("\n")
        }
    );
}

#[test]
fn hosts_keep_their_promises_under_random_faults() {
    let first = number("OSTLER_SIMULATION_FIRST").unwrap_or(1);
    let end = first + number("OSTLER_SIMULATION_SEEDS").unwrap_or(SEEDS);
    let folder = tempfile::tempdir().unwrap();
    let next = AtomicU64::new(first);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let failed: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let mut failed = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end {
                    return failed;
                }
                failed.extend(outcome_of(seed, folder.path()).err());
                let _ = std::fs::remove_file(folder.path().join(format!("{seed}.txt")));
            }
        };
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{} of {} seeds fail:\n{}", failed.len(), end - first, failed.join("\n\n"));
}

#[test]
fn a_seed_has_the_same_history_each_time() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let histories = [&one, &other].map(|folder| outcome_of(1, folder.path()).unwrap());
    assert!(histories[0].lines().count() > 50, "{}", histories[0]);
    let differ = histories[0].lines().zip(histories[1].lines()).find(|(one, other)| one != other);
    assert_eq!(differ, None);
    assert_eq!(histories[0], histories[1]);
}
