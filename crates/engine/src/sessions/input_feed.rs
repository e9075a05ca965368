//! Requests for input of all sessions as they come and go, for a part of the program that follows every session. What falls
//! behind is told so and looks at the sessions anew, so that no session waits for it.

use tokio::sync::broadcast;

/// How many changes are retained for who follows them.
const MOST: usize = 1024;

/// A change of what a session needs input for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputChange {
    /// A session lists a request, or another one under an id it listed.
    Asked {
        /// The session's URI.
        session: String,
        /// The request's id in the session.
        id: String,
    },
    /// It no longer lists it: somebody answered, or the turn ended.
    Withdrawn {
        /// The session's URI.
        session: String,
        /// The request's id in the session.
        id: String,
    },
}

/// The changes, to those who follow them.
#[derive(Debug)]
pub(super) struct InputFeed(broadcast::Sender<InputChange>);

impl Default for InputFeed {
    fn default() -> Self {
        Self(broadcast::Sender::new(MOST))
    }
}

impl InputFeed {
    pub fn follow(&self) -> broadcast::Receiver<InputChange> {
        self.0.subscribe()
    }

    pub fn asked(&self, session: &str, id: &str) {
        self.send(|| InputChange::Asked { session: session.to_owned(), id: id.to_owned() });
    }

    pub fn withdrawn(&self, session: &str, id: &str) {
        self.send(|| InputChange::Withdrawn { session: session.to_owned(), id: id.to_owned() });
    }

    fn send(&self, change: impl FnOnce() -> InputChange) {
        if self.0.receiver_count() > 0 {
            let _ = self.0.send(change());
        }
    }
}
