//! Watches a large working tree: the directories that git looks at, and no ignored ones.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::program::Git;

/// The most directories that are watched.
const DIRECTORIES: usize = 100_000;
/// The most changed paths that are remembered; with more, the tree is read as a whole.
const PATHS: usize = 2_000;
/// How long it may take until the system has reported everything that was changed before.
const REPORTED: Duration = Duration::from_secs(2);

/// What changed since the last question.
pub(crate) enum ChangedPaths {
    /// These paths, from the top of the tree.
    Paths(HashSet<PathBuf>),
    /// It is not known what.
    All,
}

/// A watched tree.
pub(crate) struct Watch {
    root: PathBuf,
    watcher: Arc<Mutex<RecommendedWatcher>>,
    seen: Arc<WatchState>,
    /// A folder of our own that is watched too: once a change in it is reported, all earlier ones are.
    marks: tempfile::TempDir,
    next: AtomicU64,
}

#[derive(Default)]
struct WatchState {
    paths: Mutex<HashSet<PathBuf>>,
    all: std::sync::atomic::AtomicBool,
    mark: watch::Sender<u64>,
    /// Moves with every change.
    changed: watch::Sender<()>,
    /// The watched directories.
    watched: Mutex<HashSet<PathBuf>>,
}

impl Watch {
    /// Watches a tree; `None` where the system does not allow it.
    pub(crate) async fn of(root: PathBuf) -> Option<Self> {
        let directories = directories(&root).await?;
        if directories.len() > DIRECTORIES {
            return None;
        }
        tokio::task::spawn_blocking(move || Self::begin(root, directories)).await.ok()?
    }

    fn begin(root: PathBuf, directories: HashSet<PathBuf>) -> Option<Self> {
        let marks = tempfile::tempdir().ok()?;
        let marked = marks.path().canonicalize().ok()?;
        let seen = Arc::new(WatchState::default());
        let (to, top, at) = (seen.clone(), root.clone(), marked.clone());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            to.take(&top, &at, event);
        })
        .ok()?;
        watcher.watch(&marked, RecursiveMode::NonRecursive).ok()?;
        for directory in &directories {
            // One that is removed during this is reported by the directory above it.
            if let Err(why) = watcher.watch(&root.join(directory), RecursiveMode::NonRecursive)
                && matches!(why.kind, notify::ErrorKind::MaxFilesWatch)
            {
                return None;
            }
        }
        *seen.watched.lock() = directories;
        Some(Self { root, watcher: Arc::new(Mutex::new(watcher)), seen, marks, next: AtomicU64::new(1) })
    }

    /// What changed since the last call.
    pub(crate) async fn moved(self: &Arc<Self>) -> ChangedPaths {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut marked = self.seen.mark.subscribe();
        let file = self.marks.path().join(number.to_string());
        if tokio::fs::write(&file, b"").await.is_err() {
            return ChangedPaths::All;
        }
        let reported = marked.wait_for(|mark| *mark >= number);
        let reported = matches!(tokio::time::timeout(REPORTED, reported).await, Ok(Ok(_)));
        let _ = tokio::fs::remove_file(&file).await;
        let paths = std::mem::take(&mut *self.seen.paths.lock());
        if self.seen.all.swap(false, Ordering::AcqRel) || !reported || paths.len() > PATHS {
            return ChangedPaths::All;
        }
        // A directory that appeared is watched, with what is below it.
        let root = self.root.clone();
        let look = move || {
            let directories: Vec<PathBuf> =
                paths.iter().filter(|path| root.join(path).is_dir()).cloned().collect();
            (paths, directories)
        };
        let Ok((paths, directories)) = tokio::task::spawn_blocking(look).await else {
            return ChangedPaths::All;
        };
        let directories = self.looked_at(directories).await;
        if !directories.is_empty() {
            let watch = self.clone();
            let descend = move || directories.iter().for_each(|directory| watch.descend(directory));
            let _ = tokio::task::spawn_blocking(descend).await;
        }
        ChangedPaths::Paths(paths)
    }

    /// Wakes after every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.seen.changed.subscribe()
    }

    /// Those of some directories that are not ignored.
    async fn looked_at(&self, directories: Vec<PathBuf>) -> Vec<PathBuf> {
        if directories.is_empty() {
            return directories;
        }
        let asked =
            Git::read(&self.root).args(["check-ignore", "-z", "--stdin"]).env("GIT_LITERAL_PATHSPECS", "0");
        let ignored = asked.paths(directories.iter().map(PathBuf::as_path)).maybe().await;
        let ignored = ignored.ok().flatten().unwrap_or_default();
        let ignored: HashSet<&str> = ignored.split('\0').collect();
        let kept = |directory: &PathBuf| !directory.to_str().is_some_and(|path| ignored.contains(path));
        directories.into_iter().filter(kept).collect()
    }

    fn descend(&self, directory: &Path) {
        let full = self.root.join(directory);
        if directory.ends_with(".git") || full.join(".git").exists() || !self.add(directory) {
            return;
        }
        let Ok(entries) = std::fs::read_dir(&full) else { return };
        for entry in entries.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.descend(&directory.join(entry.file_name()));
            }
        }
    }

    /// Watches one more directory; returns whether it is new.
    fn add(&self, directory: &Path) -> bool {
        let mut watched = self.seen.watched.lock();
        if watched.len() >= DIRECTORIES {
            self.seen.all.store(true, Ordering::Release);
            return false;
        }
        if !watched.insert(directory.to_owned()) {
            return false;
        }
        drop(watched);
        let failed = self.watcher.lock().watch(&self.root.join(directory), RecursiveMode::NonRecursive);
        if failed.is_err() {
            self.seen.watched.lock().remove(directory);
        }
        failed.is_ok()
    }

    /// Watches the directories of untracked files, which may be new.
    pub(crate) async fn follow<'a>(self: &Arc<Self>, files: impl Iterator<Item = &'a Path>) {
        let new: HashSet<PathBuf> = {
            let watched = self.seen.watched.lock();
            let above = files.filter_map(Path::parent);
            above.filter(|directory| !watched.contains(*directory)).map(Path::to_owned).collect()
        };
        if new.is_empty() {
            return;
        }
        let watch = self.clone();
        let add = move || {
            for directory in &new {
                let mut above = Some(directory.as_path());
                while let Some(directory) = above.filter(|directory| watch.add(directory)) {
                    above = directory.parent();
                }
            }
        };
        let _ = tokio::task::spawn_blocking(add).await;
    }
}

