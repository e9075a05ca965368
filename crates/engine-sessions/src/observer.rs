//! The events that sessions report while they run. The observer is passed in; sessions do not know its type.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use ostler_contract::events::TurnStatus;

use super::SessionEntry;

/// An event in a session.
#[derive(Debug)]
pub struct Happening {
    pub session: Arc<SessionEntry>,
    pub what: Happened,
    /// Whether the session has a running turn.
    pub running: bool,
    /// The number of queued messages.
    pub queued: usize,
    /// The number of the turn's tool calls.
    pub tool_calls: usize,
}

/// The kind of event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A turn started.
    Began,
    /// A turn produced output.
    Stirred,
    /// A turn ended.
    Ended(TurnStatus),
    /// A tool call finished.
    Tool { name: String, input: u64, failed: bool },
    /// A message was queued.
    Queued,
    /// No turn runs or waits any more.
    Quiet,
    /// A session or worker that the session started has finished.
    Child(String),
    /// The session was disposed.
    Gone,
}

/// A receiver of the events of sessions.
pub trait Observer: Debug + Send + Sync {
    /// Whether changes inside a session are needed; if not, [`Observer::happened`] is not called for turns.
    fn watches(&self) -> bool;

    /// Handles an event in a session.
    fn happened(&self, happening: Happening);

    /// Handles the end of the turn with a run's message.
    fn run_turn_ended(&self, run: &str, status: TurnStatus, why: Option<String>);

    /// Handles the removal of a run's message from the queue before its turn.
    fn run_withdrawn(&self, run: &str);

    /// Handles the end of a turn that no turn follows in its chat. `busy` is set while other chats of the session run
    /// turns, `waits` while messages are queued in the session.
    fn session_quiet(&self, session: &str, busy: bool, waits: bool);

    /// Handles that a tool of one session is about to create another one.
    fn made_by(&self, child: &str, parent: &str);

    /// Handles the disposal of a session.
    fn session_gone<'a>(&'a self, session: &'a str) -> BoxFuture<'a, ()>;
}
