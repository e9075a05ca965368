//! Follows what the facts of a branch depend on besides its commit: its upstream, which a push or a fetch in a terminal
//! moves, and git's configuration.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use ostler_contract::{Call, HostFunction, Thrown};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::program::{Failure, Git};
use crate::repository::Repository;

/// How long changes are collected before they are reported: a fetch writes several files.
const GATHERED: Duration = Duration::from_millis(50);

/// Reports changes until the returned function is called; `None` outside of a repository.
pub(crate) async fn watch(
    directory: &Path,
    changed: HostFunction<fn()>,
) -> Result<Option<Call<fn()>>, Thrown> {
    let Some(repository) = Repository::of(directory).await? else { return Ok(None) };
    let mut watch = RefsWatch::begin(repository).await?;
    let reports = tokio::spawn(async move {
        loop {
            watch.seen.moved.notified().await;
            tokio::time::sleep(GATHERED).await;
            let is_changed = watch.seen.is_changed.swap(false, Ordering::AcqRel);
            // A repository that cannot be read at the moment is read again after its next change.
            let is_other = watch.follow_upstream().await.unwrap_or(true);
            // Otherwise the host no longer exists.
            if (is_changed || is_other) && changed.call(()).await.is_err() {
                return;
            }
        }
    });
    Ok(Some(Call::now(move |()| {
        reports.abort();
        Ok(())
    })))
}

struct RefsWatch {
    repository: Repository,
    watcher: Arc<Mutex<RecommendedWatcher>>,
    seen: Arc<Seen>,
    directories: HashSet<PathBuf>,
}

/// What the system has reported.
#[derive(Default)]
struct Seen {
    files: Mutex<Files>,
    /// Whether a followed file has changed.
    is_changed: AtomicBool,
    moved: Notify,
}

/// The followed files.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Files {
    /// Facts depend on these.
    of_facts: Vec<PathBuf>,
    /// These say which files facts depend on. The host follows them itself.
    of_branch: Vec<PathBuf>,
}

impl RefsWatch {
    async fn begin(repository: Repository) -> Result<Self, Thrown> {
        let seen = Arc::new(Seen::default());
        let to = seen.clone();
        let begun = notify::recommended_watcher(move |event: notify::Result<notify::Event>| to.take(event));
        let watcher =
            begun.map_err(|why| Thrown::new(format_args!("changes of files cannot be watched: {why}")))?;
        let watcher = Arc::new(Mutex::new(watcher));
        let mut watch = Self { repository, watcher, seen, directories: HashSet::new() };
        // The branch is followed before it is read, so that no change is missed.
        watch.follow(Files::of(&watch.repository, &Branch::default())).await?;
        watch.follow_upstream().await?;
        Ok(watch)
    }

    /// Follows the upstream of the branch that is checked out. Returns whether other files are followed than before.
    async fn follow_upstream(&mut self) -> Result<bool, Thrown> {
        let branch = Branch::of(&self.repository).await?;
        self.follow(Files::of(&self.repository, &branch)).await
    }

    async fn follow(&mut self, files: Files) -> Result<bool, Thrown> {
        let top = self.repository.common_dir.clone();
        let (watcher, all) = (self.watcher.clone(), files.all());
        let is_other = {
            let mut followed = self.seen.files.lock();
            std::mem::replace(&mut *followed, files.clone()) != files
        };
        let before = std::mem::take(&mut self.directories);
        let set = move || {
            let mut watcher = watcher.lock();
            let mut watched = HashSet::new();
            for file in all {
                // From the top: a directory that is created after its parent is watched is reported.
                for directory in directories_of(&file, &top) {
                    if watched.contains(&directory) {
                        continue;
                    }
                    // Again also if it was watched before: it may have been removed and created again.
                    match watcher.watch(&directory, RecursiveMode::NonRecursive) {
                        Ok(()) => drop(watched.insert(directory)),
                        Err(why) if matches!(why.kind, notify::ErrorKind::MaxFilesWatch) => return Err(why),
                        Err(_) => break,
                    }
                }
            }
            for directory in before.difference(&watched) {
                let _ = watcher.unwatch(directory);
            }
            Ok(watched)
        };
        let set = tokio::task::spawn_blocking(set).await.map_err(Thrown::new)?;
        self.directories = set.map_err(|why| {
            Thrown::new(format_args!("{}: cannot be watched: {why}", self.repository.common_dir.display()))
        })?;
        Ok(is_other)
    }
}

