//! Watched changesets follow the tree they are of: what git keeps of it moves with every commit and every staged file.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ostler_contract::limit;
use ostler_contract::points::Worktrees;

use crate::workspace::Workspace;
use crate::workspace::sessions_view::SessionView;

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The files that move.
const FOLLOWED: &[&str] = &["index", "HEAD"];

impl Workspace {
    /// Follows the tree of a session while somebody watches a changeset of it. Nothing follows one whose git folder
    /// nobody tells.
    pub(crate) fn follow_tree(self: &Arc<Self>, session: &Arc<dyn SessionView>) {
        let told = self.core.registry().and_then(|registry| registry.port::<Worktrees>());
        let Some(git_dir) = told.and_then(|worktrees| worktrees.git_dir.clone()) else { return };
        let Some(tree) = session.changes_of().directory else { return };
        if !self.followed_trees.lock().insert(session.uri().to_owned()) {
            return;
        }
        let (workspace, session) = (Arc::downgrade(self), session.clone());
        tokio::spawn(async move {
            match git_dir.within(limit::REPOSITORY, (tree.clone(),)).await {
                Ok(Some(folder)) => follow(&workspace, &session, &folder).await,
                Ok(None) => {}
                Err(why) => {
                    if let Some(workspace) = workspace.upgrade() {
                        workspace.core.log.line(format_args!("{tree} is not followed: {}", why.for_log()));
                    }
                }
            }
            if let Some(workspace) = workspace.upgrade() {
                workspace.followed_trees.lock().remove(session.uri());
            }
        });
    }
}

/// Asks again whenever something moved, until nobody watches.
async fn follow(workspace: &Weak<Workspace>, session: &Arc<dyn SessionView>, folder: &str) {
    let mut seen = None;
    loop {
        let Some(workspace) = workspace.upgrade() else { return };
        {
            // Held over both, so that whoever comes now is followed by this or begins anew.
            let mut followed = workspace.followed_trees.lock();
            if !workspace.has_watched_changesets(session.uri()) {
                followed.remove(session.uri());
                return;
            }
        }
        let Some(here) = workspace.core.local_system.get() else { return };
        let now: Vec<_> = FOLLOWED.iter().map(|file| here.stamp(&format!("{folder}/{file}"))).collect();
        // What moved before the first look may have been missed.
        let moved = seen.as_ref() != Some(&now);
        seen = Some(now);
        if moved {
            workspace.refresh_changesets(session.clone()).await;
        }
        drop(workspace);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
