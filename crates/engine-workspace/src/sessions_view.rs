//! The interface of sessions for the workspace. Sessions implement it and are passed in once they exist.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use ostler_contract::JsonObject;
use ostler_contract::Thrown;
use ostler_contract::points::{ChangesOf, Worktree};
use ostler_contract::read::Read;
use ostler_protocol::RpcError;

use crate::detached::DetachedTree;

/// The sessions of the host.
pub trait SessionsView: Debug + Send + Sync {
    /// The session of an id, if it is in memory.
    fn get(&self, id: &str) -> Option<Arc<dyn SessionView>>;

    /// Returns the session of an id, from memory or from the store. It stays in memory as long as the result exists.
    fn load<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Read<Option<Arc<dyn SessionView>>>>;

    /// Refreshes the facts about a session's directories, after work in them.
    fn look_around(&self, session: &dyn SessionView);

    /// Refreshes the facts after another program made a commit, or checked out another branch.
    fn head_moved(&self, session: &dyn SessionView, is_other_branch: bool);

    /// Refreshes the facts after the source of facts reported a change, such as a push by another program.
    fn facts_moved(&self, session: &dyn SessionView);

    /// Refreshes the facts of a session that clients watch from now on, unless it just began.
    fn is_watched(&self, session: &dyn SessionView);

    /// Stores which files of a changeset users reviewed, with fingerprints of their changes.
    fn keep_reviewed(&self, session: &dyn SessionView, scope: String, files: JsonObject);

    /// Stores a new detached working tree under its handle.
    fn keep_new_detached<'a>(
        &'a self,
        handle: &'a str,
        detached: &'a DetachedTree,
    ) -> BoxFuture<'a, Result<(), RpcError>>;

    /// Stores a detached working tree again.
    fn keep_detached<'a>(
        &'a self,
        handle: &'a str,
        detached: &'a DetachedTree,
    ) -> BoxFuture<'a, Result<(), Thrown>>;

    /// Removes the record of a detached working tree.
    fn forget_detached<'a>(&'a self, handle: &'a str) -> BoxFuture<'a, ()>;
}

pub trait SessionView: Debug + Send + Sync {
    /// Its URI in listings.
    fn uri(&self) -> &str;

    /// The query of a session's changes: its URI and directory.
    fn changes_of(&self) -> ChangesOf;

    /// Its working tree.
    fn worktree(&self) -> Option<Worktree>;

    fn settings(&self) -> JsonObject;

    /// The files of a changeset that users reviewed, with fingerprints of their changes.
    fn reviewed(&self, scope: &str) -> JsonObject;

    /// Whether it has a running turn.
    fn is_running(&self) -> bool;
}
