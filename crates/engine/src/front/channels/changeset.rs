//! Changesets of sessions.

use std::sync::Arc;

use ostler_engine_core::fanout::rejection;
use ostler_engine_core::tasks;
use ostler_protocol::RpcError;

use super::{COPIES, ChannelKind, Dispatched, Subscribing, begin, require};
use crate::front::Front;
use crate::front::connection::Connection;

pub(super) struct Changeset;

impl ChannelKind for Changeset {
    fn may_watch(&self, connection: &Connection) -> Result<(), RpcError> {
        require(connection, "session", "state")
    }

    fn resolve(&self, front: &Front, spelled: &str) -> Result<String, RpcError> {
        front.workspace.watched_changeset(spelled)
    }

    /// Its content is requested first.
    fn subscribe(&self, connection: &Arc<Connection>, subscribing: Subscribing) {
        let connection = connection.clone();
        tasks::spawn(async move {
            let front = connection.front();
            let asked = match front.workspace.find_changeset(&subscribing.spelled).await {
                Ok(asked) => asked,
                Err(error) => return subscribing.answer.fail(error),
            };
            let (uri, mut watched) = (asked.uri().to_owned(), None);
            begin(&connection, &uri, subscribing, |subscriber| {
                let (text, seq, of) = front.workspace.watch_changeset(asked, subscriber);
                watched = Some(of);
                Ok((text, seq))
            });
            if let Some(of) = watched {
                front.workspace.changeset_is_watched(&of).await;
            }
        });
    }

    /// Nothing followed its files while it had no subscribers.
    fn resume(&self, connection: &Connection, spelled: &str, channel: &str) {
        connection.remember(spelled, channel);
        let (front, spelled) = (connection.front().clone(), spelled.to_owned());
        tasks::spawn(async move { front.workspace.changeset_is_watched_again(&spelled).await });
    }

    fn dispatch(&self, connection: &Arc<Connection>, dispatched: Dispatched<'_>) -> Result<(), String> {
        let front = connection.front().clone();
        let (outbox, spelled) = (connection.outbox.clone(), dispatched.spelled.to_owned());
        let (action, origin) = (dispatched.action.clone(), dispatched.origin.clone());
        let charge = connection.charge_copies(dispatched.length, COPIES);
        tasks::spawn(async move {
            let _charge = charge;
            if let Err(why) = front.workspace.review(&spelled, &action, origin.clone()).await {
                let seq = front.core.fanout.seq();
                outbox.send(rejection(&spelled, &action.to_string(), seq, &origin, why));
            }
        });
        Ok(())
    }
}
