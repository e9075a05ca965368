//! Writes to the session store. A failed write is logged and never ends the session.

use std::time::Duration;

use ahp::reducers::apply_action_to_chat;
use futures::FutureExt as _;
use ostler_contract::points::{KeptChat, KeptTurn, SessionFlags, SessionStore};
use ostler_contract::{Thrown, limit};
use ostler_engine_core::log::Log;
use ostler_engine_core::long_work::{long_work, prompt_work};
use ostler_protocol::wire::actions::{ChatErrorAction, StateAction};
use ostler_protocol::wire::state::{ErrorInfo, ErrorResponsePart, Turn};

use super::actor::Actor;
use super::chat::Chat;
use super::text_length::text_in_turn;

/// The pauses before what could not be stored is written again.
pub(super) const AGAIN: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(2)];

/// The type of the error of a turn that the end of the host broke.
pub(super) const HOST_STOPPED: &str = "hostStopped";

/// Waits for a write. Returns whether it succeeded.
pub(super) async fn kept(
    log: &Log,
    what: &str,
    write: impl Future<Output = Result<(), Thrown>> + Send,
) -> bool {
    let outcome = write.await;
    if let Err(why) = &outcome {
        log.warn(format_args!("{what} could not be stored: {why}"));
    }
    outcome.is_ok()
}

/// Writes to the store. Each function calls the store before it returns, which fixes the order of the writes; the
/// returned future waits for the outcome. Writes that are started together and then awaited together share a commit, so
/// one acknowledged operation costs one commit.
impl Actor {
    pub(super) fn store(&self) -> Option<&SessionStore> {
        self.core.session_store()
    }

    pub(super) fn keeping<W: Future<Output = Result<(), Thrown>> + Send>(
        &self,
        what: &str,
        write: Option<W>,
    ) -> impl Future<Output = bool> + Send + use<W> {
        let (sessions, what) = (self.sessions.clone(), what.to_owned());
        async move {
            match write {
                Some(write) => kept(&sessions.core.log, &what, write).await,
                None => true,
            }
        }
    }

    /// Stores the session's record.
    pub(super) fn keep_session(&self) -> impl Future<Output = bool> + Send + use<> {
        let write = self.store().map(|store| {
            self.entry.set_stored(true);
            store.set_config.within(limit::STORE, (self.entry.id.clone(), self.kept()))
        });
        self.keeping_row(write)
    }

    /// Stores the session's flags.
    pub(super) fn keep_flags(&self, flags: SessionFlags) -> impl Future<Output = bool> + Send + use<> {
        let write =
            self.store().map(|store| store.set_flags.within(limit::STORE, (self.entry.id.clone(), flags)));
        self.keeping_row(write)
    }

    /// Waits for a write of data that listings show, and records a failure.
    fn keeping_row<W: Future<Output = Result<(), Thrown>> + Send>(
        &self,
        write: Option<W>,
    ) -> impl Future<Output = bool> + Send + use<W> {
        let (entry, write) = (self.entry.clone(), self.keeping(&self.entry.uri, write));
        async move {
            let kept = write.await;
            if !kept {
                entry.set_stored(false);
            }
            kept
        }
    }

    /// Stores the data that listings show if the stored version is outdated.
    pub(super) async fn keep_unsaved(&self) {
        if !self.entry.is_stored() {
            let writes = (self.keep_flags(self.flags()), self.keep_session());
            futures::join!(writes.0, writes.1);
        }
    }

    /// Stores the list of chats. The future returns whether the write succeeded.
    pub(super) fn keep_chats(&self) -> impl Future<Output = bool> + Send + use<> {
        let write = self.store().map(|store| {
            let default = self.state.default_chat.as_deref();
            let bytes = self.chats.iter().flat_map(|chat| chat.waiting.values()).sum();
            prompt_work(bytes, || {
                let kept = |chat: &Chat| chat.kept(Some(&*chat.uri) == default, self.lead_uri(chat));
                let mut chats: Vec<_> =
                    self.chats.iter().map(|chat| at_time(kept(chat), chat.listed_at())).collect();
                if self.opening.iter().any(|opening| !opening.kept.is_empty()) {
                    // Until another session has stored them, they stay in the stored list of this one.
                    chats.extend(self.opening.iter().flat_map(|opening| &opening.kept).cloned());
                    let place = |uri: &str| self.state.chats.iter().position(|chat| chat.resource == uri);
                    chats.sort_by_key(|chat| place(&chat.uri).unwrap_or(usize::MAX));
                }
                if let [only] = &mut chats[..] {
                    // Its modification time is that of the session.
                    only.modified_at = None;
                }
                store.set_chats.within(limit::STORE, (self.entry.id.clone(), chats))
            })
        });
        self.keeping(&self.entry.uri, write)
    }

