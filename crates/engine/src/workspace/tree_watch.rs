//! Changesets with subscribers follow their directories: reports of the source of changes, git's data about the tree,
//! which changes with every commit and staged file, and writes through the host.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ostler_contract::points::{Changes, Worktrees};
use ostler_contract::{Call, HostFunction, limit};
use ostler_protocol::uri;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::core::file_uris::file_path;
use crate::workspace::Workspace;
use crate::workspace::sessions_view::SessionView;

/// How often git's files are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long changes are collected before the changesets are refreshed.
const GATHERED: Duration = Duration::from_millis(100);
/// The files of git that change. The last one changes when a branch is reset without its index.
const FOLLOWED: &[&str] = &["index", "HEAD", "logs/HEAD"];

/// The directories of changesets with subscribers, by path.
#[derive(Debug, Default)]
pub(crate) struct FollowedTrees(Mutex<HashMap<String, Followed>>);

#[derive(Debug, Default)]
struct Followed {
    /// The sessions of these changesets, which stay in memory.
    sessions: Vec<Arc<dyn SessionView>>,
    moved: Arc<Notify>,
}

impl FollowedTrees {
    /// Returns the sessions of a directory whose changesets still have subscribers. Without any, the directory is no
    /// longer followed.
    fn watched(&self, directory: &str, workspace: &Workspace) -> Option<Vec<Arc<dyn SessionView>>> {
        // Locked for both steps, so that this task or a new one follows a new subscriber.
        let mut trees = self.0.lock();
        let followed = trees.get_mut(directory)?;
        followed.sessions.retain(|session| {
            workspace.has_watched_changesets(session.uri())
                && session.changes_of().directories().any(|own| own == directory)
        });
        if followed.sessions.is_empty() {
            trees.remove(directory);
            return None;
        }
        Some(followed.sessions.clone())
    }
}

impl Workspace {
    /// Follows the directories of a session while its changesets have subscribers.
    pub(crate) fn follow_trees(self: &Arc<Self>, session: &Arc<dyn SessionView>) {
        for directory in session.changes_of().directories() {
            self.follow_tree(session, directory.to_owned());
        }
    }

    fn follow_tree(self: &Arc<Self>, session: &Arc<dyn SessionView>, directory: String) {
        let mut trees = self.followed_trees.0.lock();
        let begun = trees.contains_key(&directory);
        let followed = trees.entry(directory.clone()).or_default();
        if !followed.sessions.iter().any(|held| held.uri() == session.uri()) {
            followed.sessions.push(session.clone());
        }
        if !begun {
            let (workspace, moved) = (Arc::downgrade(self), followed.moved.clone());
            tokio::spawn(async move { follow(&workspace, &directory, &moved).await });
        }
    }

    /// Refreshes the changesets of directories that contain a path, or are below it.
    pub(crate) fn path_changed(&self, path: &str) {
        let path = Path::new(path);
        for (directory, followed) in self.followed_trees.0.lock().iter() {
            if path.starts_with(directory) || Path::new(directory).starts_with(path) {
                followed.moved.notify_one();
            }
        }
    }

    /// Refreshes the changesets for a path that a client wrote.
    pub(crate) fn resource_changed(&self, resource: &str) {
        if uri::scheme(resource).as_deref() == Some("file") {
            self.path_changed(&file_path(resource));
        }
    }

    /// Refreshes the changesets of a session's directories, after work in them.
    pub(crate) fn session_worked(&self, session: &str) {
        for followed in self.followed_trees.0.lock().values() {
            if followed.sessions.iter().any(|held| held.uri() == session) {
                followed.moved.notify_one();
            }
        }
    }

    /// Makes the source of changes watch a directory; returns the function that ends this.
    async fn watch_directory(&self, directory: &str, moved: &Arc<Notify>) -> Option<Call<fn()>> {
        let watch = self.core.registry()?.port::<Changes>()?.watch.clone()?;
        let reported = moved.clone();
        let on_change = HostFunction::now(move |()| {
            reported.notify_one();
            Ok(())
        });
        let begun = watch.within(limit::DIRECTORY, (directory.to_owned(), on_change)).await;
        // Earlier changes are not reported.
        moved.notify_one();
        begun.unwrap_or_else(|why| {
            self.core.log.line(format_args!("{directory} is not watched: {}", why.for_log()));
            None
        })
    }

    async fn git_dir(&self, directory: &str) -> Option<String> {
        let git_dir = self.core.registry()?.port::<Worktrees>()?.git_dir.clone()?;
        let told = git_dir.within(limit::REPOSITORY, (directory.to_owned(),)).await;
        told.unwrap_or_else(|why| {
            self.core.log.line(format_args!("{directory} is not followed: {}", why.for_log()));
            None
        })
    }
}

/// Refreshes after every change, until there are no subscribers.
async fn follow(workspace: &Weak<Workspace>, directory: &str, moved: &Arc<Notify>) {
    let Some(begun) = workspace.upgrade() else { return };
    let (host, path, reported) = (begun.clone(), directory.to_owned(), moved.clone());
    // Watching a large directory takes long to set up.
    let watch = tokio::spawn(async move { host.watch_directory(&path, &reported).await });
    let git = begun.git_dir(directory).await;
    drop(begun);
    let mut seen = None;
    while let Some(workspace) = workspace.upgrade() {
        let Some(sessions) = workspace.followed_trees.watched(directory, &workspace) else { break };
        let now: Option<Vec<_>> = git
            .as_ref()
            .zip(workspace.core.local_system.get())
            .map(|(git, here)| FOLLOWED.iter().map(|file| here.stamp(&format!("{git}/{file}"))).collect());
        let begun = Instant::now();
        // Changes before the first check may have been missed.
        let moves = seen.as_ref() != Some(&now);
        seen = Some(now);
        if moves {
            workspace.refresh_all(sessions).await;
        }
        drop(workspace);
        let took = begun.elapsed();
        if tokio::time::timeout(LOOK_EVERY, moved.notified()).await.is_ok() {
            // Many changes cause one refresh, and refreshes use at most half of the time.
            tokio::time::sleep(GATHERED.max(took)).await;
            seen = None;
        }
    }
    if let Ok(Some(watch)) = watch.await {
        let _ = watch.within(limit::DIRECTORY, ()).await;
    }
}
