//! One run of an automation.

use std::sync::Arc;

use ostler_protocol::{RpcError, uri};

use super::automations::act;
use super::{ChannelKind, Dispatched, Subscribing, require};
use crate::core::refusals::no_run;
use crate::front::Front;
use crate::front::connection::Connection;
use crate::sessions::snapshot;

/// A run, by its id.
pub(super) struct Run(pub String);

impl ChannelKind for Run {
    fn may_watch(&self, connection: &Connection) -> Result<(), RpcError> {
        require(connection, "automation", "list")
    }

    fn resolve(&self, front: &Front, spelled: &str) -> Result<String, RpcError> {
        let run = uri::automation_run(&self.0);
        match front.automations.has_run(&run) {
            true => Ok(run),
            false => Err(no_run(spelled)),
        }
    }

    fn subscribe(&self, connection: &Arc<Connection>, subscribing: Subscribing) {
        let front = connection.front();
        // A run may have ended long ago and be only in the store.
        let Ok(run) = self.resolve(front, &subscribing.spelled) else {
            return subscribe_kept(connection, subscribing);
        };
        let Subscribing { spelled, latency, turns, answer } = subscribing;
        let subscriber = connection.subscriber(&spelled, &run, latency);
        connection.remember(&spelled, &run);
        let begun = answer.give_first(|| {
            let begun = front.automations.subscribe_run(&front.core.fanout, &run, subscriber);
            begun.map(|(state, seq)| snapshot(&spelled, &state, seq)).ok_or(())
        });
        if let Err((answer, ())) = begun {
            subscribe_kept(connection, Subscribing { spelled, latency, turns, answer });
        }
    }

    fn dispatch(&self, connection: &Arc<Connection>, dispatched: Dispatched<'_>) -> Result<(), String> {
        act(connection, &dispatched);
        Ok(())
    }
}

/// A run that ended before this host started.
fn subscribe_kept(connection: &Arc<Connection>, subscribing: Subscribing) {
    let connection = connection.clone();
    tokio::spawn(async move {
        let Subscribing { spelled, latency, answer, .. } = subscribing;
        let front = connection.front();
        match front.automations.kept_run(&spelled).await {
            Some(run) => {
                let subscriber = connection.subscriber(&spelled, &spelled, latency);
                connection.remember(&spelled, &spelled);
                let seq = front.core.fanout.subscribe(&spelled, subscriber);
                let state = serde_json::to_string(&run).unwrap_or_else(|_| "{}".to_owned());
                answer.give(snapshot(&spelled, &state, seq));
            }
            None => answer.fail(no_run(&spelled)),
        }
    });
}
