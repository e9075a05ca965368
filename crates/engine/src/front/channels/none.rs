//! URIs that are not channels of this host.

use std::sync::Arc;

use ostler_engine_core::refusals::no_channel;
use ostler_protocol::RpcError;

use super::{ChannelKind, Subscribing};
use crate::front::Front;
use crate::front::connection::Connection;

pub(super) struct NoChannel;

impl ChannelKind for NoChannel {
    fn may_watch(&self, _: &Connection) -> Result<(), RpcError> {
        // No grant is checked; the subscription returns the error.
        Ok(())
    }

    fn resolve(&self, _: &Front, spelled: &str) -> Result<String, RpcError> {
        Err(no_channel(spelled))
    }

    fn subscribe(&self, _: &Arc<Connection>, subscribing: Subscribing) {
        subscribing.answer.fail(no_channel(&subscribing.spelled));
    }
}
