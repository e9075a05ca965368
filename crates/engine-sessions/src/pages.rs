//! Paging of a chat's turns: the oldest are omitted from a snapshot and fetched later.

use ostler_contract::Charge;
use ostler_engine_core::long_work::long_work;
use ostler_engine_core::refusals::nothing_at;
use ostler_engine_core::responder::{ConnectionRef, Responder};
use ostler_protocol::RpcError;
use ostler_protocol::wire::actions::{ChatTurnsLoadedAction, StateAction};

use super::Place;
use super::actor::Actor;

/// Number of older turns that one fetch loads.
pub(super) const PAGE: usize = 50;

/// The turns that a client asks for.
pub(super) struct Asked<'a> {
    /// The chat's URI as the client spelled it.
    pub spelled: &'a str,
    /// The chat.
    pub place: &'a Place,
    /// The cursor of the previous page.
    pub from: Option<&'a str>,
}

impl Actor {
    /// Loads older turns for one client: the turns are sent first, then the answer.
    pub(super) async fn fetch_turns(
        &mut self,
        asked: Asked<'_>,
        connection: &ConnectionRef,
        responder: Responder,
        room: Option<Charge>,
    ) {
        let Asked { spelled, place, from } = asked;
        let large = self.core.large_answers.clone();
        let _turn = match &room {
            Some(_) => large.acquire().await.ok(),
            None => None,
        };
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
        let (channel, client) = (self.chats[at].uri.clone(), connection.id);
        // Only a subscriber of the chat receives the page.
        if self.core.fanout.is_watched_by(&channel, client) {
            let text = long_work(self.chats[at].page_length(before - start), || {
                let action = StateAction::ChatTurnsLoaded(ChatTurnsLoadedAction {
                    turns: turns[start..before].to_vec(),
                    turns_next_cursor: (start > 0).then(|| cursor(start)),
                });
                serde_json::to_string(&action)
            });
            self.flush_out();
            if let Ok(text) = text {
                self.core.fanout.publish_to(&channel, client, &text, room);
            }
        }
        responder.raw("{}");
    }
}

/// Returns the cursor for the turns before an index; it is opaque to clients.
pub(super) fn cursor(before: usize) -> String {
    format!("turn-{before}")
}

/// Parses a [`cursor`].
fn read_cursor(cursor: &str) -> Option<usize> {
    cursor.strip_prefix("turn-")?.parse().ok()
}
