//! How many git processes run at a time, so that no repository delays another.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
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
        match std::fs::read_to_string(&git) {
            Ok(text) => Some(above.join(text.trim().strip_prefix("gitdir: ")?)),
            Err(_) if git.is_dir() => Some(git),
            Err(_) => (above.join("HEAD").is_file()
                && (above.join("commondir").is_file() || above.join("objects").is_dir()))
            .then(|| above.to_owned()),
        }
    })?;
    let shared = std::fs::read_to_string(git.join("commondir"));
    std::fs::canonicalize(shared.map_or_else(|_| git.clone(), |shared| git.join(shared.trim()))).ok()
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

    #[tokio::test]
    async fn a_repository_delays_no_other() {
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
