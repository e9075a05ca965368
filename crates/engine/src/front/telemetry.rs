//! Subscriptions to telemetry channels.

use std::sync::Arc;

use crate::core::refusals::no_channel;
use crate::front::connection::Connection;
use crate::sessions::Snapshots;

impl Connection {
    /// Subscribes to a telemetry channel. It has no state, and nothing of the past is told.
    pub(crate) fn subscribe_telemetry(self: &Arc<Self>, channel: &str, answer: Snapshots) {
        let front = self.front();
        let subscriber = self.subscriber(channel, channel, None);
        let Some(teller) = front.channels.teller(channel) else {
            return answer.fail(no_channel(channel));
        };
        self.remember(channel, channel);
        front.core.fanout.subscribe(channel, subscriber);
        match answer {
            Snapshots::Subscribe(responder) => responder.raw("{}"),
            Snapshots::Collect(collect) => drop(collect.send(None)),
        }
        // Only now: what is told at once has to find who asked.
        front.channels.begin_telling(channel, teller);
    }
}
