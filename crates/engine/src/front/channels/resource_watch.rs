//! Resource watches.

use std::sync::Arc;

use ostler_engine_core::refusals::no_channel;
use ostler_protocol::{RpcError, uri};

use super::{ChannelKind, Subscribing, begin};
use crate::front::Front;
use crate::front::connection::Connection;

/// A resource watch, by its id.
pub(super) struct Watch(pub String);

impl ChannelKind for Watch {
    fn may_watch(&self, connection: &Connection) -> Result<(), RpcError> {
        connection.front().resources.may_watch(&uri::resource_watch(&self.0), &connection.principal())
    }

    fn resolve(&self, front: &Front, spelled: &str) -> Result<String, RpcError> {
        match front.resources.watched(spelled) {
            Some(_) => Ok(spelled.to_owned()),
            None => Err(no_channel(spelled)),
        }
    }

    fn subscribe(&self, connection: &Arc<Connection>, subscribing: Subscribing) {
        let front = connection.front();
        let spelled = subscribing.spelled.clone();
        match front.resources.watched(&spelled) {
            Some(state) => begin(connection, &spelled, subscribing, |subscriber| {
                let text = serde_json::to_string(&state).unwrap_or_else(|_| "{}".to_owned());
                Ok((text, front.core.fanout.subscribe(&spelled, subscriber)))
            }),
            None => subscribing.answer.fail(no_channel(&spelled)),
        }
    }

    fn left(&self, connection: &Connection, channel: &str) {
        connection.front().resources.release_watch(channel);
    }
}
