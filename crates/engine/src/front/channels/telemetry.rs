//! Logs, spans and measurements of the host.

use std::sync::Arc;

use ostler_engine_core::refusals::no_channel;
use ostler_engine_sessions::Snapshots;
use ostler_protocol::RpcError;

use super::{ChannelKind, Subscribing, require};
use crate::front::Front;
use crate::front::connection::Connection;

/// A telemetry channel. It has no state and no replay, so it is never restored.
pub(super) struct Telemetry;

impl ChannelKind for Telemetry {
    fn may_watch(&self, connection: &Connection) -> Result<(), RpcError> {
        require(connection, "diagnostics", "logs")
    }

    fn resolve(&self, _: &Front, spelled: &str) -> Result<String, RpcError> {
        Err(no_channel(spelled))
    }

    fn subscribe(&self, connection: &Arc<Connection>, subscribing: Subscribing) {
        let front = connection.front();
        let (channel, answer) = (&*subscribing.spelled, subscribing.answer);
        let subscriber = connection.subscriber(channel, channel, None);
        let Some(teller) = front.channels.teller(channel) else {
            return answer.fail(no_channel(channel));
        };
        connection.remember(channel, channel);
        // Other subscribers may exist already; it receives the notifications from now on.
        connection.outbox.hold();
        front.core.fanout.subscribe(channel, subscriber);
        match answer {
            Snapshots::Subscribe(responder) => responder.release("{}"),
            Snapshots::Collect(collect) => {
                drop(collect.send(None));
                connection.outbox.unhold();
            }
        }
        // Only now, because an immediate notification must reach the new subscriber.
        front.channels.begin_telling(channel, teller);
    }

    fn left(&self, connection: &Connection, channel: &str) {
        connection.front().channels.release_telling(channel);
    }
}
