//! The changes of a working tree, and how they stay current: a small tree is read each time; a large one is read once,
//! then only where the system reports changes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use crate::guard::Guard;
use crate::program::{Failure, Git};
use crate::repository::Repository;
use crate::status::{Branch, Row, Status};
use crate::tree_watch::{ChangedPaths, Watch};
use ostler_processes::shared_work::SharedWork;

/// A tree whose status takes longer than this is watched.
const SLOW: Duration = Duration::from_millis(120);
/// The most paths that a status is restricted to; with more, everything is read.
const PATHS: usize = 400;
/// How long a watched tree is trusted without reading all of it: the system does not report every change, as of a file
/// that is written through a mapping.
const TRUSTED: Duration = Duration::from_secs(300);
/// How many trees are remembered.
const TREES: usize = 256;
/// How long a tree that is not asked for is remembered, and watched.
const UNUSED: Duration = Duration::from_secs(1800);
/// The most rows of one tree.
const ROWS: usize = 10_000;

/// The working trees that were asked for.
#[derive(Default)]
pub(crate) struct Trees(Mutex<HashMap<PathBuf, Arc<Tree>>>);

impl Trees {
    /// The working tree of a directory; `None` outside of a repository and where there is none.
    pub(crate) async fn of(&self, directory: &Path) -> Result<Option<Arc<Tree>>, Failure> {
        let Some(repository) = Repository::of(directory).await? else { return Ok(None) };
        let Some(root) = repository.tree.clone() else { return Ok(None) };
        let mut trees = self.0.lock();
        if let Some(tree) = trees.get(&root).filter(|tree| tree.repository == repository) {
            *tree.used.lock() = Instant::now();
            return Ok(Some(tree.clone()));
        }
        trees.retain(|_, tree| tree.used.lock().elapsed() < UNUSED);
        if trees.len() >= TREES {
            let oldest = trees.iter().min_by_key(|(_, tree)| *tree.used.lock()).map(|(root, _)| root.clone());
            oldest.map(|root| trees.remove(&root));
        }
        let tree = Arc::new(Tree {
            root: root.clone(),
            repository,
            used: Mutex::new(Instant::now()),
            writing: tokio::sync::Mutex::default(),
            reads: SharedWork::default(),
            scan: tokio::sync::Mutex::default(),
            unwatched: tokio::sync::Mutex::default(),
            guard: tokio::sync::Mutex::default(),
            uncompared: Mutex::default(),
        });
        trees.insert(root, tree.clone());
        Ok(Some(tree))
    }

    /// A working tree that was asked for before, by its top.
    pub(crate) fn known(&self, root: &Path) -> Option<Arc<Tree>> {
        self.0.lock().get(root).cloned()
    }

    /// Forgets a tree that is removed.
    pub(crate) fn forget(&self, root: &Path) {
        self.0.lock().remove(root);
    }

    /// Forgets all of them, and with them their watches.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// One working tree.
pub(crate) struct Tree {
    /// Its top.
    pub root: PathBuf,
    pub repository: Repository,
    used: Mutex<Instant>,
    /// Held during a change of the tree or its index.
    pub writing: tokio::sync::Mutex<()>,
    /// The reads of its changes.
    reads: SharedWork<Result<Arc<Status>, Failure>>,
    scan: tokio::sync::Mutex<Scan>,
    /// Whether the system does not allow it to be watched. Held while a watch begins.
    unwatched: tokio::sync::Mutex<bool>,
    /// The folder of reads that look into files.
    guard: tokio::sync::Mutex<Option<Arc<Guard>>>,
    /// The filters of the files that the last status did not compare, by path.
    uncompared: Mutex<Arc<HashMap<PathBuf, String>>>,
}

/// What was read last.
#[derive(Default)]
struct Scan {
    read: Option<Read>,
    watch: Option<Arc<Watch>>,
    /// Whether its status is slow: it is watched, and only what moved is read.
    slow: bool,
    /// How many follow its changes. It is watched for them, and read as a whole unless it is slow.
    followers: usize,
}

struct Read {
    status: Arc<Status>,
    stamps: Stamps,
    at: Instant,
}

/// What moves in git's folder when the index, the branch or the ignored files do.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamps {
    index: Option<(SystemTime, u64)>,
    /// Files that change which paths git looks at.
    rules: Vec<Option<(SystemTime, u64)>>,
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

impl Tree {
    fn stamps(&self) -> Stamps {
        let (own, common) = (&self.repository.git_dir, &self.repository.common_dir);
        let rules = ["info/exclude", "info/sparse-checkout", "info/attributes", "config", "config.worktree"];
        let both = |file: &&str| [stamp(&common.join(file)), stamp(&own.join(file))];
        Stamps { index: stamp(&own.join("index")), rules: rules.iter().flat_map(both).collect() }
    }

