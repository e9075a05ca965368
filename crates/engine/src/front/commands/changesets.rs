//! Watching changesets.

use std::sync::Arc;

use crate::front::connection::Connection;
use crate::sessions::{Snapshots, snapshot};

impl Connection {
    /// Subscribes to a changeset; what it holds is asked first.
    pub(crate) fn subscribe_changeset(
        self: &Arc<Self>,
        spelled: &str,
        latency: Option<u64>,
        answer: Snapshots,
    ) {
        let (connection, spelled) = (self.clone(), spelled.to_owned());
        tokio::spawn(async move {
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
}
