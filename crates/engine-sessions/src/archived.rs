//! The working tree of an archived session: a clean one is removed from disk and restored with the session.

use std::sync::Arc;

use ostler_engine_core::tasks;
use tokio::sync::oneshot;

use super::SessionEntry;
use super::actor::Actor;
use crate::Sessions;

impl Actor {
    /// Removes the session's working tree from disk after its backends have ended, or restores it.
    pub(super) fn settle_tree(&mut self, archived: bool) {
        if self.entry.view().record.worktree.is_none() {
            return;
        }
        let (sessions, entry) = (self.sessions.clone(), self.entry.clone());
        if !archived {
            tasks::spawn(async move { sessions.restore_tree_of(&entry).await });
            return;
        }
        if self.chats.iter().any(|chat| chat.running().is_some()) || self.works_in_background() {
            return;
        }
        // A process that runs in the removed directory would not work in the restored one.
        let mut ended = Vec::new();
        for chat in &mut self.chats {
            if let Some(backend) = chat.backend.take() {
                let (done, wait) = oneshot::channel();
                chat.ending = Some(tasks::spawn(async move {
                    backend.close(false).await;
                    let _ = done.send(());
                }));
                ended.push(wait);
            }
        }
        tasks::spawn(async move {
            futures::future::join_all(ended).await;
            let Some(tree) = entry.view().record.worktree.clone() else { return };
            let still = || {
                let view = entry.view();
                view.flags().is_archived && !entry.is_at_work()
            };
            sessions.workspace.archive_tree(&entry.uri, &tree, still).await;
        });
    }
}

impl Sessions {
    /// Restores a session's working tree if it is missing on disk. A failure is only logged; the next process that runs
    /// in the directory fails visibly.
    pub(super) async fn restore_tree_of(&self, entry: &Arc<SessionEntry>) {
        let record = entry.view().record.clone();
        let Some(tree) = &record.worktree else { return };
        if let Err(why) = self.workspace.restore_tree(tree, &record.values).await {
            self.core.log.warn(format_args!("{}: {}", entry.uri, why.message));
        }
    }
}
