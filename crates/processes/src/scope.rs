//! Scopes, which contain everything that a program starts: a cgroup if one can be created, otherwise its process group,
//! the marker in its environment, an inherited limit, and its descendants, with the daemon as the parent of those whose
//! parent ended. In both cases a supervisor ends it with the daemon, because nothing removes the cgroup of a daemon that
//! was killed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, getpid, kill_process};
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::Instant;

use super::adopted::adopt_orphans;
use super::child::ChildKind;
use super::memory::{self, MemoryAccounting};
use super::table::{Life, Signs};
use super::{supervisor, table};

/// A shell script that enters the cgroups whose files are its first arguments, then becomes the program after them.
const ENTER: &str =
    r#"n=$0; while [ "$n" -gt 0 ]; do echo 0 > "$1" || exit 126; shift; n=$((n - 1)); done; exec "$@""#;

/// The maximum number of groups that are searched for remains of other daemons.
const GROUPS: usize = 20_000;

/// The number of marks. Among that many concurrent scopes, those with the same mark cannot be distinguished.
const MARKS: u64 = 100_000;

/// How processes are contained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScopeChoice {
    /// A cgroup if one can be created, otherwise a process group.
    #[default]
    Auto,
    /// A process group, found again by a marker in the environment.
    Group,
}

/// The scopes of one kind in this daemon. A plugin has one, in a `static`.
#[derive(Debug)]
pub struct Scopes {
    /// The prefix of the names of scopes and of their cgroups.
    prefix: &'static str,
    /// The variable that marks the processes of a scope.
    marker: &'static str,
    open: Mutex<BTreeMap<String, Scope>>,
    /// Groups of ended scopes that the kernel does not remove yet.
    leaving: Mutex<Vec<PathBuf>>,
}

/// A scope, before its program runs.
#[derive(Debug)]
pub(crate) struct Prepared {
    scopes: &'static Scopes,
    marker: String,
    cgroup: Option<PathBuf>,
    memory: Option<PathBuf>,
    /// The limit that its processes inherit, if it has no cgroup.
    mark: Option<u64>,
    /// Whether a command of the daemon's program starts the program, and marks it if it has no cgroup.
    helped: bool,
    supervised: bool,
}

/// The owner of the processes of a scope.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The agent's provider; empty for other programs.
    pub provider: String,
    /// The URI of the session or terminal; empty for a check.
    pub session: String,
}

/// The running processes of one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    pub owner: Owner,
    /// Their number.
    pub processes: usize,
    /// Their memory in bytes.
    pub memory: u64,
    /// How the memory was counted.
    pub counted: MemoryAccounting,
}

/// The scope of one running program.
#[derive(Debug)]
pub(crate) struct Scope {
    scopes: &'static Scopes,
    marker: String,
    owner: Owner,
    cgroup: Option<PathBuf>,
    /// Its group in the memory hierarchy of version 1, if the cgroup does not count memory.
    memory: Option<PathBuf>,
    leader: Pid,
    /// The limit that its processes inherit, if it has no cgroup.
    mark: Option<u64>,
    /// Whether the leader's id still belongs to the scope.
    life: Arc<Mutex<Life>>,
    /// Whether the leader is a supervisor, which ends with its program.
    supervised: bool,
    /// Whether dropping it ends the scope: true for the one in its `Process`.
    owned: bool,
}

impl Scope {
    /// Called by the collector of the leader's exit status until the leader has ended; `collect` collects it.
    pub fn leader_collected<T>(
        leader: Pid,
        life: &Mutex<Life>,
        collect: impl FnOnce() -> std::task::Poll<T>,
    ) -> std::task::Poll<T> {
        // The scope's processes are not searched between this and the update of the state.
        let mut life = life.lock();
        let ended = collect();
        if ended.is_ready() {
            life.leader_collected(leader);
        }
        ended
    }

    /// Returns the leader, and whether its id still belongs to the scope.
    pub fn led(&self) -> (Pid, Arc<Mutex<Life>>) {
        (self.leader, self.life.clone())
    }

    /// Returns every running process of the scope.
    pub fn members(&self) -> Vec<Pid> {
        self.members_in(&mut self.life.lock())
    }

    fn members_in(&self, life: &mut Life) -> Vec<Pid> {
        let signs =
            Signs { leader: self.leader, marker: (self.scopes.marker, &self.marker), mark: self.mark };
        match &self.cgroup {
            Some(dir) => {
                let mut members = cgroup_members(dir);
                // A supervisor is not in the cgroup, which its program enters.
                members.extend(Some(self.leader).filter(|_| self.supervised && matches!(life, Life::Led)));
                members
            }
            None => table::members(&signs, life),
        }
    }

