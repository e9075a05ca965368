//! A terminal.

use std::sync::Arc;

use ostler_engine_workspace::terminals::no_terminal;
use ostler_protocol::RpcError;

use super::{ChannelKind, Dispatched, Subscribing, begin, require};
use crate::front::Front;
use crate::front::connection::Connection;

/// A terminal, by its URI.
pub(super) struct Terminal(pub String);

impl ChannelKind for Terminal {
    fn may_watch(&self, connection: &Connection) -> Result<(), RpcError> {
        require(connection, "terminal", "output")
    }

    fn resolve(&self, front: &Front, _: &str) -> Result<String, RpcError> {
        match front.workspace.terminals.get(&self.0) {
            Some(_) => Ok(self.0.clone()),
            None => Err(no_terminal(&self.0)),
        }
    }

    fn subscribe(&self, connection: &Arc<Connection>, subscribing: Subscribing) {
        let workspace = &connection.front().workspace;
        match workspace.terminals.get(&self.0) {
            Some(open) => begin(connection, &self.0, subscribing, |subscriber| {
                open.subscribe(workspace, subscriber).ok_or_else(|| no_terminal(&self.0))
            }),
            None => subscribing.answer.fail(no_terminal(&self.0)),
        }
    }

    fn dispatch(&self, connection: &Arc<Connection>, dispatched: Dispatched<'_>) -> Result<(), String> {
        let Dispatched { row, action, origin, .. } = dispatched;
        connection.front().workspace.terminal_action(&self.0, row, action, origin.clone())
    }
}
