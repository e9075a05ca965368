//! Watched changesets follow the tree they are of: what git keeps of it moves with every commit and every staged file.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ostler_contract::points::Worktrees;

use crate::core::file_uris::file_path;
use crate::core::in_time::in_time;
use crate::host::Host;
use crate::sessions::Entry;

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long it may take to say where git keeps it.
const LIMIT: Duration = Duration::from_secs(10);
/// The files that move.
const FOLLOWED: &[&str] = &["index", "HEAD"];

impl Host {
    /// Follows the tree of a session while somebody watches a changeset of it. Nothing follows one whose git folder
    /// nobody tells.
    pub(crate) fn follow_tree(self: &Arc<Self>, entry: &Arc<Entry>) {
        let told = self.registry().and_then(|registry| registry.port::<Worktrees>());
        let Some(git_dir) = told.and_then(|worktrees| worktrees.git_dir.clone()) else { return };
        let Some(tree) = entry.row.lock().kept.working_directories.first().map(|tree| file_path(tree)) else {
            return;
        };
        if !self.followed_trees.lock().insert(entry.uri.clone()) {
            return;
        }
        let (host, entry) = (Arc::downgrade(self), entry.clone());
        tokio::spawn(async move {
            match in_time(LIMIT, git_dir.call((tree.clone(),))).await {
                Ok(Some(folder)) => follow(&host, &entry, &folder).await,
                Ok(None) => {}
                Err(why) => {
                    if let Some(host) = host.upgrade() {
                        host.log.line(format_args!("{tree} is not followed: {}", why.for_log()));
                    }
                }
            }
            if let Some(host) = host.upgrade() {
                host.followed_trees.lock().remove(&entry.uri);
            }
        });
    }
}

/// Asks again whenever something moved, until nobody watches.
async fn follow(host: &Weak<Host>, entry: &Arc<Entry>, folder: &str) {
    let mut seen = None;
    loop {
        let Some(host) = host.upgrade() else { return };
        {
            // Held over both, so that whoever comes now is followed by this or begins anew.
            let mut followed = host.followed_trees.lock();
            if !host.has_watched_changesets(entry) {
                followed.remove(&entry.uri);
                return;
            }
        }
        let Some(here) = host.local_system.get() else { return };
        let now: Vec<_> = FOLLOWED.iter().map(|file| here.stamp(&format!("{folder}/{file}"))).collect();
        let moved = seen.as_ref().is_some_and(|seen| *seen != now);
        seen = Some(now);
        if moved {
            host.refresh_changesets(entry).await;
        }
        drop(host);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
