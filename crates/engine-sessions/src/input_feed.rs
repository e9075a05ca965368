//! Notifications about requests for input of all sessions, for parts of the program that follow every session. A
//! follower that falls behind is notified of that and reads the sessions again, so no session waits for it.

use tokio::sync::broadcast;

/// The number of changes retained for followers.
const MOST: usize = 1024;

/// A change of a session's requests for input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputChange {
    /// A session lists a new request, or another one under an existing id.
    Asked {
        /// The session's URI.
        session: String,
        /// The request's id in the session.
        id: String,
    },
    /// The session no longer lists the request, because it was answered or the turn ended.
    Withdrawn {
        /// The session's URI.
        session: String,
        /// The request's id in the session.
        id: String,
    },
}

/// The channel of the changes.
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
