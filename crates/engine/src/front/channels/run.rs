//! One run of an automation.

use std::sync::Arc;

use futures::future::BoxFuture;
use ostler_contract::read::Read;
use ostler_engine_core::refusals::{no_run, unread};
use ostler_engine_core::tasks;
use ostler_engine_sessions::snapshot;
use ostler_protocol::{RpcError, uri};

use super::automations::act;
use super::{ChannelKind, Dispatched, Subscribing, require};
use crate::front::Front;
use crate::front::connection::Connection;

/// A run, by its id.
pub(super) struct Run(pub String);

impl ChannelKind for Run {
    fn may_watch(&self, connection: &Connection) -> Result<(), RpcError> {
        require(connection, "automation", "list")
    }

    fn resolve(&self, front: &Front, spelled: &str) -> Result<String, RpcError> {
        let run = uri::automation_run(&self.0);
        // The run of another host is only in the store; see `may_resume`.
        match front.automations.has_run(&run) || front.core.shared_runs().is_some() {
            true => Ok(run),
            false => Err(no_run(spelled)),
        }
    }

    fn subscribe(&self, connection: &Arc<Connection>, subscribing: Subscribing) {
        let front = connection.front();
        // A run may have ended long ago and be only in the store.
        let run = uri::automation_run(&self.0);
        let Subscribing { spelled, latency, turns, answer } = subscribing;
        let subscriber = connection.subscriber(&spelled, &run, latency);
        connection.remember(&spelled, &run);
        let begun = answer.give_first(|| {
            let begun = front.automations.subscribe_run(&front.core.fanout, &run, subscriber);
            begun.map(|(state, seq)| snapshot(&spelled, &state, seq)).ok_or(())
        });
        if let Err((answer, ())) = begun {
            subscribe_kept(connection, run, Subscribing { spelled, latency, turns, answer });
        }
    }

    fn asks_plugin(&self) -> bool {
        true
    }

    /// Follows a run that another host may change.
    fn may_resume<'a>(&'a self, connection: &'a Arc<Connection>, _: &'a str) -> BoxFuture<'a, Read<bool>> {
        Box::pin(async move {
            let (automations, run) = (&connection.front().automations, uri::automation_run(&self.0));
            if automations.has_run(&run) {
                return Read::Known(true);
            }
            let stored = automations.kept_run(&run).await;
            stored.map(|stored| stored.inspect(|run| automations.follow_run(run)).is_some())
        })
    }

    fn dispatch(&self, connection: &Arc<Connection>, dispatched: Dispatched<'_>) -> Result<(), String> {
        act(connection, &dispatched);
        Ok(())
    }
}

/// A run that is only in the store: it has ended, or another host runs it.
fn subscribe_kept(connection: &Arc<Connection>, run: String, subscribing: Subscribing) {
    let connection = connection.clone();
    tasks::spawn(async move {
        let Subscribing { spelled, latency, answer, .. } = subscribing;
        let front = connection.front();
        match front.automations.kept_run(&run).await {
            Read::Known(Some(stored)) => {
                let subscriber = connection.subscriber(&spelled, &run, latency);
                connection.remember(&spelled, &run);
                let seq = front.core.fanout.subscribe(&run, subscriber);
                let state = serde_json::to_string(&stored).unwrap_or_else(|_| "{}".to_owned());
                answer.give(snapshot(&spelled, &state, seq));
                front.automations.follow_run(&stored);
            }
            Read::Known(None) => answer.fail(no_run(&spelled)),
            Read::Unknown(why) => answer.fail(unread(&spelled, &why)),
        }
    });
}