    /// The changes since the last commit, and the branch. Requests that wait at the same time share a read.
    pub(crate) async fn status(self: &Arc<Self>) -> Result<Arc<Status>, Failure> {
        let tree = self.clone();
        self.reads.run(move || async move { tree.read_status().await }).await
    }

    async fn read_status(self: &Arc<Self>) -> Result<Arc<Status>, Failure> {
        let mut scan = self.scan.lock().await;
        let stamps = self.stamps();
        // A read that fails, or that nothing waits for any more, loses which paths moved: the next one reads everything.
        let last = scan.read.take();
        let moved = match scan.watch.clone() {
            Some(watch) => match watch.moved().await {
                ChangedPaths::Paths(paths) if scan.slow => ChangedPaths::Paths(paths),
                _ => ChangedPaths::All,
            },
            None => ChangedPaths::All,
        };
        let some = match (&last, moved) {
            (Some(read), ChangedPaths::Paths(paths)) if read.stamps.rules == stamps.rules => {
                match read.at.elapsed() < TRUSTED && !paths.iter().any(|path| is_rule(path)) {
                    true => self.moved_since(read, paths, &stamps).await?,
                    false => None,
                }
            }
            _ => None,
        };
        let status = match (some, last) {
            (Some(some), Some(read)) => {
                let status = some.unwrap_or(read.status);
                scan.read = Some(Read { status: status.clone(), stamps, at: read.at });
                status
            }
            _ => {
                let begun = Instant::now();
                let status = Arc::new(self.read(&[]).await?);
                if begun.elapsed() > SLOW && !scan.slow {
                    scan.slow = true;
                    let tree = self.clone();
                    tokio::spawn(async move { tree.watched().await });
                }
                scan.read = Some(Read { status: status.clone(), stamps, at: Instant::now() });
                status
            }
        };
        if let Some(watch) = &scan.watch {
            let untracked = status.rows.iter().filter(|row| row.is_untracked());
            watch.follow(untracked.map(|row| row.path.as_path())).await;
        }
        let uncompared = status.rows.iter().filter_map(|row| Some((row.path.clone(), row.filter.clone()?)));
        *self.uncompared.lock() = Arc::new(uncompared.collect());
        Ok(status)
    }

    /// Returns the folder of reads that look into files.
    pub(crate) async fn guard(&self) -> Result<Arc<Guard>, Failure> {
        let mut guard = self.guard.lock().await;
        if let Some(guard) = guard.as_ref().filter(|guard| guard.is_current()) {
            return Ok(guard.clone());
        }
        let new = Arc::new(Guard::of(&self.repository).await?);
        *guard = Some(new.clone());
        Ok(new)
    }

    /// Returns the files that the last status did not compare, with the filters that it left out.
    pub(crate) fn uncompared(&self) -> Arc<HashMap<PathBuf, String>> {
        self.uncompared.lock().clone()
    }

    /// Watches the tree from now on. What moved until then is read once more. `None` where the system does not allow it.
    async fn watched(&self) -> Option<Arc<Watch>> {
        let mut unwatched = self.unwatched.lock().await;
        if let Some(watch) = &self.scan.lock().await.watch {
            return Some(watch.clone());
        }
        if *unwatched {
            return None;
        }
        let Some(watch) = Watch::of(self.root.clone()).await.map(Arc::new) else {
            *unwatched = true;
            return None;
        };
        let mut scan = self.scan.lock().await;
        let stamps = self.stamps();
        if scan.slow {
            let status = self.read(&[]).await.ok()?;
            scan.read = Some(Read { status: Arc::new(status), stamps, at: Instant::now() });
        }
        scan.watch = Some(watch.clone());
        Some(watch)
    }

    /// Reports each change of the tree until [`Tree::unfollow`]; `None` where the system does not allow it.
    pub(crate) async fn follow(&self) -> Option<tokio::sync::watch::Receiver<()>> {
        self.scan.lock().await.followers += 1;
        let watch = self.watched().await;
        if watch.is_none() {
            self.unfollow().await;
        }
        watch.map(|watch| watch.changes())
    }

