//! Sessions whose creation the end of the host interrupted. Before a session gets a working tree, it is stored with the place
//! of the tree; the next start removes both.

use ostler_contract::points::{KeptSession, SessionStore};
use ostler_contract::{Thrown, limit};

use crate::Sessions;

fn is_unfinished(kept: &KeptSession) -> bool {
    kept.draft.as_ref().is_some_and(|draft| draft.creating)
}

impl Sessions {
    /// Removes what the interrupted creations among the given sessions left. A tree with changes stays and is named in
    /// the log. Returns how many sessions are no longer stored.
    pub(super) async fn undo_unfinished(&self, store: &SessionStore, ids: &[String]) -> usize {
        let undo = async |id: &String| {
            let kept = store.config.read(limit::STORE, (id.clone(),)).await.known()?;
            let Some(kept) = kept.filter(is_unfinished) else { return Ok::<_, Thrown>(0) };
            if let Some(tree) = kept.worktree {
                self.workspace.undo_tree(&kept.uri, tree, &kept.values).await;
            }
            store.forget.within(limit::STORE, (id.clone(),)).await.map(|()| 1)
        };
        let mut undone = 0;
        for id in ids {
            match undo(id).await {
                Ok(count) => undone += count,
                Err(why) => {
                    let log = &self.core.log;
                    log.warn(format_args!("{id}: its unfinished creation could not be undone: {why}"));
                }
            }
        }
        undone
    }

    /// Removes the stored plan of a session whose creation failed.
    pub(super) async fn forget_planned(&self, id: &str) {
        let Some(store) = self.core.session_store() else { return };
        if let Err(why) = store.forget.within(limit::STORE, (id.to_owned(),)).await {
            self.core
                .log
                .warn(format_args!("{id}: the session that was not created stays in the store: {why}"));
        }
    }
}
