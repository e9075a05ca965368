//! The settings of a session's active clients, for its backend.

use std::cmp::Reverse;

use ostler_engine_core::editor_settings::{ClientValues, merged};
use ostler_protocol::JsonObject;
use ostler_protocol::grants::Grant;

use super::SessionEntry;
use crate::Sessions;

impl Sessions {
    /// Returns the settings of a session's active clients, for its backend. Where clients differ, the most restrictive
    /// value applies.
    pub fn client_settings(&self, entry: &SessionEntry) -> JsonObject {
        let active = entry.active_clients();
        let mut connections = self.access.clients.open();
        connections.retain(|connection| active.iter().any(|client| client.is_of(&**connection)));
        connections.sort_by_key(|connection| Reverse(connection.id()));
        let configure = Grant::of("config", "change");
        let values = connections.iter().map(|connection| ClientValues {
            values: self.core.root.own_values(connection.id()),
            client: (connection.owner(), connection.client_id()),
            configures: self.access.gate.require(&connection.principal(), &configure).is_ok(),
        });
        merged(&values.collect::<Vec<_>>())
    }
}
