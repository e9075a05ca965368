//! The workspace of sessions: directories, working trees, machines, terminals and changesets. It knows sessions by
//! their URIs and through [`SessionsView`].

pub mod changesets;
pub mod containers;
pub mod detached;
pub mod directories;
pub mod machines;
pub mod provider;
pub mod sessions_view;
pub mod terminals;
pub mod tree_watch;
pub mod worktrees;

use std::sync::{Arc, OnceLock, Weak};

use ostler_engine_core::shared::Core;
use ostler_engine_users::usage::Ledger;
use ostler_engine_users::users::access::Access;
use ostler_protocol::uri;

use changesets::Changesets;
use containers::Relays;
use detached::Detached;
use sessions_view::{SessionView, SessionsView};
use terminals::Terminals;
use tree_watch::FollowedTrees;
use worktrees::MovingTrees;

/// The workspace of sessions.
#[derive(Debug)]
pub struct Workspace {
    core: Arc<Core>,
    access: Arc<Access>,
    usage: Arc<Ledger>,
    pub terminals: Terminals,
    pub relays: Relays,
    changesets: Changesets,
    followed_trees: FollowedTrees,
    moving_trees: MovingTrees,
    pub detached: Detached,
    sessions: OnceLock<Weak<dyn SessionsView>>,
}

impl Workspace {
    pub fn new(core: Arc<Core>, access: Arc<Access>, usage: Arc<Ledger>) -> Arc<Self> {
        Arc::new(Self {
            core,
            access,
            usage,
            terminals: Terminals::default(),
            relays: Relays::default(),
            changesets: Changesets::default(),
            followed_trees: FollowedTrees::default(),
            moving_trees: MovingTrees::default(),
            detached: Detached::default(),
            sessions: OnceLock::new(),
        })
    }

    /// Sets the sessions, once.
    pub fn set_sessions(&self, sessions: Weak<dyn SessionsView>) {
        let _ = self.sessions.set(sessions);
    }

    /// Returns the sessions, as long as the host exists.
    fn sessions(&self) -> Option<Arc<dyn SessionsView>> {
        self.sessions.get()?.upgrade()
    }

    /// Returns the session of a URI with any scheme, if it is in memory.
    fn session(&self, uri: &str) -> Option<Arc<dyn SessionView>> {
        self.sessions()?.get(uri::session_id(uri)?)
    }
}
