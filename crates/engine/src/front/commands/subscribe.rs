//! Subscribing to one or several channels.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ostler_engine_core::responder::Responder;
use ostler_engine_sessions::{Collected, Snapshots};
use ostler_protocol::wire::commands as c;
use tokio::sync::oneshot;

use crate::front::channels::{Subscribing, kind_of};
use crate::front::connection::Connection;

/// How long a plugin's channel can delay the answer to a connecting client before it is omitted.
pub(super) const COLLECT_LIMIT: Duration = Duration::from_secs(5);

impl Connection {
    /// Subscribes to several channels; omits those that fail.
    pub(in crate::front) fn collect(
        self: &Arc<Self>,
        wanted: &[String],
    ) -> impl Future<Output = Vec<Collected>> + use<> {
        let mut named = HashSet::new();
        let pending: Vec<_> = wanted
            .iter()
            .filter(|spelled| named.insert(spelled.as_str()))
            .map(|spelled| {
                let (answer, wait) = oneshot::channel();
                let kind = kind_of(self.front(), spelled);
                if kind.may_watch(self).is_ok() {
                    let (spelled, answer) = (spelled.clone(), Snapshots::Collect(answer));
                    kind.subscribe(self, Subscribing { spelled, latency: None, turns: None, answer });
                }
                (kind.asks_plugin().then(|| spelled.clone()), wait)
            })
            .collect();
        let connection = self.clone();
        async move {
            let snapshots = pending.into_iter().map(|(asked, wait)| async {
                let Some(asked) = asked else { return wait.await.ok().flatten() };
                let in_time = tokio::time::timeout(COLLECT_LIMIT, wait).await;
                if in_time.is_err() {
                    connection.handle_unsubscribe(&asked);
                }
                in_time.ok()?.ok().flatten()
            });
            futures::future::join_all(snapshots).await.into_iter().flatten().collect()
        }
    }

    pub(super) fn handle_subscribe(self: &Arc<Self>, params: c::SubscribeParams, responder: Responder) {
        let kind = kind_of(self.front(), &params.channel);
        if let Err(error) = kind.may_watch(self) {
            return responder.fail(error);
        }
        let latency = params.delivery.and_then(|delivery| delivery.max_latency_ms);
        let latency = latency.map(|ms| u64::try_from(ms).unwrap_or_default());
        let turns = params.view.and_then(|view| view.turns);
        let turns = turns.map(|turns| usize::try_from(turns).unwrap_or_default());
        let answer = Snapshots::Subscribe(responder);
        kind.subscribe(self, Subscribing { spelled: params.channel, latency, turns, answer });
    }
}