    /// Stores the title of a chat.
    pub(super) fn keep_title(&self, at: usize, title: String) -> impl Future<Output = bool> + Send + use<> {
        let uri = &self.chats[at].uri;
        let write = self.store().map(|store| {
            store.set_chat_title.within(limit::STORE, (self.entry.id.clone(), uri.clone(), Some(title)))
        });
        self.keeping(uri, write)
    }

    /// Stores the turn at index `place` of a chat.
    fn keep_turn(
        &self,
        chat: &Chat,
        place: usize,
        turn: Turn,
        unended: bool,
    ) -> impl Future<Output = bool> + Send + use<> {
        let set_turn = self.core.turn_store().and_then(|store| store.set_turn.as_ref());
        let write = set_turn.map(|set_turn| {
            let kept = chat.kept_turn(turn, chat.sender.clone());
            let charged_usage = chat.charged.as_deref().filter(|_| unended).cloned();
            let turn = KeptTurn { unended, charged_usage, broken: kept.broken && !unended, ..kept };
            prompt_work(text_in_turn(&turn.turn.message, &turn.turn.response_parts), || {
                set_turn.within(limit::STORE, (self.entry.id.clone(), chat.uri.clone(), place as u64, turn))
            })
        });
        chat.end.written(self.keeping(&chat.uri, write))
    }

    /// Stores a turn that has ended, with the backend's name of it.
    pub(super) fn keep_named_turn(
        &self,
        at: usize,
        place: usize,
    ) -> impl Future<Output = bool> + Send + use<> {
        let chat = &self.chats[at];
        let set_turn = self.core.turn_store().and_then(|store| store.set_turn.as_ref());
        let turn = &chat.state.turns[place];
        let sender = super::senders::sender_of(&turn.message);
        let write = set_turn.map(|set_turn| {
            let turn = chat.kept_turn(turn.clone(), sender);
            set_turn.within(limit::STORE, (self.entry.id.clone(), chat.uri.clone(), place as u64, turn))
        });
        self.keeping(&chat.uri, write)
    }

    /// Stores all turns of a chat. The future returns whether the writes succeeded.
    pub(super) fn keep_turns(&self, at: usize) -> impl Future<Output = bool> + Send + use<> {
        let places = 0..self.chats[at].state.turns.len();
        let writes: Vec<_> = places.map(|place| self.keep_named_turn(at, place)).collect();
        async move { futures::future::join_all(writes).await.into_iter().all(|kept| kept) }
    }

    /// Stores all turns of all chats. The future returns whether the writes succeeded.
    pub(super) fn keep_all_turns(&self) -> impl Future<Output = bool> + Send + use<> {
        let writes: Vec<_> = (0..self.chats.len()).map(|at| self.keep_turns(at)).collect();
        async move { futures::future::join_all(writes).await.into_iter().all(|kept| kept) }
    }

    /// Stores the chats that are new to the session, the last ones: their turns first, so that a stored chat is complete.
    pub(super) async fn keep_added(&mut self, first: usize) -> bool {
        for at in first..self.chats.len() {
            self.stored_or_not(self.forget_turns(&self.chats[at].uri)).await;
            if !self.stored_or_not(self.keep_turns(at)).await {
                return false;
            }
        }
        self.stored_or_not(self.keep_chats()).await
    }

    /// Stores the latest finished turn of a chat.
    pub(super) fn keep_last_turn(&self, chat: usize) -> impl Future<Output = bool> + Send + use<> {
        let chat = &self.chats[chat];
        let last = chat.state.turns.last().cloned();
        let again = last.as_ref().filter(|_| self.core.cluster().is_some()).cloned();
        let again = again.map(|turn| self.keep_turn_again(chat, chat.state.turns.len() - 1, turn));
        let kept = last.map(|turn| self.keep_turn(chat, chat.state.turns.len() - 1, turn, false));
        async move {
            match (kept, again) {
                (Some(kept), Some(again)) => kept.await || again.await,
                (Some(kept), None) => kept.await,
                (None, _) => true,
            }
        }
    }

    /// Repeats the write of a turn that has ended, so that a database that is slow for a short time costs no turn. The turn has no
    /// later write until then.
    fn keep_turn_again(
        &self,
        chat: &Chat,
        place: usize,
        turn: Turn,
    ) -> impl Future<Output = bool> + Send + use<> {
        let set_turn = self.core.turn_store().and_then(|store| store.set_turn.clone());
        let turn = chat.kept_turn(turn, chat.sender.clone());
        let (core, uri) = (self.core.clone(), chat.uri.clone());
        let stored = (self.entry.id.clone(), uri.clone(), place as u64, turn);
        async move {
            let Some(set_turn) = set_turn else { return false };
            for pause in AGAIN {
                tokio::time::sleep(pause).await;
                if core.lost_lease().is_some() {
                    return false;
                }
                if kept(&core.log, &uri, set_turn.within(limit::STORE, stored.clone())).await {
                    return true;
                }
            }
            false
        }
    }

