//! Subscriptions of plugins' channels: the authorization, the snapshot, and the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ostler_contract::points::SchemeChannel;
use ostler_contract::read::Read;
use ostler_contract::registry::Owned;
use ostler_contract::{Thrown, Value, in_time, limit};
use ostler_engine_core::backlog::Backlog;
use ostler_engine_core::refusals::nothing_serves;
use ostler_engine_core::tasks;
use ostler_engine_sessions::{Snapshots, snapshot};
use ostler_protocol::RpcError;
use tokio::sync::oneshot;

use super::ChannelKind;
use crate::channels::plugin::{Begin, channel_name};
use crate::front::Front;
use crate::front::connection::Connection;

/// The maximum number of channels of a connection when it subscribes to one of a plugin.
const MOST_WATCHED: usize = 4096;
/// The maximum length of a URI of a plugin's channel, in bytes.
const LONGEST: usize = 2048;

/// A subscription that is being established.
struct Watch {
    channel: Owned<SchemeChannel>,
    /// The URI from the client's request.
    spelled: String,
    latency: Option<u64>,
    answer: Snapshots,
}

/// A plugin's channel, by its scheme in lowercase.
pub(super) struct Plugin {
    pub scheme: String,
}

impl ChannelKind for Plugin {
    fn may_watch(&self, _: &Connection) -> Result<(), RpcError> {
        // Checked during the subscription, because its plugin can decide.
        Ok(())
    }

    fn resolve(&self, front: &Front, spelled: &str) -> Result<String, RpcError> {
        match front.channels.plugin_channel(&self.scheme) {
            Some(_) => Ok(channel_name(spelled)),
            None => Err(nothing_serves(&self.scheme)),
        }
    }

    fn subscribe(&self, connection: &Arc<Connection>, subscribing: super::Subscribing) {
        let super::Subscribing { spelled, latency, answer, .. } = subscribing;
        let front = connection.front();
        let Some(channel) = front.channels.plugin_channel(&self.scheme) else {
            return answer.fail(nothing_serves(&self.scheme));
        };
        if let Err(refusal) = connection.may_watch_more(&spelled) {
            return answer.fail(refusal);
        }
        connection.remember(&spelled, &channel_name(&spelled));
        let watch = Watch { channel, spelled, latency, answer };
        match front.access.require_named(&connection.principal(), &watch.channel.channel.grant) {
            Ok(()) => connection.begin_watch(watch),
            Err(refusal) => {
                let connection = connection.clone();
                tasks::spawn(async move {
                    if connection.authorized_for(&watch.channel, &watch.spelled).await {
                        return connection.begin_watch(watch);
                    }
                    // A rejected client is no longer subscribed to it either.
                    connection.handle_unsubscribe(&watch.spelled);
                    watch.answer.fail(refusal);
                });
            }
        }
    }

    fn takes_none(&self) -> Option<&'static str> {
        Some("a plugin's channel accepts no actions of clients")
    }

    fn asks_plugin(&self) -> bool {
        true
    }

    fn may_resume<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        spelled: &'a str,
    ) -> BoxFuture<'a, Read<bool>> {
        // A plugin that does not answer does not let the client watch.
        Box::pin(connection.may_watch_plugin(&self.scheme, spelled).map(Read::Known))
    }

    /// Without a check, missed actions are replayed.
    fn resume(&self, connection: &Connection, spelled: &str, _: &str) {
        let name = channel_name(spelled);
        connection.remember(spelled, &name);
        match connection.count_watch(&self.scheme, spelled, &name, None) {
            true => {
                let client = connection.client_id().unwrap_or_default();
                connection.front().channels.came_to_watch(&self.scheme, &client);
            }
            false => {
                connection.front().core.fanout.unsubscribe(&name, connection.id());
            }
        }
    }

    fn recheck(&self, connection: &Arc<Connection>, spelled: &str) {
        let (connection, scheme, spelled) = (connection.clone(), self.scheme.clone(), spelled.to_owned());
        tasks::spawn(async move {
            if !connection.may_watch_plugin(&scheme, &spelled).await {
                connection.handle_unsubscribe(&spelled);
            }
        });
    }

    fn left(&self, connection: &Connection, channel: &str) {
        connection.front().channels.left_plugin_channel(&self.scheme, channel, connection, false);
    }
}

