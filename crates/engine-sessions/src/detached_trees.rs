//! Stored detached working trees. Each is a record of the session store that is not a session: the trees outlive their
//! sessions, and their handles the host.

use ostler_contract::points::{KeptDraft, KeptSession, SessionStore};
use ostler_contract::read::Read;
use ostler_contract::{Thrown, limit};
use ostler_engine_core::refusals::try_again;
use ostler_engine_workspace::detached::DetachedTree;
use ostler_protocol::RpcError;

use crate::Sessions;

/// Returns the tree of a record; `None` for other records.
fn tree_in(kept: KeptSession) -> Option<DetachedTree> {
    let session = kept.draft?.detached?;
    let named = kept.modified_at.parse().ok()?;
    Some(DetachedTree { session, tree: kept.worktree?, named, stored: named })
}

fn record_of(handle: &str, detached: &DetachedTree) -> KeptSession {
    let named = ostler_engine_core::clock::iso(detached.named);
    KeptSession {
        uri: format!("detached:/{handle}"),
        created_at: named.clone(),
        modified_at: named,
        worktree: Some(detached.tree.clone()),
        draft: Some(KeptDraft { detached: Some(detached.session.clone()), ..KeptDraft::default() }),
        ..KeptSession::default()
    }
}

impl Sessions {
    /// Passes the detached trees among the given records to the workspace, and removes them from the list. Returns how
    /// many there were.
    pub(super) async fn load_detached(&self, store: &SessionStore, ids: &mut Vec<String>) -> usize {
        let mut others = Vec::new();
        let before = ids.len();
        for id in ids.drain(..) {
            match store.config.read(limit::STORE, (id.clone(),)).await {
                Read::Known(Some(kept))
                    if kept.draft.as_ref().is_some_and(|draft| draft.detached.is_some()) =>
                {
                    // In a cluster, it can be a tree on another host that is not running.
                    let is_here = match tree_in(kept) {
                        Some(tree) => self.workspace.restore_detached(&id, tree).await,
                        None => false,
                    };
                    if !is_here {
                        self.disown(&id);
                    }
                }
                // An error is reported by the next read.
                _ => others.push(id),
            }
        }
        *ids = others;
        before - ids.len()
    }

    /// Stores a new detached tree, before it is created.
    pub(super) async fn keep_new_detached(
        &self,
        handle: &str,
        detached: &DetachedTree,
    ) -> Result<(), RpcError> {
        self.own_new(handle, false).await?;
        self.keep_detached(handle, detached).await.map_err(|why| {
            self.disown(handle);
            try_again(format!("the working tree could not be stored, so it was not created: {why}"))
        })
    }

    /// Stores a detached tree again.
    pub(super) async fn keep_detached(&self, handle: &str, detached: &DetachedTree) -> Result<(), Thrown> {
        let Some(store) = self.core.session_store() else { return Ok(()) };
        store.set_config.within(limit::STORE, (handle.to_owned(), record_of(handle, detached))).await
    }

    /// Removes the record of a detached tree.
    pub(super) async fn forget_detached(&self, handle: &str) {
        if let Some(store) = self.core.session_store()
            && let Err(why) = store.forget.within(limit::STORE, (handle.to_owned(),)).await
        {
            self.core
                .log
                .warn(format_args!("detached worktree {handle}: its record stays in the store: {why}"));
        }
        self.disown(handle);
    }
}
