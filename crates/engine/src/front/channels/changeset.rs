//! What a session changed.

use std::sync::Arc;

use ostler_protocol::RpcError;

use super::{COPIES, ChannelKind, Dispatched, Subscribing, require};
use crate::core::fanout::rejection;
use crate::front::Front;
use crate::front::connection::Connection;
use crate::sessions::snapshot;

/// A changeset.
pub(super) struct Changeset;

impl ChannelKind for Changeset {
    fn may_watch(&self, connection: &Connection) -> Result<(), RpcError> {
        require(connection, "session", "state")
    }

    fn resolve(&self, front: &Front, spelled: &str) -> Result<String, RpcError> {
        front.workspace.watched_changeset(spelled)
    }

    /// What it holds is asked first.
    fn subscribe(&self, connection: &Arc<Connection>, subscribing: Subscribing) {
        let connection = connection.clone();
        tokio::spawn(async move {
            let Subscribing { spelled, latency, answer, .. } = subscribing;
            let front = connection.front();
            match front.workspace.find_changeset(&spelled).await {
                Ok(asked) => {
                    let subscriber = connection.subscriber(&spelled, asked.uri(), latency);
                    connection.remember(&spelled, asked.uri());
                    let (text, seq, of) = front.workspace.watch_changeset(asked, subscriber);
                    answer.give(snapshot(&spelled, &text, seq));
                    front.workspace.changeset_is_watched(&of).await;
                }
                Err(error) => answer.fail(error),
            }
        });
    }

    fn dispatch(&self, connection: &Arc<Connection>, dispatched: Dispatched<'_>) -> Result<(), String> {
        let front = connection.front().clone();
        let (outbox, spelled) = (connection.outbox.clone(), dispatched.spelled.to_owned());
        let (action, origin) = (dispatched.action.clone(), dispatched.origin.clone());
        let charge = connection.charge_copies(dispatched.length, COPIES);
        tokio::spawn(async move {
            let _charge = charge;
            if let Err(why) = front.workspace.review(&spelled, &action, origin.clone()).await {
                let seq = front.core.fanout.seq();
                outbox.send(rejection(&spelled, &action.to_string(), seq, &origin, &why));
            }
        });
        Ok(())
    }
}
