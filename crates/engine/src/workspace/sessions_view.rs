//! What the workspace sees of sessions. Sessions implement it and are passed in once they exist.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use ostler_contract::JsonObject;
use ostler_contract::points::{ChangesOf, Worktree};

/// The sessions of the host.
pub(crate) trait SessionsView: Debug + Send + Sync {
    /// The session of an id, if it is in memory.
    fn get(&self, id: &str) -> Option<Arc<dyn SessionView>>;

    /// The session of an id, in memory or from the store. It stays in memory as long as the answer is held.
    fn load<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Option<Arc<dyn SessionView>>>;

    /// Asks again what is around a session, after work in its directory.
    fn look_around(&self, session: &dyn SessionView);
}

/// One session.
pub(crate) trait SessionView: Debug + Send + Sync {
    /// As the host lists it.
    fn uri(&self) -> &str;

    /// Whose changes a session's are: its URI and directory.
    fn changes_of(&self) -> ChangesOf;

    /// The working tree that was made for it.
    fn worktree(&self) -> Option<Worktree>;

    /// The settings that were chosen for it.
    fn settings(&self) -> JsonObject;

    /// Whether a turn runs in it.
    fn is_running(&self) -> bool;
}
