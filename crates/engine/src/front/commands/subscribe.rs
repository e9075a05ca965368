//! Subscribing to one or several channels.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ostler_contract::Charge;
use ostler_protocol::RpcError;
use ostler_protocol::wire::commands as c;
use tokio::sync::oneshot;

use crate::core::responder::Responder;
use crate::front::channels::{Subscribing, kind_of};
use crate::front::connection::Connection;
use crate::sessions::{Collected, Snapshots};

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

impl Snapshots {
    pub(crate) fn fail(self, error: RpcError) {
        match self {
            Self::Subscribe(responder) => responder.fail(error),
            Self::Collect(collect) => {
                let _ = collect.send(None);
            }
        }
    }

    /// Begins the text of a large snapshot, with capacity for so many bytes of its state.
    pub(crate) fn begin(&self, room: usize) -> String {
        match self {
            Self::Subscribe(responder) => responder.begin(room) + r#"{"snapshot":"#,
            Self::Collect(_) => String::with_capacity(room),
        }
    }

    /// Delivers a snapshot that was written after [`Snapshots::begin`].
    pub(crate) fn end(self, mut text: String, mut charge: Charge) {
        match self {
            Self::Subscribe(responder) => {
                text.push_str("}}");
                responder.frame(text, charge);
            }
            Self::Collect(collect) => {
                text.shrink_to_fit();
                // Also the answer that contains it.
                charge.set(2 * text.len());
                let _ = collect.send(Some(Collected { text, charge: Some(charge) }));
            }
        }
    }

    /// Delivers the snapshot that `subscribe` takes when it adds the subscriber. Later actions of other threads follow
    /// it, because a client drops the actions of a channel until it has a state. If `subscribe` fails, the request
    /// remains unanswered.
    pub(crate) fn give_first<E>(
        self,
        subscribe: impl FnOnce() -> Result<String, E>,
    ) -> Result<(), (Self, E)> {
        match self {
            Self::Subscribe(responder) => responder
                .raw_first(|| subscribe().map(|snapshot| answer_of(&snapshot)))
                .map_err(|(responder, why)| (Self::Subscribe(responder), why)),
            // The whole connection waits for the answer that contains this.
            Self::Collect(_) => match subscribe() {
                Ok(snapshot) => {
                    self.give(snapshot);
                    Ok(())
                }
                Err(why) => Err((self, why)),
            },
        }
    }

    /// Delivers a snapshot of a channel without concurrent actions.
    pub(crate) fn give(self, snapshot: String) {
        match self {
            Self::Subscribe(responder) => responder.raw(&answer_of(&snapshot)),
            Self::Collect(collect) => {
                let _ = collect.send(Some(Collected { text: snapshot, charge: None }));
            }
        }
    }
}

/// The result of `subscribe`.
fn answer_of(snapshot: &str) -> String {
    format!(r#"{{"snapshot":{snapshot}}}"#)
}
