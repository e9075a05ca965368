//! The end of a connection, and of its client's presence in sessions.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::Charge;
use ostler_contract::events::Event;
use ostler_engine_core::outbox::Closed;
use ostler_engine_core::refusals::nothing_at;
use ostler_engine_sessions::{Place, ToSession};

use super::Connection;
use crate::front::channels::kind_of;

/// How long a client can be disconnected before its active sessions are notified.
const PRESENCE_GRACE: Duration = Duration::from_secs(30);

/// The memory of a session in which a client is active, beside its URI.
const ACTIVE: usize = 128;
const TOO_ACTIVE: &str = "the host has no memory for another session with this client; try again later";

/// A session in which a client said that it is active.
#[derive(Debug)]
pub(super) struct Activity {
    _charge: Charge,
    /// How often it has said so since the session last handled it.
    unanswered: usize,
}

impl Connection {
    /// Records that the client said it is active in a session, to end that after the connection. The session removes it if it
    /// refuses.
    ///
    /// # Errors
    /// The connection has ended, or there is no memory for it.
    pub(crate) fn acts_in(&self, session: &str) -> Result<(), String> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(nothing_at(session).message);
        }
        match state.active_in.get_mut(session) {
            Some(activity) => activity.unanswered += 1,
            None => {
                let charge = self.outbox.budget().try_take(session.len() + ACTIVE).ok_or(TOO_ACTIVE)?;
                let activity = Activity { _charge: charge, unanswered: 1 };
                state.active_in.insert(session.to_owned(), activity);
            }
        }
        Ok(())
    }

    /// Records that the client has left a session, or whether it is active there after the session has handled that it said so.
    /// What it has said since is still to be handled.
    pub(crate) fn acts_no_more_in(&self, session: &str, answered: Option<bool>) {
        let mut state = self.state.lock();
        let Some(activity) = state.active_in.get_mut(session) else { return };
        if answered.is_some() {
            activity.unanswered = activity.unanswered.saturating_sub(1);
        }
        if answered != Some(true) && activity.unanswered == 0 {
            state.active_in.remove(session);
        }
    }

    /// Ends the connection: its subscriptions end immediately, its presence in sessions after a while, so that a client
    /// can reconnect.
    pub fn close(&self) {
        let (subscriptions, mut left) = {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.closed, true) {
                return;
            }
            (std::mem::take(&mut state.subscriptions), std::mem::take(&mut state.active_in))
        };
        self.outbox.close(Closed::Done);
        if let Some(relayed) = self.relayed_if_any() {
            relayed.close();
        }
        self.turns.close();
        self.requests.close();
        for channel in subscriptions.values() {
            self.front.sessions.unsubscribe(channel, self.id);
            kind_of(&self.front, channel).left(self, channel);
        }
        self.front.resources.release_watches_of(self.id);
        self.front.workspace.relays_left(self.id);
        self.front.core.root.forget(self.id);
        self.front.core.fanout.shows_lists(self.id, true);
        self.front.access.clients.remove(self.id);
        let client = self.client_id();
        self.front.core.events.raise(Event::ClientDisconnect {
            client: client.clone().unwrap_or_else(|| "anonymous".to_owned()),
        });
        let (Some(client), Ok(runtime)) = (client, tokio::runtime::Handle::try_current()) else { return };
        let front = Arc::downgrade(&self.front);
        self.front.sessions.drafts_left(&client, subscriptions.values());
        let mut left: HashSet<String> = left.drain().map(|(session, _)| session).collect();
        left.extend(subscriptions.into_values());
        if left.is_empty() {
            return;
        }
        runtime.spawn(async move {
            tokio::time::sleep(PRESENCE_GRACE).await;
            let Some(front) = front.upgrade() else { return };
            for channel in left {
                if let Some((entry, Place::Session)) =
                    front.sessions.locate(&front.sessions.channel(&channel))
                    && entry.is_awake()
                {
                    front.sessions.tell(&entry, ToSession::Left { client: client.clone() });
                }
            }
        });
    }
}
