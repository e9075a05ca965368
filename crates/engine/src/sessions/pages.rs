//! The turns of a chat, page by page: the oldest are left out of a snapshot and fetched later.

use ostler_protocol::RpcError;
use ostler_protocol::wire::actions::{ChatTurnsLoadedAction, StateAction};

use super::Place;
use super::actor::Actor;
use crate::core::refusals::nothing_at;
use crate::core::responder::{ConnectionRef, Responder};

/// How many older turns a fetch loads.
const PAGE: usize = 50;

impl Actor {
    /// Loads older turns for one client: the turns first, then the answer.
    pub(super) fn fetch_turns(
        &mut self,
        spelled: &str,
        place: &Place,
        from: Option<&str>,
        connection: &ConnectionRef,
        responder: Responder,
    ) {
        let Some(at) = self.chat_at(place) else {
            return responder.fail(nothing_at(spelled));
        };
        let turns = self.chats[at].stored_turns();
        let before = match from {
            None => turns.len().saturating_sub(PAGE),
            Some(text) => match read_cursor(text).filter(|&before| before <= turns.len()) {
                Some(before) => before,
                None => return responder.fail(RpcError::unrecognised_cursor(text)),
            },
        };
        let start = before.saturating_sub(PAGE);
        let action = StateAction::ChatTurnsLoaded(ChatTurnsLoadedAction {
            turns: turns[start..before].to_vec(),
            turns_next_cursor: (start > 0).then(|| cursor(start)),
        });
        self.flush_out();
        if let Ok(text) = serde_json::to_string(&action) {
            self.core.fanout.publish_to(&self.chats[at].uri, connection.id, text);
        }
        responder.raw("{}");
    }
}

/// Where older turns begin: an opaque word to clients.
pub(super) fn cursor(before: usize) -> String {
    format!("turn-{before}")
}

/// Reads a [`cursor`].
fn read_cursor(cursor: &str) -> Option<usize> {
    cursor.strip_prefix("turn-")?.parse().ok()
}
