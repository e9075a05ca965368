//! The catalogue of automations.

use std::sync::Arc;

use ostler_engine_core::fanout::rejection;
use ostler_engine_core::refusals::no_automations;
use ostler_engine_core::tasks;
use ostler_protocol::{RpcError, uri};

use super::{COPIES, ChannelKind, Dispatched, Subscribing, begin, require};
use crate::front::Front;
use crate::front::connection::Connection;

pub(super) struct Catalogue;

impl ChannelKind for Catalogue {
    fn may_watch(&self, connection: &Connection) -> Result<(), RpcError> {
        require(connection, "automation", "list")
    }

    fn resolve(&self, front: &Front, _: &str) -> Result<String, RpcError> {
        match front.core.automation_store() {
            Some(_) => Ok(uri::AUTOMATIONS.to_owned()),
            None => Err(no_automations()),
        }
    }

    fn subscribe(&self, connection: &Arc<Connection>, subscribing: Subscribing) {
        let front = connection.front();
        match self.resolve(front, &subscribing.spelled) {
            Ok(name) => begin(connection, &name, subscribing, |subscriber| {
                Ok(front.automations.subscribe(&front.core.fanout, subscriber))
            }),
            Err(error) => subscribing.answer.fail(error),
        }
    }

    fn dispatch(&self, connection: &Arc<Connection>, dispatched: Dispatched<'_>) -> Result<(), String> {
        act(connection, &dispatched);
        Ok(())
    }
}

/// Handles an action on an automation on a separate task, because its store can take long.
pub(super) fn act(connection: &Arc<Connection>, dispatched: &Dispatched<'_>) {
    let (front, by) = (connection.front().clone(), connection.principal());
    let (outbox, spelled) = (connection.outbox.clone(), dispatched.spelled.to_owned());
    let (action, origin) = (dispatched.action.clone(), dispatched.origin.clone());
    let charge = connection.charge_copies(dispatched.length, COPIES);
    tasks::spawn(async move {
        let _charge = charge;
        if let Err(why) = front.automations.automation_action(&action, origin.clone(), &by).await {
            let seq = front.core.fanout.seq();
            outbox.send(rejection(&spelled, &action.to_string(), seq, &origin, why));
        }
    });
}