    /// Stores the running turn in its current state. After a crash it is a failed turn; if the end of the host breaks it, it
    /// runs no more.
    pub(super) fn keep_running_turn(&mut self, chat: usize) -> impl Future<Output = bool> + Send + use<> {
        let duration = self.duration(chat);
        let running = self.chats[chat].as_if_failed(duration);
        let kept = running.map(|turn| {
            let place = self.chats[chat].state.turns.len();
            self.chats[chat].kept_at = tokio::time::Instant::now();
            self.chats[chat].unkept = false;
            self.keep_turn(&self.chats[chat], place, turn, !self.chats[chat].is_broken)
        });
        async move {
            match kept {
                Some(kept) => kept.await,
                None => true,
            }
        }
    }

    /// Stores the last turn of each chat where it is not stored, and that no others follow it. All earlier ones were stored when
    /// they ended.
    pub(super) fn keep_ends_of_chats(&mut self) -> impl Future<Output = bool> + Send + use<> {
        let mut writes = Vec::new();
        for at in 0..self.chats.len() {
            let is_running = self.chats[at].state.active_turn.is_some();
            if !is_running && self.chats[at].end.is_stored() {
                continue;
            }
            let turn = match is_running {
                true => self.keep_running_turn(at).boxed(),
                false => self.keep_last_turn(at).boxed(),
            };
            let chat = &self.chats[at];
            let count = chat.state.turns.len() + usize::from(is_running);
            let both = futures::future::join(turn, self.drop_turns_of(&chat.uri, count));
            writes.push(chat.end.written(both.map(|(turn, rest)| turn && rest)));
        }
        async move { futures::future::join_all(writes).await.into_iter().all(|stored| stored) }
    }

    /// Stores everything of the session but its turns.
    pub(super) fn keep_all_but_turns(&self) -> impl Future<Output = bool> + Send + use<> {
        let flags = self.keep_flags(self.flags());
        let writes = futures::future::join3(flags, self.keep_session(), self.keep_chats());
        async move { writes.await == (true, true, true) }
    }

    /// Deletes all turns of a chat.
    pub(super) fn forget_turns(&self, uri: &str) -> impl Future<Output = bool> + Send + use<> {
        self.drop_turns_of(uri, 0)
    }

    /// Deletes the turns of a chat from index `place` on.
    pub(super) fn drop_turns(&self, chat: usize, place: usize) -> impl Future<Output = bool> + Send + use<> {
        // A message that is stored as starting would be queued again once its turn is deleted, so the chats are stored
        // too.
        let chats = self.keep_chats();
        let chat = &self.chats[chat];
        let turns = chat.end.written(self.drop_turns_of(&chat.uri, place));
        async move { futures::join!(chats, turns).1 }
    }

    fn drop_turns_of(&self, uri: &str, place: usize) -> impl Future<Output = bool> + Send + use<> {
        let drop_turns = self.core.turn_store().and_then(|store| store.drop_turns.as_ref());
        let write = drop_turns.map(|drop_turns| {
            drop_turns.within(limit::STORE, (self.entry.id.clone(), uri.to_owned(), place as u64))
        });
        self.keeping(uri, write)
    }
}

/// Returns a stored chat with its modification time.
pub(super) fn at_time(kept: KeptChat, at: &str) -> KeptChat {
    KeptChat { modified_at: Some(at.to_owned()), ..kept }
}

impl Chat {
    /// Returns the form of the running turn that is stored in case the host stops: as if it failed now.
    pub(super) fn as_if_failed(&mut self, duration: i64) -> Option<Turn> {
        let running = self.state.active_turn.as_ref()?;
        let (turn_id, text) = (running.id.clone(), text_in_turn(&running.message, &running.response_parts));
        let failed = ChatErrorAction {
            turn_id,
            duration,
            part: ErrorResponsePart {
                error: ErrorInfo {
                    error_type: HOST_STOPPED.to_owned(),
                    message: "the host stopped while this turn was running".to_owned(),
                    stack: None,
                    meta: None,
                },
                resumable: (self.resumes && self.is_given).then_some(true),
            },
            meta: None,
        };
        let turns = std::mem::take(&mut self.state.turns);
        let mut state = long_work(text, || self.state.clone());
        self.state.turns = turns;
        let _ = apply_action_to_chat(&mut state, &StateAction::ChatError(failed));
        state.turns.pop()
    }
}