impl Seen {
    fn take(&self, event: notify::Result<notify::Event>) {
        let paths = match event {
            Ok(event) if event.need_rescan() => Vec::new(),
            Ok(event) => match event.kind {
                EventKind::Access(kind) if kind != AccessKind::Close(AccessMode::Write) => return,
                _ => event.paths,
            },
            Err(_) => Vec::new(),
        };
        let files = self.files.lock();
        // A directory that appears or disappears changes everything below it.
        let is_in =
            |files: &[PathBuf]| files.iter().any(|file| paths.iter().any(|path| file.starts_with(path)));
        let is_changed = paths.is_empty() || is_in(&files.of_facts);
        let moves = is_changed || is_in(&files.of_branch);
        drop(files);
        if is_changed {
            self.is_changed.store(true, Ordering::Release);
        }
        if moves {
            self.moved.notify_one();
        }
    }
}

/// The branch that is checked out.
#[derive(Debug, Default)]
struct Branch {
    /// Its ref; `None` if a commit is checked out.
    name: Option<String>,
    /// The ref of its upstream, which need not exist.
    upstream: Option<String>,
}

impl Branch {
    async fn of(repository: &Repository) -> Result<Self, Failure> {
        let directory = repository.tree.as_deref().unwrap_or(&repository.git_dir);
        let name = Git::read(directory).args(["symbolic-ref", "-q", "HEAD"]).maybe().await?;
        let Some(name) = name else { return Ok(Self::default()) };
        let asked = Git::read(directory).args(["for-each-ref", "--count=1", "--format=%(upstream)", &name]);
        let upstream = Some(asked.text().await?).filter(|upstream| !upstream.is_empty());
        Ok(Self { name: Some(name), upstream })
    }
}

impl Files {
    fn of(repository: &Repository, branch: &Branch) -> Self {
        let (own, common) = (&repository.git_dir, &repository.common_dir);
        let mut of_facts = vec![
            common.join("packed-refs"),
            common.join("config"),
            own.join("config.worktree"),
            // All refs of a repository in that format.
            common.join("reftable/tables.list"),
        ];
        let mut of_branch = vec![own.join("HEAD")];
        match (&branch.upstream, &branch.name) {
            (Some(upstream), _) => of_facts.push(common.join(upstream)),
            // The configuration of a branch counts from its first commit on.
            (None, Some(name)) => of_branch.push(common.join(name)),
            (None, None) => {}
        }
        Self { of_facts, of_branch }
    }

    fn all(&self) -> Vec<PathBuf> {
        self.of_branch.iter().chain(&self.of_facts).cloned().collect()
    }
}

/// The directories above a file, from the top; only the nearest one if it is not below the top.
fn directories_of(file: &Path, top: &Path) -> Vec<PathBuf> {
    let above = file.ancestors().skip(1);
    let mut directories: Vec<PathBuf> = match file.starts_with(top) {
        true => above.take_while(|directory| directory.starts_with(top)).map(Path::to_owned).collect(),
        false => above.take(1).map(Path::to_owned).collect(),
    };
    directories.reverse();
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directories_of_a_file_begin_at_the_top() {
        let of = |file: &str| {
            let found = directories_of(Path::new(file), Path::new("/r/.git"));
            found.into_iter().map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(of("/r/.git/HEAD"), ["/r/.git"]);
        assert_eq!(
            of("/r/.git/refs/remotes/origin/main"),
            ["/r/.git", "/r/.git/refs", "/r/.git/refs/remotes", "/r/.git/refs/remotes/origin"]
        );
        assert_eq!(of("/elsewhere/HEAD"), ["/elsewhere"]);
    }
}
