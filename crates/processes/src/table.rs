//! The process table, read from `/proc`. Where there is none, it is empty.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::process::{Pid, WaitOptions, waitpid};

/// One process.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its id.
    pub pid: Pid,
    parent: i32,
    group: i32,
    zombie: bool,
}

/// Every process.
pub fn rows() -> Vec<Row> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| row(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn row(pid: i32) -> Option<Row> {
    let fields = stat(pid)?;
    Some(Row {
        pid: Pid::from_raw(pid)?,
        zombie: matches!(fields.first().map(String::as_str), Some("Z" | "X")),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
    })
}

/// The fields behind the name, which may hold anything: state, parent, group, …
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// When a process started, in ticks since boot; nothing where it does not run. With its id it names one process.
pub fn started(pid: i32) -> Option<u64> {
    let fields = stat(pid)?;
    (fields.first().map(String::as_str) != Some("Z")).then_some(())?;
    fields.get(19)?.parse().ok()
}

/// The value of a variable a process was started with.
pub fn variable(pid: Pid, name: &str) -> Option<String> {
    let environ = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let prefix = format!("{name}=");
    environ.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(prefix.as_bytes())?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
}

/// The namespace process ids are of: those of another namespace mean other processes.
pub fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map(|meta| meta.ino()).unwrap_or_default()
}

/// The limit of POSIX message queues that a process has, in bytes.
fn mark(pid: Pid) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max msgqueue size"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The processes that belong to a group or carry a marker, those that this one adopted and that carry a mark, and all their
/// descendants. Ones that ended are left out.
pub fn members(leader: Pid, (name, marker): (&str, &str), carried: Option<u64>) -> Vec<Pid> {
    let rows = rows();
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let adopted = |row: &Row| row.parent == own && carried.is_some() && mark(row.pid) == carried;
    let leader = leader.as_raw_nonzero().get();
    let mut found: HashSet<i32> = rows
        .iter()
        .filter(|row| {
            row.group == leader || variable(row.pid, name).as_deref() == Some(marker) || adopted(row)
        })
        .map(|row| row.pid.as_raw_nonzero().get())
        .collect();
    add_descendants(&rows, &mut found);
    running(&rows, &found)
}

/// All descendants of a process that run.
pub fn descendants(of: Pid) -> Vec<Pid> {
    let (rows, own) = (rows(), of.as_raw_nonzero().get());
    let mut found = HashSet::from([own]);
    add_descendants(&rows, &mut found);
    found.remove(&own);
    running(&rows, &found)
}

fn add_descendants(rows: &[Row], found: &mut HashSet<i32>) {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for row in rows {
        children.entry(row.parent).or_default().push(row.pid.as_raw_nonzero().get());
    }
    let mut open: Vec<i32> = found.iter().copied().collect();
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if found.insert(*child) {
                open.push(*child);
            }
        }
    }
}

/// Those of the processes that have not ended.
fn running(rows: &[Row], found: &HashSet<i32>) -> Vec<Pid> {
    let of = rows.iter().filter(|row| !row.zombie && found.contains(&row.pid.as_raw_nonzero().get()));
    of.map(|row| row.pid).collect()
}

/// Collects the exit status of children that carry a mark and have ended, without those that are left to others.
pub fn reap_marked(is_mark: &dyn Fn(u64) -> bool, others: &BTreeSet<i32>) {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let ended = rows().into_iter().filter(|row| row.zombie && row.parent == own);
    for row in ended.filter(|row| !others.contains(&row.pid.as_raw_nonzero().get())) {
        if mark(row.pid).is_some_and(is_mark) {
            let _ = waitpid(Some(row.pid), WaitOptions::NOHANG);
        }
    }
}

/// Collects the exit status of processes this one adopted, so that none remains in the table. The leader's status is
/// collected by whoever started it.
pub fn reap(pids: &[Pid], leader: Pid) {
    for pid in pids.iter().filter(|pid| **pid != leader) {
        let _ = waitpid(Some(*pid), WaitOptions::NOHANG);
    }
}