    /// Returns the memory of its processes.
    pub fn usage(&self) -> Usage {
        let members = self.members();
        let (memory, counted) = memory::of(self.cgroup.as_deref(), self.memory.as_deref(), &members);
        Usage { owner: self.owner.clone(), processes: members.len(), memory, counted }
    }

    /// Makes the kernel limit its memory, if possible.
    pub fn limit_memory(&self, bytes: u64) {
        memory::limit(self.cgroup.as_deref(), self.memory.as_deref(), bytes);
    }

    /// Returns whether the kernel killed one of its processes at the limit.
    pub fn exceeded_memory(&self) -> bool {
        memory::was_exceeded(self.cgroup.as_deref(), self.memory.as_deref())
    }

    /// Sends a signal to every process in the scope.
    pub fn signal(&self, signal: Signal) {
        if signal == Signal::KILL && self.kill_cgroup() {
            return;
        }
        // A supervisor ends by itself after its program.
        self.tell(signal, self.supervised.then_some(self.leader));
    }

    /// Kills every process in the scope, including the supervisor.
    pub fn kill_with_supervisor(&self) {
        match self.supervised {
            true => {
                self.kill_cgroup();
                self.tell(Signal::KILL, None);
            }
            false => self.signal(Signal::KILL),
        }
    }

    /// Kills every process in the cgroup; returns `false` if there is none.
    fn kill_cgroup(&self) -> bool {
        self.cgroup.as_ref().is_some_and(|dir| fs::write(dir.join("cgroup.kill"), "1").is_ok())
    }

    fn tell(&self, signal: Signal, spared: Option<Pid>) {
        // The leader's exit status is not collected in the meantime.
        let mut life = self.life.lock();
        for pid in self.members_in(&mut life).into_iter().filter(|pid| Some(*pid) != spared) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills every process in the scope, including those that fork in the meantime and a supervisor that does not end
    /// by itself.
    pub async fn end(&self) {
        let (begun, limit) = (Instant::now(), super::KILL_LIMIT);
        while begun.elapsed() < limit && !self.members().is_empty() {
            match begun.elapsed() < limit / 2 {
                true => self.signal(Signal::KILL),
                false => self.kill_with_supervisor(),
            }
            tokio::time::sleep(super::POLL).await;
        }
    }

    /// Removes its groups.
    fn remove(&self) {
        let left = [&self.cgroup, &self.memory].into_iter().flatten().filter(|dir| !removed(dir));
        let left: Vec<PathBuf> = left.cloned().collect();
        if !left.is_empty() {
            let mut leaving = self.scopes.leaving.lock();
            leaving.retain(|dir| dir.exists());
            leaving.extend(left.iter().cloned());
        }
        left.into_iter().for_each(remove);
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        let open = self.scopes.open.lock().remove(&self.marker);
        match (open, tokio::runtime::Handle::try_current()) {
            // The supervisor still has to end its program.
            (Some(scope), Ok(runtime)) if self.supervised && !self.members().is_empty() => {
                self.signal(Signal::KILL);
                drop(runtime.spawn(async move { scope.end().await }));
            }
            _ => self.kill_with_supervisor(),
        }
        self.remove();
    }
}

impl Prepared {
    /// Returns the variable that marks the processes of the scope, and its value.
    pub fn marker(&self) -> (&'static str, &str) {
        (self.scopes.marker, &self.marker)
    }

    /// Returns whether the program is supervised.
    pub fn is_supervised(&self) -> bool {
        self.supervised
    }

    /// Returns a command that runs the program inside the scope.
    pub fn command(&self, kind: ChildKind, program: &Path, helper: Option<&[String]>) -> Command {
        let groups: Vec<PathBuf> =
            [&self.cgroup, &self.memory].into_iter().flatten().map(|dir| dir.join("cgroup.procs")).collect();
        let mut words: Vec<OsString> = Vec::new();
        if let (true, Some(helper)) = (self.helped, helper) {
            words.extend(helper.iter().map(OsString::from));
            let arguments = match self.supervised {
                true => supervisor::arguments(self.marker(), self.mark),
                false => supervisor::marking(self.mark),
            };
            words.extend(arguments.into_iter().map(OsString::from));
        }
        if !groups.is_empty() {
            words.extend(["/bin/sh", "-c", ENTER].map(OsString::from));
            words.push(groups.len().to_string().into());
            words.extend(groups.into_iter().map(PathBuf::into_os_string));
        }
        words.push(program.as_os_str().to_owned());
        let mut words = words.into_iter();
        let mut command = Command::from(kind.command(words.next().unwrap_or_default()));
        command.args(words);
        command
    }

