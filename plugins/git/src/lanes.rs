//! How many git processes run at a time, so that one busy repository does not delay the others.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of processes in their first second.
const AT_A_TIME: usize = 8;
/// The maximum number of processes of one repository in their first second.
const OF_A_REPOSITORY: usize = 4;
/// The maximum number of processes of one repository.
const ALL_OF_A_REPOSITORY: usize = 16;
/// How long a process counts among those that run at a time.
const FIRST: Duration = Duration::from_secs(1);
/// How many repositories are remembered before those without a process are forgotten.
const REPOSITORIES: usize = 256;
/// How many directories are remembered with their repositories.
const DIRECTORIES: usize = 1024;
/// The largest file that names a folder, in bytes: the longest path of the system.
const NAME_LIMIT: u64 = 4096;

static RUNNING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(AT_A_TIME)));
static LANES: Mutex<BTreeMap<PathBuf, Arc<Lane>>> = Mutex::new(BTreeMap::new());
static KNOWN: LazyLock<Mutex<HashMap<PathBuf, PathBuf>>> = LazyLock::new(Mutex::default);

/// The processes of one repository.
struct Lane {
    first: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// The right to run a process; it is returned when this is dropped.
pub(crate) struct Turn {
    first: [Option<OwnedSemaphorePermit>; 2],
    _all: Option<OwnedSemaphorePermit>,
}

impl Turn {
    /// Waits until a process may run in a directory.
    pub(crate) async fn of(directory: &Path) -> Self {
        let lane = lane(repository_of(directory).await);
        // None of them is ever closed.
        let all = lane.all.clone().acquire_owned().await.ok();
        let own = lane.first.clone().acquire_owned().await.ok();
        let first = [own, RUNNING.clone().acquire_owned().await.ok()];
        Self { first, _all: all }
    }

    /// Lets others run after the first second of a process: one that takes long does not delay them.
    pub(crate) async fn yield_after_first_second(&mut self) {
        tokio::time::sleep(FIRST).await;
        self.first = [None, None];
    }
}

fn lane(repository: PathBuf) -> Arc<Lane> {
    let mut all = LANES.lock();
    if all.len() >= REPOSITORIES {
        all.retain(|_, lane| {
            Arc::strong_count(lane) > 1 || lane.all.available_permits() < ALL_OF_A_REPOSITORY
        });
    }
    let new = || {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Arc::new(Lane { first: semaphore(OF_A_REPOSITORY), all: semaphore(ALL_OF_A_REPOSITORY) })
    };
    all.entry(repository).or_insert_with(new).clone()
}

/// The repository of a directory, as far as its turns are concerned.
async fn repository_of(directory: &Path) -> PathBuf {
    if let Some(known) = KNOWN.lock().get(directory) {
        return known.clone();
    }
    let from = directory.to_owned();
    let found = tokio::task::spawn_blocking(move || common_dir(&from).unwrap_or(from)).await;
    let found = found.unwrap_or_else(|_| directory.to_owned());
    let mut known = KNOWN.lock();
    if known.len() >= DIRECTORIES {
        known.clear();
    }
    known.insert(directory.to_owned(), found.clone());
    found
}

/// Finds git's folder that the working trees of a directory's repository share, without git: a wrong answer changes only who
/// waits for whom.
fn common_dir(directory: &Path) -> Option<PathBuf> {
    let git = directory.ancestors().find_map(|above| {
        let git = above.join(".git");
        match small_text(&git) {
            Some(text) => Some(above.join(text.trim().strip_prefix("gitdir: ")?)),
            None if git.is_dir() => Some(git),
            None => (above.join("HEAD").is_file()
                && (above.join("commondir").is_file() || above.join("objects").is_dir()))
            .then(|| above.to_owned()),
        }
    })?;
    let shared = small_text(&git.join("commondir"));
    std::fs::canonicalize(shared.map_or_else(|| git.clone(), |shared| git.join(shared.trim()))).ok()
}

/// Reads a small regular file. A repository can have a pipe or a link to a device in its place, whose read does not end.
fn small_text(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let found = file.metadata().ok()?;
    if !found.is_file() || found.len() > NAME_LIMIT {
        return None;
    }
    let mut text = String::new();
    file.take(NAME_LIMIT).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_directories_of_a_repository_have_its_common_folder() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let git = |arguments: &[&str]| {
            let out = ostler_processes::ChildKind::Hook
                .command("git")
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-C"])
                .arg(&top)
                .args(arguments)
                .output()
                .unwrap();
            assert!(out.status.success(), "{arguments:?}: {out:?}");
        };
        git(&["init", "-q", "one"]);
        git(&["-C", "one", "commit", "-q", "--allow-empty", "-m", "First"]);
        git(&["-C", "one", "worktree", "add", "-q", "../linked"]);
        git(&["clone", "-q", "--bare", "one", "bare.git"]);
        std::fs::create_dir_all(top.join("one/a/b")).unwrap();
        std::fs::create_dir_all(top.join("linked/c")).unwrap();
        for (directory, expected) in [
            ("one", Some("one/.git")),
            ("one/a/b", Some("one/.git")),
            ("one/.git", Some("one/.git")),
            ("one/gone", Some("one/.git")),
            ("linked/c", Some("one/.git")),
            ("one/.git/worktrees/linked", Some("one/.git")),
            ("bare.git", Some("bare.git")),
            ("bare.git/refs", Some("bare.git")),
        ] {
            let expected = expected.map(|path| top.join(path));
            assert_eq!(common_dir(&top.join(directory)), expected, "{directory}");
        }
    }

