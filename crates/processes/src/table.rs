//! The process table from `/proc`, which is empty on systems without it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, test_kill_process_group, waitpid};

/// One process.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its id.
    pub pid: Pid,
    parent: i32,
    group: i32,
    zombie: bool,
    began: u64,
}

impl Row {
    fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Returns the identity of this process, which no later process with its id has.
    fn identity(&self) -> Identity {
        (self.id(), self.began)
    }
}

/// A process by its id and its start, in ticks since boot.
pub type Identity = (i32, u64);

/// The features by which a scope without a cgroup is recognized.
#[derive(Debug, Clone, Copy)]
pub struct Signs<'a> {
    pub leader: Pid,
    /// The variable in the environment of its processes, and its value.
    pub marker: (&'static str, &'a str),
    /// The limit that its processes inherit.
    pub mark: Option<u64>,
}

impl Signs<'_> {
    fn in_environment(&self, row: &Row) -> bool {
        variable(row.pid, self.marker.0).as_deref() == Some(self.marker.1)
    }

    fn by_limit(&self, row: &Row) -> bool {
        self.mark.is_some() && mark(row.pid) == self.mark
    }
}

/// The owner of the id of a scope's leader. Until the leader's exit status is collected, and while a process is in its
/// group, the kernel does not reuse the id. After that, a process or a group with this id can be unrelated.
#[derive(Debug, Default)]
pub enum Life {
    /// The leader runs, or its exit status is not collected.
    #[default]
    Led,
    /// The leader's exit status was collected. These processes were in its group; while one of them still is, the group
    /// belongs to the scope.
    Left(HashSet<Identity>),
    /// The group is empty.
    Without,
    /// Nothing of the scope runs.
    Over,
}

impl Life {
    /// The leader's exit status has just been collected.
    pub fn leader_collected(&mut self, leader: Pid) {
        *self = match test_kill_process_group(leader) {
            Err(Errno::SRCH) => Self::Without,
            _ => {
                let rows = rows();
                let id = leader.as_raw_nonzero().get();
                match rows.iter().any(|row| row.id() == id) {
                    true => Self::Without,
                    false => Self::Left(group(&rows, id).map(Row::identity).collect()),
                }
            }
        };
    }
}

fn group(rows: &[Row], id: i32) -> impl Iterator<Item = &Row> {
    rows.iter().filter(move |row| row.group == id)
}

/// Returns every process.
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
        began: fields.get(19)?.parse().ok()?,
    })
}

/// Returns the fields after the name, which can contain any text: state, parent, group, …
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// Returns the start of a process in ticks since boot; `None` if it does not run. Together with the id it identifies a
/// process.
pub fn started(pid: i32) -> Option<u64> {
    let fields = stat(pid)?;
    (fields.first().map(String::as_str) != Some("Z")).then_some(())?;
    fields.get(19)?.parse().ok()
}

/// Returns the value of a variable with which a process was started.
pub fn variable(pid: Pid, name: &str) -> Option<String> {
    let environ = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let prefix = format!("{name}=");
    environ.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(prefix.as_bytes())?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
}

/// Returns the namespace of process ids: ids of another namespace refer to other processes.
pub fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map(|meta| meta.ino()).unwrap_or_default()
}

/// Returns the POSIX message queue limit of a process in bytes.
fn mark(pid: Pid) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max msgqueue size"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the running processes of a scope: its leader's group, those with its marker, adopted ones with its mark, and
/// all their descendants.
pub fn members(signs: &Signs<'_>, life: &mut Life) -> Vec<Pid> {
    if matches!(life, Life::Over) {
        return Vec::new();
    }
    let found = look(signs, life);
    if !found.is_empty() || matches!(life, Life::Led) {
        return found;
    }
    // A process that started while the table was read can be missing.
    let found = look(signs, life);
    if found.is_empty() {
        // Later processes with its mark belong to another scope.
        *life = Life::Over;
    }
    found
}

fn look(signs: &Signs<'_>, life: &mut Life) -> Vec<Pid> {
    let rows = rows();
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let leader = signs.leader.as_raw_nonzero().get();
    let is_ours = match life {
        Life::Led => true,
        Life::Left(known) => {
            let mut in_group = group(&rows, leader);
            in_group.any(|row| {
                known.contains(&row.identity()) || signs.in_environment(row) || signs.by_limit(row)
            })
        }
        Life::Without | Life::Over => false,
    };
    match life {
        Life::Left(known) if is_ours => *known = group(&rows, leader).map(Row::identity).collect(),
        Life::Left(_) => *life = Life::Without,
        _ => {}
    }
    let mut found: HashSet<i32> = rows
        .iter()
        .filter(|row| {
            (is_ours && row.group == leader)
                || (row.parent == own && signs.by_limit(row))
                || signs.in_environment(row)
        })
        .map(Row::id)
        .collect();
    add_descendants(&rows, &mut found);
    running(&rows, &found)
}

/// Returns all running descendants of a process.
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
        children.entry(row.parent).or_default().push(row.id());
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

/// Returns the processes that have not ended.
fn running(rows: &[Row], found: &HashSet<i32>) -> Vec<Pid> {
    let of = rows.iter().filter(|row| !row.zombie && found.contains(&row.id()));
    of.map(|row| row.pid).collect()
}

/// The ended children whose exit status is not collected, with how often they were seen.
pub type Lingering = HashMap<Identity, u32>;

/// Collects the exit status of ended children with a mark, and of those seen `looks` times, because no one waits for
/// them. Children that others collect stay.
pub fn reap_adopted(
    is_mark: &dyn Fn(u64) -> bool,
    is_others: &dyn Fn(i32) -> bool,
    lingering: &mut Lingering,
    looks: u32,
) {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let ended = rows().into_iter().filter(|row| row.zombie && row.parent == own);
    let mut still = Lingering::new();
    for row in ended.filter(|row| !is_others(row.id())) {
        let seen = lingering.get(&row.identity()).copied().unwrap_or_default() + 1;
        if seen >= looks || mark(row.pid).is_some_and(is_mark) {
            let _ = waitpid(Some(row.pid), WaitOptions::NOHANG);
        } else {
            still.insert(row.identity(), seen);
        }
    }
    *lingering = still;
}

/// Collects the exit status of adopted processes, so that none remains in the table. The starters of other children
/// collect theirs.
pub fn reap(pids: &[Pid], is_others: &dyn Fn(i32) -> bool) {
    for pid in pids.iter().filter(|pid| !is_others(pid.as_raw_nonzero().get())) {
        let _ = waitpid(Some(*pid), WaitOptions::NOHANG);
    }
}
