//! What holds everything an agent starts: a cgroup where one can be made, otherwise its process group, the marker in
//! its environment and its descendants, with the daemon as the parent of those whose own parent ended.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Once};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, getpid, kill_process};
use tokio::process::Command;

use super::table;
use crate::options::ScopeChoice;

/// The variable that marks what an agent started.
pub const MARKER: &str = "OSTLER_AGENT_SCOPE";
/// How the names of scopes and of their cgroups begin.
const PREFIX: &str = "ostler-agent.";
/// Puts itself into the cgroup whose file is named first, then becomes the program named behind it.
const ENTER: &str = r#"echo 0 > "$0" && exec "$@""#;

/// The scopes of this daemon's agents.
static OPEN: LazyLock<Mutex<BTreeMap<String, Scope>>> = LazyLock::new(Mutex::default);

/// A scope, before its agent runs.
#[derive(Debug)]
pub struct Prepared {
    marker: String,
    cgroup: Option<PathBuf>,
}

/// The scope of one running agent.
#[derive(Debug)]
pub struct Scope {
    marker: String,
    cgroup: Option<PathBuf>,
    leader: Pid,
    /// Whether dropping it ends the scope: true of the one the agent's process holds.
    owned: bool,
}

impl Scope {
    /// A scope for one agent.
    pub fn prepare(choice: ScopeChoice) -> Prepared {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let marker = format!("{}{}", own_prefix(), NEXT.fetch_add(1, Ordering::Relaxed));
        let cgroup = match choice {
            ScopeChoice::Auto => own_cgroup().map(|own| own.join(&marker)).filter(|dir| usable(dir)),
            ScopeChoice::Group => None,
        };
        if cgroup.is_none() {
            adopt_orphans();
        }
        Prepared { marker, cgroup }
    }

    /// The agent's own process.
    pub fn leader(&self) -> Pid {
        self.leader
    }

    /// Every process in the scope that runs.
    pub fn members(&self) -> Vec<Pid> {
        match &self.cgroup {
            Some(dir) => cgroup_members(dir),
            None => table::members(self.leader, MARKER, &self.marker),
        }
    }

    /// Sends a signal to every process in the scope.
    pub fn signal(&self, signal: Signal) {
        if signal == Signal::KILL
            && let Some(dir) = &self.cgroup
            && fs::write(dir.join("cgroup.kill"), "1").is_ok()
        {
            return;
        }
        for pid in self.members() {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        OPEN.lock().remove(&self.marker);
        self.signal(Signal::KILL);
        if let Some(dir) = self.cgroup.clone() {
            remove(dir);
        }
    }
}

impl Prepared {
    /// Identifies the scope.
    pub fn marker(&self) -> &str {
        &self.marker
    }

    /// A command that runs the program inside the scope.
    pub fn command(&self, program: &Path) -> Command {
        match &self.cgroup {
            None => Command::new(program),
            Some(dir) => {
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(ENTER).arg(dir.join("cgroup.procs")).arg(program);
                command
            }
        }
    }

    /// The scope, once its agent runs.
    pub fn around(self, leader: Pid) -> Scope {
        let Self { marker, cgroup } = self;
        let listed = Scope { marker: marker.clone(), cgroup: cgroup.clone(), leader, owned: false };
        OPEN.lock().insert(marker.clone(), listed);
        Scope { marker, cgroup, leader, owned: true }
    }

    /// Removes a scope whose agent did not start.
    pub fn discard(self) {
        if let Some(dir) = self.cgroup {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// What contains agents: for the log.
pub fn containment(choice: ScopeChoice) -> String {
    let trial = own_cgroup().map(|own| (own.join(format!("{}0", own_prefix())), own));
    match trial.filter(|(dir, _)| choice == ScopeChoice::Auto && usable(dir)) {
        Some((dir, own)) => {
            let _ = fs::remove_dir(dir);
            format!("cgroups under {}", own.display())
        }
        None => "process groups".to_owned(),
    }
}

/// Kills what is left of every agent of this daemon.
pub fn kill_all() {
    for scope in std::mem::take(&mut *OPEN.lock()).into_values() {
        scope.signal(Signal::KILL);
    }
}

/// Kills what agents of daemons that no longer run have left behind: after a crash of the daemon, this removes them at
/// the next start.
pub fn sweep() {
    let own = own_prefix();
    let is_leftover = |marker: &str| {
        !marker.starts_with(&own)
            && daemon_of(marker).is_some_and(|(pid, begun)| table::started(pid) != Some(begun))
    };
    for row in table::rows() {
        if table::variable(row.pid, MARKER).is_some_and(|marker| is_leftover(&marker)) {
            let _ = kill_process(row.pid, Signal::KILL);
        }
    }
    let Some(parent) = own_cgroup() else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_leftover) {
            let _ = fs::write(entry.path().join("cgroup.kill"), "1");
            remove(entry.path());
        }
    }
}

/// How the scopes of this daemon are named: by its namespace, process id and start.
fn own_prefix() -> String {
    let pid = getpid().as_raw_nonzero().get();
    format!("{PREFIX}{}.{pid}.{}.", table::namespace(), table::started(pid).unwrap_or_default())
}

/// The daemon that made a scope, by process id and start; nothing for a scope of another namespace.
fn daemon_of(marker: &str) -> Option<(i32, u64)> {
    let mut parts = marker.strip_prefix(PREFIX)?.split('.');
    let namespace: u64 = parts.next()?.parse().ok()?;
    let daemon = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (namespace == table::namespace()).then_some(daemon)
}

/// The daemon's own cgroup in the unified hierarchy.
fn own_cgroup() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let (place, filesystem) = line.split_once(" - ")?;
        filesystem.starts_with("cgroup2 ").then(|| place.split(' ').nth(4))?
    })?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(Path::new(mount).join(path.trim_start_matches('/')))
}

/// Whether a cgroup could be made there that this daemon may fill and kill.
fn usable(dir: &Path) -> bool {
    if fs::create_dir(dir).is_err() {
        return false;
    }
    let writable = |file: &str| fs::OpenOptions::new().write(true).open(dir.join(file)).is_ok();
    let usable = writable("cgroup.procs") && writable("cgroup.kill") && Path::new("/bin/sh").is_file();
    if !usable {
        let _ = fs::remove_dir(dir);
    }
    usable
}

/// The processes of a cgroup and of those below it.
fn cgroup_members(dir: &Path) -> Vec<Pid> {
    let mut members: Vec<Pid> = fs::read_to_string(dir.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| Pid::from_raw(line.parse().ok()?))
        .collect();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            members.extend(cgroup_members(&entry.path()));
        }
    }
    members
}

/// Removes a cgroup and those below it, once the kernel has ended what was killed in them.
fn remove(dir: PathBuf) {
    fn now(dir: &Path) -> bool {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                now(&entry.path());
            }
        }
        fs::remove_dir(dir).is_ok() || !dir.exists()
    }
    if now(&dir) {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            for _ in 0..50 {
                tokio::time::sleep(super::POLL).await;
                if now(&dir) {
                    return;
                }
            }
        });
    }
}

/// Makes the daemon the parent of descendants whose own parent ended, so that their ends can be collected.
fn adopt_orphans() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(getpid()));
    });
}