    #[test]
    fn only_small_regular_files_name_a_folder() {
        enum Is {
            Text(String),
            LinkTo(&'static str),
            Pipe,
        }
        let text = |text: &str| Is::Text(text.to_owned());
        let long = |start: &str| Is::Text(format!("{start}{}", "/".repeat(5000)));
        for (name, file, is, expected) in [
            ("a folder", "git/x", text(""), "top/.git"),
            ("shared", "top/.git/commondir", text("../../git\n"), "git"),
            ("a device as shared", "top/.git/commondir", Is::LinkTo("/dev/zero"), "top/.git"),
            ("a pipe as shared", "top/.git/commondir", Is::Pipe, "top/.git"),
            ("a long shared", "top/.git/commondir", long("../../git"), "top/.git"),
            ("a file", "top/a/.git", text("gitdir: ../../git\n"), "git"),
            ("a device", "top/a/.git", Is::LinkTo("/dev/zero"), "top/.git"),
            ("a pipe", "top/a/.git", Is::Pipe, "top/.git"),
            ("a long file", "top/a/.git", long("gitdir: ../../git"), "top/.git"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path().canonicalize().unwrap();
            for made in ["git", "top/.git", "top/a"] {
                std::fs::create_dir_all(root.join(made)).unwrap();
            }
            let file = root.join(file);
            match is {
                Is::Text(text) => std::fs::write(&file, text).unwrap(),
                Is::LinkTo(target) => std::os::unix::fs::symlink(target, &file).unwrap(),
                Is::Pipe => {
                    rustix::fs::mkfifoat(rustix::fs::CWD, &file, Mode::RUSR | Mode::WUSR).unwrap();
                }
            }
            assert_eq!(common_dir(&root.join("top/a")), Some(root.join(expected)), "{name}");
        }
    }

    #[tokio::test]
    async fn one_busy_repository_delays_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["busy", "other"] {
            std::fs::create_dir_all(at(name).join(".git")).unwrap();
        }
        // More than run at a time, in many directories of one repository.
        let waiting: Vec<_> = (0..100)
            .map(|number| {
                let directory = at("busy").join(number.to_string());
                tokio::spawn(async move {
                    let turn = Turn::of(&directory).await;
                    std::future::pending::<()>().await;
                    drop(turn);
                })
            })
            .collect();
        while lane(at("busy").join(".git").canonicalize().unwrap()).first.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let other = tokio::time::timeout(Duration::from_secs(30), Turn::of(&at("other"))).await;
        assert!(other.is_ok(), "it waits for the busy one");
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