    /// Returns the scope once its program runs.
    pub fn around(self, leader: Pid, owner: Owner) -> Scope {
        let Self { scopes, marker, cgroup, memory, mark, helped, supervised } = self;
        // Processes that it starts before it is marked would not be found.
        let mark = mark.filter(|mark| helped || set_mark(leader, *mark));
        let life = Arc::<Mutex<Life>>::default();
        let scope = |owned| Scope {
            scopes,
            marker: marker.clone(),
            owner: owner.clone(),
            cgroup: cgroup.clone(),
            memory: memory.clone(),
            leader,
            mark,
            life: life.clone(),
            supervised,
            owned,
        };
        scopes.open.lock().insert(marker.clone(), scope(false));
        scope(true)
    }

    /// Removes a scope whose program did not start.
    pub fn discard(self) {
        for dir in [self.cgroup, self.memory].into_iter().flatten() {
            let _ = fs::remove_dir(dir);
        }
    }
}

impl Scopes {
    /// Creates scopes whose names begin with `prefix` and whose processes have the variable `marker`.
    pub const fn new(prefix: &'static str, marker: &'static str) -> Self {
        Self { prefix, marker, open: Mutex::new(BTreeMap::new()), leaving: Mutex::new(Vec::new()) }
    }

    /// Creates a scope for one program, which is supervised if possible. Without a cgroup it is also marked.
    pub(crate) fn prepare(&'static self, choice: ScopeChoice, helped: bool, supervised: bool) -> Prepared {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let marker = format!("{}{number}", self.own_prefix());
        let cgroup = match choice {
            ScopeChoice::Auto => own_cgroup().map(|own| own.join(&marker)).filter(|dir| usable(dir)),
            ScopeChoice::Group => None,
        };
        if cgroup.is_none() {
            adopt_orphans();
        }
        let counts = cgroup.as_ref().is_some_and(|dir| dir.join("memory.current").is_file());
        let memory = match choice {
            ScopeChoice::Auto if !counts => {
                memory::own_group().map(|own| own.join(&marker)).filter(|dir| usable_for_memory(dir))
            }
            _ => None,
        };
        let helped = helped && (cgroup.is_none() || supervised) && cfg!(target_os = "linux");
        let mark = cgroup.is_none().then(|| mark_of(number)).flatten();
        Prepared { scopes: self, marker, cgroup, memory, mark, helped, supervised: helped && supervised }
    }

    /// Returns how many programs of each provider run.
    pub fn running(&self) -> BTreeMap<String, usize> {
        let mut running = BTreeMap::new();
        for scope in self.open.lock().values() {
            *running.entry(scope.owner.provider.clone()).or_default() += 1;
        }
        running
    }

    /// Returns the memory of each owner's processes, by provider and session. Reads files, so do not call it in a
    /// shared task.
    pub fn usages(&self) -> Vec<Usage> {
        let mut all: BTreeMap<Owner, Usage> = BTreeMap::new();
        let scopes: Vec<String> = self.open.lock().keys().cloned().collect();
        for marker in scopes {
            let Some(usage) = self.open.lock().get(&marker).map(Scope::usage) else { continue };
            match all.get_mut(&usage.owner) {
                Some(sum) => {
                    sum.processes += usage.processes;
                    sum.memory += usage.memory;
                }
                None => drop(all.insert(usage.owner.clone(), usage)),
            }
        }
        all.into_values().collect()
    }

    /// Returns how programs are contained, for the log.
    pub fn containment(&self, choice: ScopeChoice, supervised: bool) -> String {
        let trial = own_cgroup().map(|own| (own.join(format!("{}0", self.own_prefix())), own));
        let groups = match trial.filter(|(dir, _)| choice == ScopeChoice::Auto && usable(dir)) {
            Some((dir, own)) => {
                let _ = fs::remove_dir(dir);
                format!("cgroups under {}", own.display())
            }
            None => "process groups".to_owned(),
        };
        match supervised && cfg!(target_os = "linux") {
            true => format!("{groups}, each below a supervisor (ostler supervise)"),
            false => groups,
        }
    }

    /// Kills the remaining processes of these scopes at the end of the daemon.
    pub async fn kill_all(&self) {
        let scopes: Vec<Scope> = std::mem::take(&mut *self.open.lock()).into_values().collect();
        futures::future::join_all(scopes.iter().map(|scope| async move {
            scope.end().await;
            scope.remove();
        }))
        .await;
        let begun = Instant::now();
        while begun.elapsed() < super::KILL_LIMIT && self.are_leaving() {
            tokio::time::sleep(super::POLL).await;
        }
    }

    /// Returns whether groups of ended scopes still exist.
    fn are_leaving(&self) -> bool {
        let mut leaving = self.leaving.lock();
        leaving.retain(|dir| !removed(dir));
        !leaving.is_empty()
    }

