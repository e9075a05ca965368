//! What sessions report while they run. Whoever is told is passed in; sessions do not know who that is.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use ostler_contract::events::TurnStatus;

use super::Entry;

/// Something that happened in a session.
#[derive(Debug)]
pub(crate) struct Happening {
    pub session: Arc<Entry>,
    pub what: Happened,
    /// Whether a turn runs in it.
    pub running: bool,
    /// Messages that wait in it.
    pub queued: usize,
    /// Tool calls of the turn.
    pub tool_calls: usize,
}

/// What.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Happened {
    /// A turn began.
    Began,
    /// A turn said or did something.
    Stirred,
    /// A turn ended.
    Ended(TurnStatus),
    /// A tool call finished.
    Tool { name: String, input: u64, failed: bool },
    /// A message was queued.
    Queued,
    /// No turn runs any more, and none waits.
    Quiet,
    /// A session or worker it started finished.
    Child(String),
    /// It was disposed.
    Gone,
}

/// Is told what sessions do.
pub(crate) trait Observer: Debug + Send + Sync {
    /// Whether changes inside a session are of interest; if not, [`Observer::happened`] is called for no turn.
    fn watches(&self) -> bool;

    /// Something happened in a session.
    fn happened(&self, happening: Happening);

    /// The turn of a run's message ended.
    fn run_turn_ended(&self, run: &str, status: TurnStatus, why: Option<String>);

    /// A run's message was taken out of the queue before its turn.
    fn run_withdrawn(&self, run: &str);

    /// A turn ended and no turn follows it in its chat; `busy` while other chats of the session run turns, `waits` while
    /// messages wait in the session.
    fn session_quiet(&self, session: &str, busy: bool, waits: bool);

    /// A session is about to be made by a tool of another.
    fn made_by(&self, child: &str, parent: &str);

    /// A session was disposed.
    fn session_gone<'a>(&'a self, session: &'a str) -> BoxFuture<'a, ()>;
}
