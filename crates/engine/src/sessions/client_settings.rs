//! The settings of a session's active clients, for its backend.

use ostler_protocol::JsonObject;

use super::Entry;
use crate::core::editor_settings::merged;
use crate::sessions::Sessions;

impl Sessions {
    /// Returns the settings of a session's active clients, for its backend. Where clients differ, the most restrictive
    /// value applies: the lowest level, `false`, and the rules that all of them have.
    pub(crate) fn client_settings(&self, entry: &Entry) -> JsonObject {
        let active = entry.active_clients();
        let connections = self.access.clients.open().into_iter();
        let of_session = connections
            .filter(|connection| connection.client_id().is_some_and(|client| active.contains(&client)));
        merged(of_session.map(|connection| self.core.root.own_values(connection.id())))
    }
}
