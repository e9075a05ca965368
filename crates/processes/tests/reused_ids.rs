//! The id of a process that ended is given to another one, which is none of the scope's. Each test runs again in a namespace of
//! process ids of its own, where it says which id the next process gets.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ostler_processes::{ChildKind, Owner, Process, Program, ScopeChoice, Scopes, Signal};
use tokio::io::AsyncReadExt;

#[path = "support/not_run.rs"]
mod not_run;

use not_run::not_run;

static SCOPES: Scopes = Scopes::new("ostler-reuse", "OSTLER_REUSE_SCOPE");

/// Says in a test's process that it runs in the namespace.
const INSIDE: &str = "REUSE_INSIDE";
const LAST: &str = "/proc/sys/kernel/ns_last_pid";

/// Runs a test in a namespace of its own; `false` outside of it, where there is nothing more to do.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let inside = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", program]);
        command.env(INSIDE, "1").stdin(Stdio::null());
        command
    };
    let trial = inside("sh").args(["-c", &format!("echo 4000 > {LAST}")]).output();
    if !trial.is_ok_and(|ended| ended.status.success()) {
        not_run("no namespace of process ids can be made");
        return false;
    }
    let own = std::env::current_exe().unwrap();
    let ended = inside(own.to_str().unwrap()).args(["--exact", test, "--nocapture"]).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    false
}

/// Starts a program that prints its process id, and says what that is.
async fn start(script: &str) -> (Process, i32) {
    let program = Program {
        kind: ChildKind::Agent,
        command: "/bin/sh".to_owned(),
        args: ["-c", &format!("echo $$; {script}")].map(str::to_owned).to_vec(),
        env: BTreeMap::new(),
        cwd: PathBuf::from("/"),
        owner: Owner::default(),
        supervisor: None,
        supervised: false,
    };
    let (process, mut stdout, _) = Process::run(&SCOPES, &program, ScopeChoice::Group).unwrap();
    let mut said = String::new();
    while !said.ends_with('\n') {
        said.push(char::from(stdout.read_u8().await.unwrap()));
    }
    (process, said.trim().parse().unwrap())
}

/// Starts a process that has nothing to do with any scope, with this id, in a group of its own.
fn foreign(id: i32) -> Child {
    for _ in 0..100 {
        fs::write(LAST, (id - 1).to_string()).unwrap();
        let mut child = Command::new("sleep").arg("300").process_group(0).spawn().unwrap();
        if i32::try_from(child.id()) == Ok(id) {
            return child;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    panic!("no process got the id {id}");
}

/// Ends a process with a signal that no scope sends: it ends by another one if it was sent that before.
fn ends_by_own_signal(other: &mut Child) {
    // Signals that wait are delivered in the order of their numbers; KILL precedes all.
    let (own, others) = (Signal::PROF, [Signal::INT, Signal::TERM]);
    assert!(others.iter().all(|other| other.as_raw() < own.as_raw()));
    rustix::process::kill_process(rustix::process::Pid::from_child(other), own).unwrap();
    assert_eq!(other.wait().unwrap().signal(), Some(own.as_raw()), "the other process was signalled");
}

/// The ids of the processes with such a command line.
fn running(line: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let is_found = |entry: &fs::DirEntry| {
        let found = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        found.trim_end_matches('\0').replace('\0', " ") == line
    };
    entries.filter(is_found).map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Kills the processes with such a command line.
fn kill(line: &str) {
    for id in running(line) {
        let id = rustix::process::Pid::from_raw(id.parse().unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    }
}

/// Whether a process is in this group, also one whose end is not collected.
fn has_group(id: i32) -> bool {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.any(|stat| {
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(2) == Some(id.to_string().as_str())
    })
}

async fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_scope_that_ended_signals_nobody() {
    if !is_inside("a_scope_that_ended_signals_nobody") {
        return;
    }
    let (process, id) = start("exit 0").await;
    process.ended().await;
    let mut other = foreign(id);
    process.signal(Signal::TERM);
    process.close().await;
    process.end(Signal::TERM, Duration::from_millis(50)).await;
    process.kill().await;
    drop(process);
    // What a drop leaves to a task or to the supervisor has no event.
    tokio::time::sleep(Duration::from_millis(50)).await;
    ends_by_own_signal(&mut other);
}

#[tokio::test]
async fn a_scope_whose_last_process_ended_unseen_signals_nobody() {
    if !is_inside("a_scope_whose_last_process_ended_unseen_signals_nobody") {
        return;
    }
    let (process, id) = start("sleep 301 >/dev/null 2>&1 & exit 0").await;
    process.ended().await;
    until(|| running("sleep 301").len() == 1).await;
    kill("sleep 301");
    until(|| running("sleep 301").is_empty()).await;
    // Its end is collected too: the group is nobody's then.
    until(|| !has_group(id)).await;
    let mut other = foreign(id);
    process.kill().await;
    drop(process);
    // What a drop leaves to a task or to the supervisor has no event.
    tokio::time::sleep(Duration::from_millis(50)).await;
    ends_by_own_signal(&mut other);
}

#[tokio::test]
async fn what_a_leader_leaves_in_its_group_is_ended() {
    if !is_inside("what_a_leader_leaves_in_its_group_is_ended") {
        return;
    }
    let path = std::env::var("PATH").unwrap();
    let (process, _) =
        start(&format!("env -i PATH={path} sleep 302 >/dev/null 2>&1 & sleep 303 >/dev/null 2>&1 & exit 0"))
            .await;
    process.ended().await;
    until(|| running("sleep 302").len() == 1 && running("sleep 303").len() == 1).await;
    process.kill().await;
    until(|| running("sleep 302").is_empty() && running("sleep 303").is_empty()).await;
}
