//! Snapshots of a session and its chats.

use std::borrow::Cow;

use ostler_contract::events::Event;
use ostler_engine_core::fanout::Subscriber;
use ostler_engine_core::long_work::long_work;
use ostler_engine_core::refusals::nothing_at;
use ostler_protocol::Version;
use ostler_protocol::wire::state::ChatState;

use super::Place;
use super::actor::Actor;
use super::mailbox::Subscription;
use super::pages::cursor;

impl Actor {
    /// Answers a subscription with a snapshot; the subscriber then receives the actions after it. A large snapshot is
    /// encoded once, directly into the memory that was reserved for it.
    pub(super) async fn handle_subscribe(&mut self, subscription: Subscription) {
        let Subscription { spelled, place, subscriber, turns, client, answer, room } = subscription;
        let large = self.core.large_answers.clone();
        let _turn = match &room {
            Some(_) => large.acquire().await.ok(),
            None => None,
        };
        for at in 0..self.chats.len() {
            self.flush_gathered(at);
        }
        self.settle();
        // The snapshot has the old title while a new one is being stored.
        let title = self.storing.title.take().map(|title| std::mem::replace(&mut self.state.title, title));
        if place == Place::Session {
            self.core.events.raise(Event::SessionOpened { session: self.entry.uri.clone(), client });
        }
        let length = self.snapshot_length(&place, turns);
        let mut text = match &room {
            Some(_) => answer.begin(length + 2 * spelled.len()),
            None => String::new(),
        };
        begin_snapshot(&mut text, &spelled);
        let written = long_work(length, || self.write_state(text, &place, &spelled, turns, &subscriber));
        if let Some(title) = title {
            self.storing.title = Some(std::mem::replace(&mut self.state.title, title));
        }
        let Some((channel, mut text)) = written else {
            answer.fail(nothing_at(&spelled));
            return;
        };
        let connection = subscriber.connection;
        let seq = self.core.fanout.subscribe(&channel, subscriber);
        end_snapshot(&mut text, seq);
        match room {
            Some(charge) => answer.end(text, charge),
            None => answer.give(text),
        }
        // A subscription that ended in the meantime would otherwise never be removed.
        let client = self.sessions.access.clients.get(connection);
        if !client.is_some_and(|client| client.wants(&spelled)) {
            self.core.fanout.unsubscribe(&channel, connection);
        } else if place == Place::Session {
            self.sessions.workspace.session_is_watched(self.entry.clone());
        }
    }

    /// Returns the estimated length of the state at a place as JSON.
    pub(super) fn snapshot_length(&mut self, place: &Place, newest: Option<usize>) -> usize {
        match place {
            Place::Session => self.memory.size.at_most(&self.state).text,
            Place::Annotations => self.memory.annotations,
            _ => match self.chat_at(place) {
                Some(at) => self.chats[at].length(newest),
                None => 0,
            },
        }
    }

    /// Appends the state at a place to a text, as a subscriber receives it. Also returns the channel's name.
    fn write_state(
        &mut self,
        mut text: String,
        place: &Place,
        spelled: &str,
        turns: Option<usize>,
        subscriber: &Subscriber,
    ) -> Option<(String, String)> {
        if *place == Place::Session {
            let now = self.status_now();
            let status = std::mem::replace(&mut self.state.status, now);
            let state = self.shared.encode(&mut self.state, subscriber.version);
            self.state.status = status;
            text.push_str(&state?);
            return Some((self.entry.uri.clone(), text));
        }
        let at = self.chat_at(place)?;
        let text = self.write_chat(text, at, spelled, turns, subscriber.version)?;
        Some((self.chats[at].uri.clone(), text))
    }

    /// Appends a chat's state in a version's form; if the client wants only the newest turns, the older ones are
    /// omitted.
    fn write_chat(
        &mut self,
        text: String,
        at: usize,
        spelled: &str,
        newest: Option<usize>,
        version: Version,
    ) -> Option<String> {
        let chat = &mut self.chats[at];
        let all = chat.stored_turns().len();
        let left_out = newest.and_then(|newest| all.checked_sub(newest)).unwrap_or_default();
        let is_plain = chat.unstored.is_none() && left_out == 0 && version > Version::V0_9;
        let state = match is_plain && spelled == chat.state.resource {
            true => Cow::Borrowed(&chat.state),
            false => {
                let mut seen = chat.without_turns();
                seen.turns = chat.state.turns[left_out..all].to_vec();
                seen.resource = spelled.to_owned();
                if left_out > 0 {
                    seen.turns_next_cursor = Some(cursor(left_out));
                }
                if version == Version::V0_9 {
                    seen = super::client_versions::chat(seen);
                }
                Cow::<ChatState>::Owned(seen)
            }
        };
        let mut text = text.into_bytes();
        serde_json::to_writer(&mut text, &*state).ok()?;
        String::from_utf8(text).ok()
    }
}

fn begin_snapshot(text: &mut String, spelled: &str) {
    text.push_str(r#"{"resource":"#);
    text.push_str(&ostler_protocol::Value::from(spelled).to_string());
    text.push_str(r#","state":"#);
}

fn end_snapshot(text: &mut String, seq: u64) {
    use std::fmt::Write as _;
    let _ = write!(text, r#","fromSeq":{seq}}}"#);
}

/// Returns `{ resource, state, fromSeq }` for a state that is already JSON.
pub fn snapshot(spelled: &str, state: &str, seq: u64) -> String {
    let mut text = String::with_capacity(state.len() + spelled.len() + 64);
    begin_snapshot(&mut text, spelled);
    text.push_str(state);
    end_snapshot(&mut text, seq);
    text
}