impl WatchState {
    fn take(&self, root: &Path, marks: &Path, event: notify::Result<notify::Event>) {
        let Ok(event) = event else {
            self.all.store(true, Ordering::Release);
            self.changed.send_replace(());
            return;
        };
        if event.need_rescan() {
            self.all.store(true, Ordering::Release);
            self.changed.send_replace(());
        }
        match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
            // Reading is no change; times and rights are, as git compares them.
            EventKind::Access(_)
            | EventKind::Modify(ModifyKind::Metadata(notify::event::MetadataKind::AccessTime)) => {
                return;
            }
            _ => {}
        }
        for path in event.paths {
            if let Ok(mark) = path.strip_prefix(marks) {
                if let Some(number) = mark.to_str().and_then(|mark| mark.parse::<u64>().ok()) {
                    self.mark.send_if_modified(|mark| {
                        let newer = number > *mark;
                        *mark = number.max(*mark);
                        newer
                    });
                }
                continue;
            }
            let Ok(path) = path.strip_prefix(root) else { continue };
            if path.as_os_str().is_empty() || path.starts_with(".git") {
                continue;
            }
            if matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))) {
                let mut watched = self.watched.lock();
                if watched.remove(path) {
                    watched.retain(|below| !below.starts_with(path));
                }
            }
            let mut paths = self.paths.lock();
            if paths.len() <= PATHS {
                paths.insert(path.to_owned());
            }
            drop(paths);
            self.changed.send_replace(());
        }
    }
}

/// The directories that git looks at in a tree, from its top: those of tracked files, and the untracked ones that are
/// not ignored.
async fn directories(root: &Path) -> Option<HashSet<PathBuf>> {
    let tracked = Git::read(root).args(["ls-files", "-z"]).run().await.ok()?;
    let untracked = Git::read(root)
        .args(["ls-files", "--others", "--directory", "--exclude-standard", "-z"])
        .run()
        .await
        .ok()?;
    let root = root.to_owned();
    let collect = move || {
        let mut found = HashSet::from([PathBuf::new()]);
        let mut last: &[u8] = &[];
        for path in tracked.split(|byte| *byte == 0) {
            let Some(end) = path.iter().rposition(|byte| *byte == b'/') else { continue };
            if path[..end] == *last {
                continue;
            }
            last = &path[..end];
            let mut above = Some(Path::new(OsStr::from_bytes(last)));
            while let Some(directory) = above.filter(|directory| found.insert((*directory).to_owned())) {
                above = directory.parent();
            }
        }
        let mut open: Vec<PathBuf> = untracked
            .split(|byte| *byte == 0)
            .filter_map(|path| path.strip_suffix(b"/"))
            .map(|path| PathBuf::from(OsStr::from_bytes(path)))
            .collect();
        while let Some(directory) = open.pop() {
            if found.len() > DIRECTORIES {
                break;
            }
            let full = root.join(&directory);
            // A repository inside is its own.
            if full.join(".git").exists() || !found.insert(directory.clone()) {
                continue;
            }
            for entry in std::fs::read_dir(&full).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(directory.join(entry.file_name()));
                }
            }
        }
        found
    };
    tokio::task::spawn_blocking(collect).await.ok()
}
