//! Writing to the session store: a store that fails costs a log line, never the session.

use std::time::Duration;

use ostler_contract::points::{KeptTurn, SessionStore};
use ostler_contract::{Pending, Thrown};
use ostler_protocol::wire::state::{ActiveTurn, ErrorInfo, ErrorResponsePart, ResponsePart, Turn, TurnState};

use super::actor::Actor;
use super::chat::Chat;
use crate::log::Log;

/// How long a store may take before the session goes on without it.
const LIMIT: Duration = Duration::from_secs(10);

/// Waits for a write; answers whether it was kept.
pub(super) async fn kept(log: &Log, what: &str, write: Pending<()>) -> bool {
    let outcome = match tokio::time::timeout(LIMIT, write).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Thrown::new(format_args!("no answer within {} seconds", LIMIT.as_secs()))),
    };
    if let Err(why) = &outcome {
        log.line(format_args!("{what} could not be kept: {why}"));
    }
    outcome.is_ok()
}

impl Actor {
    pub(super) fn store(&self) -> Option<&SessionStore> {
        self.host.session_store()
    }

    /// Keeps who the session is and how it is set up.
    pub(super) async fn keep_session(&self) {
        let Some(store) = self.store() else { return };
        let row = self.entry.row.lock().clone();
        kept(&self.host.log, &self.entry.uri, store.set_config.call((self.entry.id.clone(), row.kept))).await;
    }

    /// Keeps the session's marks.
    pub(super) async fn keep_flags(&self) {
        let Some(store) = self.store() else { return };
        let flags = self.entry.row.lock().flags;
        kept(&self.host.log, &self.entry.uri, store.set_flags.call((self.entry.id.clone(), flags))).await;
    }

    /// Keeps which chats there are; answers whether they are.
    pub(super) async fn keep_chats(&self) -> bool {
        let Some(store) = self.store() else { return true };
        let default = self.state.default_chat.as_deref();
        let chats = self
            .chats
            .iter()
            .filter(|chat| !chat.is_worker())
            .map(|chat| chat.kept(Some(&*chat.uri) == default))
            .collect();
        kept(&self.host.log, &self.entry.uri, store.set_chats.call((self.entry.id.clone(), chats))).await
    }

    /// Keeps the turn at `place` of a chat.
    async fn keep_turn(&self, chat: &Chat, place: usize, turn: Turn) {
        let Some(set_turn) = self.host.turn_store().and_then(|store| store.set_turn.as_ref()) else { return };
        if chat.is_worker() {
            return;
        }
        let turn = KeptTurn { turn, sender: chat.sender.clone(), transcript_id: chat.transcript_id.clone() };
        let write = set_turn.call((self.entry.id.clone(), chat.uri.clone(), place as u64, turn));
        kept(&self.host.log, &chat.uri, write).await;
    }

    /// Keeps every turn a chat has; answers whether they are.
    pub(super) async fn keep_turns(&self, at: usize) -> bool {
        let Some(set_turn) = self.host.turn_store().and_then(|store| store.set_turn.as_ref()) else {
            return true;
        };
        let chat = &self.chats[at];
        let writes = chat.state.turns.iter().enumerate().map(|(place, turn)| {
            let sender = super::turns::sender_of(&turn.message);
            let turn = KeptTurn { turn: turn.clone(), sender, transcript_id: None };
            let write = set_turn.call((self.entry.id.clone(), chat.uri.clone(), place as u64, turn));
            kept(&self.host.log, &chat.uri, write)
        });
        futures::future::join_all(writes).await.into_iter().all(|kept| kept)
    }

    /// Keeps the latest finished turn of a chat.
    pub(super) async fn keep_last_turn(&self, chat: usize) {
        let chat = &self.chats[chat];
        if let Some(turn) = chat.state.turns.last().cloned() {
            self.keep_turn(chat, chat.state.turns.len() - 1, turn).await;
        }
    }

    /// Keeps the running turn as far as it has come. A crash leaves it as a turn that failed.
    pub(super) async fn keep_running_turn(&mut self, chat: usize) {
        self.keep_first_turn(chat, false).await;
    }

    /// Keeps the running turn, with the session's record where it is a session's first; both writes share one commit.
    pub(super) async fn keep_first_turn(&mut self, chat: usize, first: bool) {
        let record = async {
            if first {
                self.keep_session().await;
            }
        };
        let turn = async {
            if let Some(active) = &self.chats[chat].state.active_turn {
                let place = self.chats[chat].state.turns.len();
                self.keep_turn(&self.chats[chat], place, as_if_failed(active)).await;
            }
        };
        futures::join!(record, turn);
        self.chats[chat].kept_at = tokio::time::Instant::now();
        self.chats[chat].unkept = false;
    }

    /// Forgets every turn of a chat.
    pub(super) async fn forget_turns(&self, uri: &str) {
        self.drop_turns_of(uri, 0).await;
    }

    /// Forgets the turns of a chat from `place` on.
    pub(super) async fn drop_turns(&self, chat: usize, place: usize) {
        self.drop_turns_of(&self.chats[chat].uri, place).await;
    }

    async fn drop_turns_of(&self, uri: &str, place: usize) {
        let Some(drop_turns) = self.host.turn_store().and_then(|store| store.drop_turns.as_ref()) else {
            return;
        };
        let uri = uri.to_owned();
        let write = drop_turns.call((self.entry.id.clone(), uri.clone(), place as u64));
        kept(&self.host.log, &uri, write).await;
    }
}

/// What a running turn is if the host goes down now.
fn as_if_failed(active: &ActiveTurn) -> Turn {
    let mut response_parts = active.response_parts.clone();
    response_parts.push(ResponsePart::Error(ErrorResponsePart {
        error: ErrorInfo {
            error_type: "hostStopped".to_owned(),
            message: "the host stopped while this turn was running".to_owned(),
            stack: None,
            meta: None,
        },
        resumable: None,
    }));
    Turn {
        id: active.id.clone(),
        started_at: Some(active.started_at.clone()),
        duration: None,
        message: active.message.clone(),
        response_parts,
        usage: active.usage.clone(),
        state: TurnState::Error,
    }
}