    /// Ends what one follower needs.
    pub(crate) async fn unfollow(&self) {
        let mut scan = self.scan.lock().await;
        scan.followers = scan.followers.saturating_sub(1);
        if scan.followers == 0 && !scan.slow {
            scan.watch = None;
        }
    }

    /// Reads only what can have changed: the paths that moved, the former rows, and what the index and the last commit
    /// say of others. `None` if that is too much; `Some(None)` if nothing changed.
    #[allow(clippy::option_option)]
    async fn moved_since(
        &self,
        read: &Read,
        moved: HashSet<PathBuf>,
        stamps: &Stamps,
    ) -> Result<Option<Option<Arc<Status>>>, Failure> {
        let branch = self.branch().await?;
        let old = &read.status;
        let same_index = read.stamps.index == stamps.index && branch.commit == old.branch.commit;
        if same_index && moved.is_empty() {
            return Ok(Some(
                (branch != old.branch).then(|| Arc::new(Status { branch, ..Status::clone(old) })),
            ));
        }
        let mut paths: BTreeSet<PathBuf> = moved.into_iter().collect();
        paths.extend(old.rows.iter().flat_map(|row| [Some(row.path.clone()), row.origin.clone()]).flatten());
        if !same_index {
            match (&old.branch.commit, &branch.commit) {
                (Some(old), Some(new)) => {
                    if old != new {
                        paths.extend(self.names(&["diff-tree", "-r"], &[old, new]).await?);
                    }
                    paths.extend(self.names(&["diff-index", "--cached"], &[new]).await?);
                }
                _ => return Ok(None),
            }
        }
        if paths.len() > PATHS {
            return Ok(None);
        }
        let paths: Vec<PathBuf> = paths.into_iter().collect();
        let mut status = match paths.is_empty() {
            true => Status::default(),
            false => self.read(&paths).await?,
        };
        status.branch = branch;
        Ok(Some(Some(Arc::new(status))))
    }

    /// The paths that differ between trees.
    async fn names(&self, command: &[&str], trees: &[&str]) -> Result<Vec<PathBuf>, Failure> {
        use std::os::unix::ffi::OsStrExt as _;
        let listed = Git::read(&self.root).args(command.iter().copied());
        let listed = listed.args(["--no-renames", "--ignore-submodules=none", "--name-only", "-z"]);
        let out = listed.args(trees.iter().copied()).run().await?;
        let names = out.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name))).collect())
    }

    /// The branch without the changes: nothing of the working tree is read for it.
    async fn branch(&self) -> Result<Branch, Failure> {
        let guard = self.guard().await?;
        let asked = guard.git().args(["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no"]);
        // Restricted to git's own folder, which is in no tree.
        let out = asked.args(["--ignore-submodules=all", "--", ".git"]).run().await?;
        Ok(self.parsed(&out).await?.branch)
    }

    async fn parsed(&self, output: &[u8]) -> Result<Status, Failure> {
        let status = Status::parse(output);
        if status.branch.commit.is_none() {
            self.repository.check_new_branch().await?;
        }
        Ok(status)
    }

    async fn read(&self, paths: &[PathBuf]) -> Result<Status, Failure> {
        let guard = self.guard().await?;
        let mut status = self.parsed(&guard.status("--untracked-files=all", paths).await?).await?;
        guard.mark(&mut status).await?;
        status.is_cut = status.rows.len() > ROWS;
        status.rows.truncate(ROWS);
        Ok(status)
    }

    /// Whether a path is changed.
    pub(crate) async fn lists(self: &Arc<Self>, path: &Path) -> Result<bool, Failure> {
        Ok(self.status().await?.rows.iter().any(|row| row.path == path))
    }

    /// The rows below a directory, as paths from the top of the tree.
    pub(crate) fn below<'a>(&self, status: &'a Status, directory: &Path) -> Vec<&'a Row> {
        let prefix = self.prefix(directory);
        status.rows.iter().filter(|row| row.path.starts_with(&prefix)).collect()
    }

    /// Where a directory is in the tree; the top, if it is not in it.
    pub(crate) fn prefix(&self, directory: &Path) -> PathBuf {
        let below = |path: &Path| path.strip_prefix(&self.root).ok().map(Path::to_owned);
        below(directory).or_else(|| below(&std::fs::canonicalize(directory).ok()?)).unwrap_or_default()
    }
}

/// Whether a file changes which paths git looks at.
fn is_rule(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name == ".gitignore" || name == ".gitattributes" || name == ".gitmodules")
}
