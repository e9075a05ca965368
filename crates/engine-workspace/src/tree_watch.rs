//! Sessions and changesets with subscribers follow their directories: git's data about the tree, which changes with every
//! commit, branch and staged file, reports of the source of facts, and for changesets reports of the source of changes and
//! writes through the host.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ostler_contract::points::{Changes, Directories, Worktrees};
use ostler_contract::{Call, HostFunction, limit};
use ostler_engine_core::file_uris::file_path;
use ostler_engine_core::tasks;
use ostler_protocol::uri;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::Workspace;
use crate::sessions_view::SessionView;

/// How often git's files are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long changes are collected before the changesets are refreshed.
const GATHERED: Duration = Duration::from_millis(100);
/// The files of git that change: with the branch, with each commit, with staged files. The second one also changes when a
/// branch is reset without its index.
const FOLLOWED: [&str; 3] = ["HEAD", "logs/HEAD", "index"];

/// The directories of sessions and changesets with subscribers, by path.
#[derive(Debug, Default)]
pub struct FollowedTrees(Mutex<HashMap<String, Followed>>);

#[derive(Debug, Default)]
struct Followed {
    /// The sessions, by URI, which stay in memory.
    sessions: HashMap<String, Follower>,
    moved: Arc<Notify>,
}

#[derive(Debug, Clone)]
struct Follower {
    session: Arc<dyn SessionView>,
    /// Whether the directory was not checked for it yet.
    is_new: bool,
}

impl FollowedTrees {
    /// Returns the sessions of a directory that still have subscribers. Without any, the directory is no longer followed.
    fn watched(&self, directory: &str, workspace: &Workspace) -> Option<Vec<Follower>> {
        // Locked for both steps, so that this task or a new one follows a new subscriber.
        let mut trees = self.0.lock();
        let followed = trees.get_mut(directory)?;
        followed.sessions.retain(|uri, follower| {
            let of = follower.session.changes_of();
            workspace.is_watched(uri) && of.directories().any(|own| own == directory)
        });
        if followed.sessions.is_empty() {
            trees.remove(directory);
            return None;
        }
        let followers = followed.sessions.values().cloned().collect();
        followed.sessions.values_mut().for_each(|follower| follower.is_new = false);
        Some(followers)
    }
}

impl Workspace {
    /// Follows the directories of a session while it or its changesets have subscribers.
    pub fn follow_trees(self: &Arc<Self>, session: &Arc<dyn SessionView>) {
        for directory in session.changes_of().directories() {
            self.follow_tree(session, directory.to_owned());
        }
    }

    fn follow_tree(self: &Arc<Self>, session: &Arc<dyn SessionView>, directory: String) {
        let mut trees = self.followed_trees.0.lock();
        let begun = trees.contains_key(&directory);
        let followed = trees.entry(directory.clone()).or_default();
        let follower = || Follower { session: session.clone(), is_new: true };
        followed.sessions.entry(session.uri().to_owned()).or_insert_with(follower);
        if !begun {
            let (workspace, moved) = (Arc::downgrade(self), followed.moved.clone());
            tasks::spawn(async move { follow(&workspace, &directory, &moved).await });
        }
    }

    /// Returns how many references to a session are held to follow its directories.
    pub fn references_to(&self, session: &str) -> usize {
        let trees = self.followed_trees.0.lock();
        trees.values().filter(|followed| followed.sessions.contains_key(session)).count()
    }

    /// Returns whether a session or its changesets have subscribers.
    pub(super) fn is_watched(&self, session: &str) -> bool {
        !self.core.fanout.watchers(session).is_empty() || self.has_watched_changesets(session)
    }

    /// Follows the directories of a session that clients subscribe to. Without a source that knows git's data or reports
    /// facts there is nothing to follow.
    pub fn session_is_watched(self: &Arc<Self>, session: Arc<dyn SessionView>) {
        let reports_facts = || {
            let directories = self.core.registry().and_then(|registry| registry.port::<Directories>());
            directories.is_some_and(|directories| directories.watch.is_some())
        };
        if self.worktrees().is_some_and(|worktrees| worktrees.git_dir.is_some()) || reports_facts() {
            self.follow_trees(&session);
        }
    }

    /// Refreshes the changesets of directories that contain a path, or are below it.
    pub fn path_changed(&self, path: &str) {
        let path = Path::new(path);
        for (directory, followed) in self.followed_trees.0.lock().iter() {
            if path.starts_with(directory) || Path::new(directory).starts_with(path) {
                followed.moved.notify_one();
            }
        }
    }

    /// Refreshes the changesets for a path that a client wrote.
    pub fn resource_changed(&self, resource: &str) {
        if uri::scheme(resource).as_deref() == Some("file") {
            self.path_changed(&file_path(resource));
        }
    }

