//! VS Code's detached worktrees: trees that a window requests in addition to a session's, and manages by handles.
//! The sessions store them, so that their handles are valid after a restart.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use ostler_contract::points::Worktree;
use ostler_contract::{JsonObject, Value, json, limit};
use ostler_engine_core::file_uris::file_uri;
use ostler_engine_core::refusals::{nothing_at, unread};
use ostler_protocol::RpcError;
use ostler_protocol::commands::{
    DetachedWorktree, DetachedWorktreeArchived, DetachedWorktreeCreate, DetachedWorktrees,
};
use parking_lot::Mutex;

use crate::Workspace;
use crate::worktrees::repository_of;

/// The key in `initialize` that announces detached worktrees.
pub const CAPABILITY: &str = "vscode.detachedWorktrees";
/// How long a tree stays that no window uses.
const UNNAMED: SignedDuration = SignedDuration::from_hours(24);
/// How long windows have after a restart to name the trees that they use.
const AFTER_START: SignedDuration = SignedDuration::from_hours(1);
/// How much older the stored time at which a window last named a tree can be.
const STORED_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// The maximum number of trees.
const MOST: usize = 256;
/// The default prefix of their branches.
const PREFIX: &str = "agents/";

/// The trees, by handle.
#[derive(Debug, Default)]
pub struct Detached(Mutex<HashMap<String, DetachedTree>>);

#[derive(Debug, Clone)]
pub struct DetachedTree {
    /// Its session, which may no longer exist.
    pub session: String,
    pub tree: Worktree,
    /// When a window last named it.
    pub named: Timestamp,
    /// The stored value of `named`.
    pub stored: Timestamp,
}

impl Detached {
    fn get(&self, handle: &str) -> Result<DetachedTree, RpcError> {
        let detached = self.0.lock().get(handle).cloned();
        detached.ok_or_else(|| RpcError::invalid_params(format!("Unknown detached worktree handle {handle}")))
    }
}

impl Workspace {
    /// Creates a tree like a session's, on a separate branch.
    pub async fn create_detached(&self, params: DetachedWorktreeCreate) -> Result<Value, RpcError> {
        let sessions = self.sessions().ok_or_else(|| nothing_at(&params.session))?;
        let session = match ostler_protocol::uri::session_id(&params.session) {
            Some(id) => sessions.load(id).await.known().map_err(|why| unread(&params.session, &why))?,
            None => None,
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
        let now = self.core.clock.now();
        let detached =
            |tree| DetachedTree { session: session.uri().to_owned(), tree, named: now, stored: now };
        // A tree that is stored before it exists is found if the host is killed in between.
        let planned = self.plan_new_tree(&repository, handle.clone(), &chosen).await?;
        if let Some(planned) = &planned {
            sessions.keep_new_detached(&handle, &detached(planned.clone())).await?;
        }
        let tree = match self.make_tree(&repository, handle.clone(), &chosen).await {
            Ok(tree) => tree,
            Err(why) => {
                if planned.is_some() {
                    sessions.forget_detached(&handle).await;
                }
                return Err(why.into_rpc());
            }
        };
        let resource = file_uri(&tree.path);
        let made = detached(tree);
        if planned.is_none()
            && let Err(refused) = sessions.keep_new_detached(&handle, &made).await
        {
            self.discard_tree(&made.session, made.tree).await;
            return Err(refused);
        }
        self.detached.0.lock().insert(handle.clone(), made);
        Ok(json!({ "handle": handle, "resource": resource }))
    }

    /// Takes a tree that an earlier run of the host stored. Returns `false` if its repository is not on this host.
    pub async fn restore_detached(&self, handle: &str, mut detached: DetachedTree) -> bool {
        // Hosts of a cluster share the store, but not the disk.
        if self.core.cluster().is_some()
            && let Some(repository) = repository_of(&detached.tree)
            && self.is_there(&repository.root).await == Some(false)
        {
            return false;
        }
        let earliest = self.core.clock.now().checked_sub(UNNAMED - AFTER_START);
        detached.named = detached.named.max(earliest.unwrap_or(detached.named));
        self.detached.0.lock().insert(handle.to_owned(), detached);
        true
    }

    /// Retains a tree for another day.
    pub async fn claim_detached(&self, params: &DetachedWorktree) -> Result<(), RpcError> {
        self.detached.get(&params.handle)?;
        self.name_detached(&params.handle).await;
        Ok(())
    }

    /// Records that a window uses a tree.
    async fn name_detached(&self, handle: &str) {
        let now = self.core.clock.now();
        let stored = {
            let mut all = self.detached.0.lock();
            let Some(detached) = all.get_mut(handle) else { return };
            detached.named = now;
            if now.duration_since(detached.stored) < STORED_EVERY {
                return;
            }
            detached.stored = now;
            detached.clone()
        };
        if let Some(sessions) = self.sessions()
            && let Err(why) = sessions.keep_detached(handle, &stored).await
        {
            self.core.log.warn(format_args!("detached worktree {handle} could not be stored: {why}"));
        }
    }

    /// Removes a clean tree from the disk, or restores it. Its branch stays.
    pub async fn archive_detached(&self, params: DetachedWorktreeArchived) -> Result<(), RpcError> {
        let detached = self.detached.get(&params.handle)?;
        self.name_detached(&params.handle).await;
        match params.archived {
            true => self.archive_tree(&detached.session, &detached.tree, || true).await,
            false => self.restore_tree(&detached.tree, &JsonObject::new()).await?,
        }
        Ok(())
    }

    /// Removes a tree, its branch and its handle. Uncommitted or unmerged work stays and is named in the log.
    pub async fn delete_detached(&self, params: &DetachedWorktree) -> Result<(), RpcError> {
        let Ok(detached) = self.detached.get(&params.handle) else { return Ok(()) };
        if self.session(&detached.session).is_some_and(|session| session.is_running()) {
            return Err(RpcError::turn_in_progress(format!("{} is mid-turn", detached.session)));
        }
        self.detached.0.lock().remove(&params.handle);
        self.end_detached(&params.handle, detached).await;
        Ok(())
    }

    /// Removes the trees that no window named for a day, if they are clean.
    pub async fn reconcile_detached(&self, params: &DetachedWorktrees) {
        for handle in &params.active_handles {
            self.name_detached(handle).await;
        }
        let unnamed =
            |detached: &DetachedTree| self.core.clock.now().duration_since(detached.named) >= UNNAMED;
        let old: Vec<(String, DetachedTree)> = {
            let all = self.detached.0.lock();
            let old = all.iter().filter(|(_, detached)| unnamed(detached));
            old.map(|(handle, detached)| (handle.clone(), detached.clone())).collect()
        };
        for (handle, detached) in old {
            if self.is_clean(&detached.tree).await && self.detached.0.lock().get(&handle).is_some_and(unnamed)
            {
                self.detached.0.lock().remove(&handle);
                self.end_detached(&handle, detached).await;
            }
        }
    }

    /// Removes a tree and its record.
    async fn end_detached(&self, handle: &str, detached: DetachedTree) {
        self.discard_tree(&detached.session, detached.tree).await;
        if let Some(sessions) = self.sessions() {
            sessions.forget_detached(handle).await;
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
                Ok(false) => self.core.log.warn(format_args!(
                    "{session}: kept the branch {branch} of the working tree {path}: no other branch has its commits"
                )),
                Err(why) => self.core.log.warn(format_args!(
                    "{session}: cannot delete the branch {branch}: {}",
                    why.for_log()
                )),
            }
        }
    }
}
