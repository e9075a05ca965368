//! The settings of a session's active clients, for its backend.

use ostler_protocol::JsonObject;
use ostler_protocol::grants::Grant;

use super::Entry;
use crate::core::editor_settings::{ClientValues, merged};
use crate::sessions::Sessions;

impl Sessions {
    /// Returns the settings of a session's active clients, for its backend. Where clients differ, the most restrictive
    /// value applies.
    pub(crate) fn client_settings(&self, entry: &Entry) -> JsonObject {
        let active = entry.active_clients();
        let connections = self.access.clients.open().into_iter();
        let of_session = connections
            .filter(|connection| connection.client_id().is_some_and(|client| active.contains(&client)));
        let configure = Grant::of("config", "change");
        let values = of_session.map(|connection| ClientValues {
            values: self.core.root.own_values(connection.id()),
            configures: self.access.gate.require(&connection.principal(), &configure).is_ok(),
        });
        merged(&values.collect::<Vec<_>>())
    }
}
