//! The memory of a scope: counted by its cgroup if that has a memory controller (version 2, or a separate group in
//! version 1), otherwise summed over its processes.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

/// How memory is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryAccounting {
    /// By the cgroup of version 2.
    Cgroup2,
    /// By a cgroup of version 1.
    Cgroup1,
    /// As the sum of the processes' proportional set sizes.
    Processes,
}

impl MemoryAccounting {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cgroup2 => "cgroup2",
            Self::Cgroup1 => "cgroup1",
            Self::Processes => "pss",
        }
    }
}

/// Returns the memory of a scope in bytes, without page cache that can be dropped, and how it was counted.
pub fn of(cgroup: Option<&Path>, memory_group: Option<&Path>, members: &[Pid]) -> (u64, MemoryAccounting) {
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let counted = |dir: &Path, file: &str, stat: &str| {
        Some(
            number(dir.join(file))?.saturating_sub(field(&dir.join("memory.stat"), stat).unwrap_or_default()),
        )
    };
    if let Some(bytes) = cgroup.and_then(|dir| counted(dir, "memory.current", "inactive_file")) {
        return (bytes, MemoryAccounting::Cgroup2);
    }
    let of_group = memory_group.and_then(|dir| counted(dir, "memory.usage_in_bytes", "total_inactive_file"));
    if let Some(bytes) = of_group {
        return (bytes, MemoryAccounting::Cgroup1);
    }
    (members.iter().filter_map(|pid| proportional(*pid)).sum(), MemoryAccounting::Processes)
}

/// Makes the kernel limit a scope, if its cgroup can.
pub fn limit(cgroup: Option<&Path>, memory_group: Option<&Path>, bytes: u64) {
    if let Some(dir) = cgroup {
        let _ = fs::write(dir.join("memory.oom.group"), "1");
        let _ = fs::write(dir.join("memory.max"), bytes.to_string());
    }
    if let Some(dir) = memory_group {
        let _ = fs::write(dir.join("memory.limit_in_bytes"), bytes.to_string());
    }
}

/// Returns whether the kernel killed a process because the scope reached its limit.
pub fn was_exceeded(cgroup: Option<&Path>, memory_group: Option<&Path>) -> bool {
    let killed = |path: PathBuf| field(&path, "oom_kill").is_some_and(|count| count > 0);
    cgroup.is_some_and(|dir| killed(dir.join("memory.events")))
        || memory_group.is_some_and(|dir| killed(dir.join("memory.oom_control")))
}

/// Returns the number of a name in a file of lines `<name> <number>`.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Returns the proportional set size of a process in bytes, or its resident set if the kernel does not report it.
fn proportional(pid: Pid) -> Option<u64> {
    let file = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", pid.as_raw_nonzero())).ok();
    let kilobytes = |text: String, name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned))?;
        line.trim_start_matches(':').trim().strip_suffix(" kB")?.trim().parse().ok()
    };
    let bytes = |kilobytes: u64| kilobytes * 1024;
    let shared = file("smaps_rollup").and_then(|text| kilobytes(text, "Pss:"));
    shared.or_else(|| file("status").and_then(|text| kilobytes(text, "VmRSS"))).map(bytes)
}

/// The mount point of the memory hierarchy of version 1.
pub fn groups() -> Option<PathBuf> {
    mounted().map(|(_, mount)| PathBuf::from(mount))
}

/// Returns the root of the mounted memory hierarchy of version 1, and its mount point.
fn mounted() -> Option<(String, String)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (place, filesystem) = line.split_once(" - ")?;
        let mut words = filesystem.split(' ');
        let memory = words.next()? == "cgroup" && words.nth(1)?.split(',').any(|option| option == "memory");
        let mut fields = place.split(' ').skip(3);
        memory.then_some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    })
}

/// Returns the daemon's group in the memory hierarchy of version 1.
pub fn own_group() -> Option<PathBuf> {
    let (root, mount) = mounted()?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|controller| controller == "memory").then(|| path.to_owned())
    })?;
    let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(&path);
    Some(Path::new(&mount).join(below.trim_start_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_cgroup_is_counted_by_its_pages() {
        let (bytes, how) = of(None, None, &[rustix::process::getpid()]);
        assert_eq!(how, MemoryAccounting::Processes);
        assert!((1 << 20..1 << 32).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_cgroup_is_counted_without_what_it_can_drop() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("memory.current", "5000\n");
        write("memory.stat", "anon 4000\ninactive_file 1000\nactive_file 7\n");
        write("memory.events", "oom 1\noom_kill 0\n");
        assert_eq!(of(Some(dir.path()), None, &[]), (4000, MemoryAccounting::Cgroup2));
        assert!(!was_exceeded(Some(dir.path()), None));
        write("memory.events", "oom 1\noom_kill 2\n");
        assert!(was_exceeded(Some(dir.path()), None));
        let older = tempfile::tempdir().unwrap();
        fs::write(older.path().join("memory.usage_in_bytes"), "3000\n").unwrap();
        fs::write(older.path().join("memory.stat"), "inactive_file 1\ntotal_inactive_file 500\n").unwrap();
        assert_eq!(of(None, Some(older.path()), &[]), (2500, MemoryAccounting::Cgroup1));
        limit(None, Some(older.path()), 77);
        assert_eq!(fs::read_to_string(older.path().join("memory.limit_in_bytes")).unwrap(), "77");
    }
}
