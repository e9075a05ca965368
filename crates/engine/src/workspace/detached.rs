//! VS Code's detached worktrees: trees that a window requests in addition to a session's, and manages by handles.
//! Handles are valid until the host ends.

use std::collections::HashMap;
use std::time::Duration;

use ostler_contract::points::Worktree;
use ostler_contract::{JsonObject, Thrown, Value, json, limit};
use ostler_protocol::RpcError;
use ostler_protocol::commands::{
    DetachedWorktree, DetachedWorktreeArchived, DetachedWorktreeCreate, DetachedWorktrees,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::core::file_uris::file_uri;
use crate::core::refusals::nothing_at;
use crate::workspace::Workspace;
use crate::workspace::worktrees::repository_of;

/// The key in `initialize` that announces detached worktrees.
pub(crate) const CAPABILITY: &str = "vscode.detachedWorktrees";
/// How long a tree stays that no window uses.
const UNNAMED: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum number of trees.
const MOST: usize = 256;
/// The default prefix of their branches.
const PREFIX: &str = "agents/";

/// The trees, by handle.
#[derive(Debug, Default)]
pub(crate) struct Detached(Mutex<HashMap<String, DetachedTree>>);

#[derive(Debug, Clone)]
struct DetachedTree {
    /// Its session.
    session: String,
    tree: Worktree,
    /// When a window last named it.
    named: Instant,
}

impl Detached {
    fn get(&self, handle: &str) -> Result<DetachedTree, RpcError> {
        let detached = self.0.lock().get(handle).cloned();
        detached.ok_or_else(|| RpcError::invalid_params(format!("Unknown detached worktree handle {handle}")))
    }

    fn name(&self, handle: &str) -> Option<DetachedTree> {
        let mut all = self.0.lock();
        let detached = all.get_mut(handle)?;
        detached.named = Instant::now();
        Some(detached.clone())
    }
}

impl Workspace {
    /// Creates a tree like a session's, on a separate branch.
    pub(crate) async fn create_detached(&self, params: DetachedWorktreeCreate) -> Result<Value, RpcError> {
        let session = match (self.sessions(), ostler_protocol::uri::session_id(&params.session)) {
            (Some(sessions), Some(id)) => sessions.load(id).await,
            _ => None,
        };
        let session = session.ok_or_else(|| nothing_at(&params.session))?;
        let repository = session.worktree().and_then(|tree| repository_of(&tree)).ok_or_else(|| {
            RpcError::invalid_params(format!("{} has no separate working tree", session.uri()))
        })?;
        if self.detached.0.lock().len() >= MOST {
            return Err(RpcError::invalid_params(format!(
                "there are {MOST} detached worktrees, which is the limit; delete some first"
            )));
        }
        let handle = self.core.new_id();
        let mut chosen = session.settings();
        chosen.insert("worktreeCreateNewBranch".to_owned(), true.into());
        chosen.entry("worktreeBranchPrefix".to_owned()).or_insert_with(|| PREFIX.into());
        let tree = self.make_tree(&repository, handle.clone(), &chosen).await.map_err(Thrown::into_rpc)?;
        let resource = file_uri(&tree.path);
        let detached = DetachedTree { session: session.uri().to_owned(), tree, named: Instant::now() };
        self.detached.0.lock().insert(handle.clone(), detached);
        Ok(json!({ "handle": handle, "resource": resource }))
    }

    /// Retains a tree for another day.
    pub(crate) fn claim_detached(&self, params: &DetachedWorktree) -> Result<(), RpcError> {
        self.detached.get(&params.handle)?;
        self.detached.name(&params.handle);
        Ok(())
    }

    /// Removes a clean tree from the disk, or restores it. Its branch stays.
    pub(crate) async fn archive_detached(&self, params: DetachedWorktreeArchived) -> Result<(), RpcError> {
        let detached = self.detached.get(&params.handle)?;
        self.detached.name(&params.handle);
        match params.archived {
            true => self.archive_tree(&detached.session, &detached.tree, || true).await,
            false => self.restore_tree(&detached.tree, &JsonObject::new()).await?,
        }
        Ok(())
    }

    /// Removes a tree, its branch and its handle. Uncommitted or unmerged work stays and is named in the log.
    pub(crate) async fn delete_detached(&self, params: &DetachedWorktree) -> Result<(), RpcError> {
        let Ok(detached) = self.detached.get(&params.handle) else { return Ok(()) };
        if self.session(&detached.session).is_some_and(|session| session.is_running()) {
            return Err(RpcError::turn_in_progress(format!("{} is mid-turn", detached.session)));
        }
        self.detached.0.lock().remove(&params.handle);
        self.discard_tree(&detached.session, detached.tree).await;
        Ok(())
    }

    /// Removes the trees that no window named for a day, if they are clean.
    pub(crate) async fn reconcile_detached(&self, params: &DetachedWorktrees) {
        for handle in &params.active_handles {
            self.detached.name(handle);
        }
        let unnamed = |detached: &DetachedTree| detached.named.elapsed() >= UNNAMED;
        let old: Vec<(String, DetachedTree)> = {
            let all = self.detached.0.lock();
            let old = all.iter().filter(|(_, detached)| unnamed(detached));
            old.map(|(handle, detached)| (handle.clone(), detached.clone())).collect()
        };
        for (handle, detached) in old {
            if self.is_clean(&detached.tree).await && self.detached.0.lock().get(&handle).is_some_and(unnamed)
            {
                self.detached.0.lock().remove(&handle);
                self.discard_tree(&detached.session, detached.tree).await;
            }
        }
    }

    /// Removes a clean tree, and its branch if other branches have its commits.
    pub(super) async fn discard_tree(&self, session: &str, tree: Worktree) {
        let delete = self.worktrees().and_then(|worktrees| worktrees.remove_branch.clone());
        let (branch, repository, path) = (tree.branch.clone(), repository_of(&tree), tree.path.clone());
        if !self.release_tree(session, tree).await {
            return;
        }
        if let (Some(delete), Some(branch), Some(repository)) = (delete, branch, repository) {
            let deleted = delete.within(limit::REPOSITORY, (repository.root, branch.clone())).await;
            match deleted {
                Ok(true) => {}
                Ok(false) => self.core.log.line(format_args!(
                    "{session}: kept the branch {branch} of the working tree {path}: no other branch has its commits"
                )),
                Err(why) => self.core.log.line(format_args!(
                    "{session}: cannot delete the branch {branch}: {}",
                    why.for_log()
                )),
            }
        }
    }
}