    /// Kills the remaining processes of daemons that no longer run. After a crash, the next start of the daemon removes
    /// them.
    pub fn sweep(&self) {
        let own = self.own_prefix();
        let is_leftover = |marker: &str| {
            !marker.starts_with(&own)
                && self.daemon_of(marker).is_some_and(|(pid, begun)| table::started(pid) != Some(begun))
        };
        for row in table::rows() {
            if table::variable(row.pid, self.marker).is_some_and(|marker| is_leftover(&marker)) {
                let _ = kill_process(row.pid, Signal::KILL);
            }
        }
        // That daemon can have run in another cgroup, for example as a service instead of from a shell.
        for root in [cgroups(), memory::groups()].into_iter().flatten() {
            for dir in found_below(root, &|name| is_leftover(name)) {
                end_all(&dir);
                remove(dir);
            }
        }
    }

    /// Returns the prefix of this daemon's scopes: its namespace, process id and start.
    fn own_prefix(&self) -> String {
        let pid = getpid().as_raw_nonzero().get();
        let begun = table::started(pid).unwrap_or_default();
        format!("{}.{}.{pid}.{begun}.", self.prefix, table::namespace())
    }

    /// Returns the daemon that created a scope, by process id and start; `None` for a scope of another namespace.
    fn daemon_of(&self, marker: &str) -> Option<(i32, u64)> {
        let mut parts = marker.strip_prefix(self.prefix)?.strip_prefix('.')?.split('.');
        let namespace: u64 = parts.next()?.parse().ok()?;
        let daemon = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        (namespace == table::namespace()).then_some(daemon)
    }
}

/// The mount point of the unified hierarchy.
fn cgroups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let (place, filesystem) = line.split_once(" - ")?;
        filesystem.starts_with("cgroup2 ").then(|| place.split(' ').nth(4))?
    })?;
    Some(PathBuf::from(mount))
}

/// Returns the daemon's cgroup in the unified hierarchy.
fn own_cgroup() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(cgroups()?.join(path.trim_start_matches('/')))
}

/// Returns the groups below a group with a matching name.
fn found_below(root: PathBuf, fits: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let (mut found, mut open, mut seen) = (Vec::new(), vec![root], 0);
    while let Some(dir) = open.pop().filter(|_| seen < GROUPS) {
        seen += 1;
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            match entry.file_name().to_str().is_some_and(fits) {
                true => found.push(entry.path()),
                false => open.push(entry.path()),
            }
        }
    }
    found
}

/// Kills every process of a group. Version 1 has no operation for this.
fn end_all(dir: &Path) {
    if fs::write(dir.join("cgroup.kill"), "1").is_err() {
        for pid in cgroup_members(dir) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Returns whether a cgroup can be created there to which this daemon can add processes and kill them.
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

/// Returns whether a group can be created there in the memory hierarchy of version 1 to which this daemon can add
/// processes.
fn usable_for_memory(dir: &Path) -> bool {
    if fs::create_dir(dir).is_err() {
        return false;
    }
    let writable = fs::OpenOptions::new().write(true).open(dir.join("cgroup.procs")).is_ok();
    let usable = writable && dir.join("memory.usage_in_bytes").is_file() && Path::new("/bin/sh").is_file();
    if !usable {
        let _ = fs::remove_dir(dir);
    }
    usable
}

/// Returns the processes of a cgroup and its descendants.
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

/// Removes a cgroup and its descendants; returns `false` if the kernel cannot remove them yet.
fn removed(dir: &Path) -> bool {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            removed(&entry.path());
        }
    }
    fs::remove_dir(dir).is_ok() || !dir.exists()
}

/// Removes a cgroup and its descendants, once the kernel has ended their killed processes.
fn remove(dir: PathBuf) {
    if removed(&dir) {
        return;
    }
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            for _ in 0..50 {
                tokio::time::sleep(super::POLL).await;
                if removed(&dir) {
                    return;
                }
            }
        });
    }
}

/// The mark of a scope: a limit that processes inherit and that few programs use, the bytes of POSIX message queues. A
/// process that leaves its group, outlives its parent and clears its environment still has it.
#[cfg(target_os = "linux")]
fn mark_of(number: u64) -> Option<u64> {
    own_limit()?.checked_sub(number % MARKS + 1)
}

/// The limit that is lowered for a mark.
#[cfg(target_os = "linux")]
fn own_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Msgqueue);
    current.or(maximum)
}

/// Marks a running process.
#[cfg(target_os = "linux")]
fn set_mark(leader: Pid, mark: u64) -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Msgqueue);
    prlimit(Some(leader), Resource::Msgqueue, Rlimit { current: Some(mark), maximum }).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn mark_of(_number: u64) -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
fn own_limit() -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
fn set_mark(_leader: Pid, _mark: u64) -> bool {
    false
}

/// Returns whether a limit is the mark of a scope.
pub(crate) fn is_mark(mark: u64) -> bool {
    own_limit().and_then(|limit| limit.checked_sub(mark)).is_some_and(|below| (1..=MARKS).contains(&below))
}