    /// Refreshes the changesets of a session's directories, after work in them.
    pub fn session_worked(&self, session: &str) {
        for followed in self.followed_trees.0.lock().values() {
            if followed.sessions.contains_key(session) {
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
            self.core.log.warn(format_args!("{directory} is not watched: {}", why.for_log()));
            None
        })
    }

    /// Makes the source of facts report changes of a directory; returns the function that ends this.
    async fn watch_facts(&self, directory: &str, moved: &Arc<Notify>) -> Option<Call<fn()>> {
        let watch = self.core.registry()?.port::<Directories>()?.watch.clone()?;
        let reported = moved.clone();
        let on_change = HostFunction::now(move |()| {
            reported.notify_one();
            Ok(())
        });
        let begun = watch.within(limit::DIRECTORY, (directory.to_owned(), on_change)).await;
        begun.unwrap_or_else(|why| {
            self.core.log.warn(format_args!("facts of {directory} are not watched: {}", why.for_log()));
            None
        })
    }

    async fn git_dir(&self, directory: &str) -> Option<String> {
        let git_dir = self.core.registry()?.port::<Worktrees>()?.git_dir.clone()?;
        let told = git_dir.within(limit::REPOSITORY, (directory.to_owned(),)).await;
        told.unwrap_or_else(|why| {
            self.core.log.warn(format_args!("{directory} is not followed: {}", why.for_log()));
            None
        })
    }
}

/// Refreshes after every change, until there are no subscribers.
async fn follow(workspace: &Weak<Workspace>, directory: &str, moved: &Arc<Notify>) {
    let Some(begun) = workspace.upgrade() else { return };
    let facts = Arc::new(Notify::new());
    // Facts are watched before they are read, so that no change is missed.
    let (git, facts_watch) = futures::join!(begun.git_dir(directory), begun.watch_facts(directory, &facts));
    drop(begun);
    let mut watch = None;
    let (mut seen, mut head, mut facts_moved) = (None, None, false);
    while let Some(workspace) = workspace.upgrade() {
        let Some(followers) = workspace.followed_trees.watched(directory, &workspace) else { break };
        let sessions: Vec<_> = followers.iter().map(|follower| follower.session.clone()).collect();
        let has_changesets = sessions.iter().any(|session| workspace.has_watched_changesets(session.uri()));
        if has_changesets && watch.is_none() {
            let (host, path, reported) = (workspace.clone(), directory.to_owned(), moved.clone());
            // Watching a large directory takes long to set up.
            watch = Some(tasks::spawn(async move { host.watch_directory(&path, &reported).await }));
        } else if !has_changesets && let Some(watch) = watch.take() {
            tasks::spawn(end_watch(watch));
        }
        let now: Option<[_; FOLLOWED.len()]> = git
            .as_ref()
            .zip(workspace.core.local_system.get())
            .map(|(git, here)| FOLLOWED.map(|file| here.stamp(&format!("{git}/{file}"))));
        let begun = Instant::now();
        if let Some(all) = workspace.sessions() {
            let current = now.map(|[branch, commit, _]| (branch, commit));
            let last = std::mem::replace(&mut head, current);
            if let Some((last, current)) = last.zip(current).filter(|(last, current)| last != current) {
                sessions.iter().for_each(|session| all.head_moved(&**session, last.0 != current.0));
            } else if std::mem::take(&mut facts_moved) {
                sessions.iter().for_each(|session| all.facts_moved(&**session));
            } else {
                // After git's files were checked, so that no change is missed in between.
                let new = followers.iter().filter(|follower| follower.is_new);
                new.for_each(|follower| all.is_watched(&*follower.session));
            }
        }
        // Changes before the first check may have been missed.
        let moves = seen.as_ref() != Some(&now);
        seen = Some(now);
        if moves {
            workspace.refresh_all(sessions).await;
        }
        // A session that others can serve moves to them only if nothing uses it.
        drop((followers, workspace));
        let took = begun.elapsed();
        // Many changes cause one refresh, and refreshes use at most half of the time.
        let gathered = GATHERED.max(took);
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = moved.notified() => {
                tokio::time::sleep(gathered).await;
                seen = None;
            }
            () = facts.notified() => {
                tokio::time::sleep(gathered).await;
                facts_moved = true;
            }
        }
    }
    if let Some(watch) = facts_watch {
        let _ = watch.within(limit::DIRECTORY, ()).await;
    }
    if let Some(watch) = watch {
        end_watch(watch).await;
    }
}

/// Ends a watch once it has been set up.
async fn end_watch(watch: JoinHandle<Option<Call<fn()>>>) {
    if let Ok(Some(watch)) = watch.await {
        let _ = watch.within(limit::DIRECTORY, ()).await;
    }
}