impl Connection {
    /// Clients can invent URIs of a plugin's channel, so their number per client is limited.
    fn may_watch_more(&self, spelled: &str) -> Result<(), RpcError> {
        if spelled.len() > LONGEST {
            return Err(RpcError::invalid_params(format!("a channel's URI has at most {LONGEST} bytes")));
        }
        match self.watches() < MOST_WATCHED {
            true => Ok(()),
            false => Err(RpcError::invalid_params(format!(
                "this connection watches {MOST_WATCHED} channels; unsubscribe from some first"
            ))),
        }
    }

    /// Checks whether the connection can subscribe to a URI of a plugin's channel.
    async fn may_watch_plugin(self: &Arc<Self>, scheme: &str, spelled: &str) -> bool {
        let Some(channel) = self.front().channels.plugin_channel(scheme) else { return false };
        self.front().access.require_named(&self.principal(), &channel.channel.grant).is_ok()
            || self.authorized_for(&channel, spelled).await
    }

    async fn authorized_for(&self, channel: &Owned<SchemeChannel>, spelled: &str) -> bool {
        let uri = channel_name(spelled);
        let authorize = channel.channel.authorize.clone();
        let asked = uri.clone();
        let ask =
            authorize.map(|authorize| move |reader| authorize.within(limit::AUTHORIZE, (asked, reader)));
        self.front().access.authorized(&channel.owner, &uri, &self.principal(), ask).await
    }

    /// It is a subscriber from here on; published actions wait behind the snapshot.
    fn begin_watch(self: &Arc<Self>, watch: Watch) {
        let Watch { channel, spelled, latency, answer } = watch;
        let front = self.front().clone();
        let name = channel_name(&spelled);
        let watched = front.core.fanout.watchers(&name).contains(&self.id());
        let mut subscriber = self.subscriber(&spelled, &name, latency);
        let hold = Backlog::new();
        subscriber.hold = Some(hold.clone());
        let seq = front.core.fanout.subscribe(&name, subscriber);
        let reader = front.access.reader_known(&self.principal());
        let client = self.client_id().unwrap_or_default();
        let (asked, wait) = oneshot::channel();
        let snapshots = channel.channel.snapshot.clone();
        let ask: Begin = {
            let arguments = (name.clone(), reader, client);
            Box::new(move || drop(asked.send(snapshots.within(limit::SNAPSHOT, arguments))))
        };
        // It unsubscribed or disconnected during the check.
        if !self.count_watch(&channel.scheme, &spelled, &name, Some(ask)) {
            front.core.fanout.withdraw(&name, self.id(), &hold);
            return answer.fail(RpcError::invalid_request(format!(
                "the client unsubscribed from {spelled} before it was subscribed"
            )));
        }
        let (connection, scheme) = (self.clone(), channel.scheme.to_ascii_lowercase());
        tasks::spawn(async move {
            let answered = AtomicBool::new(false);
            let state = in_time(limit::SNAPSHOT, async {
                let state = wait.await.map_err(|_| Thrown::new("it could not be asked"))?.await;
                answered.store(true, Ordering::Relaxed);
                state
            });
            let state: Result<Value, Thrown> = state.await;
            let outbox = &connection.outbox;
            match state {
                Ok(state) => {
                    let client = connection.client_id().unwrap_or_default();
                    front.channels.came_to_watch(&scheme, &client);
                    hold.release(outbox, || answer.give(snapshot(&spelled, &state.to_string(), seq)));
                }
                Err(why) => {
                    if why.rpc.is_none() {
                        front.core.report_failed(&channel.owner, &format!("the snapshot of {name}"), &why);
                    }
                    // An earlier subscription remains.
                    if !watched && front.core.fanout.withdraw(&name, connection.id(), &hold) {
                        connection.forget(&spelled);
                        // A plugin that does not answer may still have recorded the client.
                        let threw = answered.into_inner();
                        front.channels.left_plugin_channel(&scheme, &name, &*connection, threw);
                    }
                    hold.release(outbox, || answer.fail(why.into_rpc()));
                }
            }
        });
    }

    /// Counts a subscription that the client still wants.
    fn count_watch(&self, scheme: &str, spelled: &str, name: &str, begin: Option<Begin>) -> bool {
        let Some(client) = self.client_id() else { return false };
        let at = (self.id(), name.to_owned());
        self.while_wanted(spelled, || self.front().channels.begin_to_watch(scheme, &client, at, begin))
    }
}
