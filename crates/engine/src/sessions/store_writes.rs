//! Writing to the session store: a store that fails costs a log line, never the session.

use ostler_contract::points::{KeptChat, KeptTurn, SessionFlags, SessionStore};
use ostler_contract::{Thrown, limit};
use ostler_protocol::wire::state::{ActiveTurn, ErrorInfo, ErrorResponsePart, ResponsePart, Turn, TurnState};

use super::actor::Actor;
use super::chat::Chat;
use crate::core::log::Log;
use crate::core::long_work::long_work;

/// Waits for a write; answers whether it was kept.
pub(super) async fn kept(
    log: &Log,
    what: &str,
    write: impl Future<Output = Result<(), Thrown>> + Send,
) -> bool {
    let outcome = write.await;
    if let Err(why) = &outcome {
        log.line(format_args!("{what} could not be stored: {why}"));
    }
    outcome.is_ok()
}

/// Writes to the store. Each function calls the store before it returns, which fixes the write's place among
/// others; the future it returns waits for the outcome. Writes that are started together and then awaited
/// together share a commit, so one acknowledged operation costs one.
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

    /// Keeps who the session is and how it is set up.
    pub(super) fn keep_session(&self) -> impl Future<Output = bool> + Send + use<> {
        let write = self.store().map(|store| {
            self.entry.set_stored(true);
            store.set_config.within(limit::STORE, (self.entry.id.clone(), self.kept()))
        });
        self.keeping_row(write)
    }

    /// Keeps the session's marks.
    pub(super) fn keep_flags(&self, flags: SessionFlags) -> impl Future<Output = bool> + Send + use<> {
        let write =
            self.store().map(|store| store.set_flags.within(limit::STORE, (self.entry.id.clone(), flags)));
        self.keeping_row(write)
    }

    /// Waits for a write of what listings show, and notes where the store does not have it.
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

    /// Keeps what listings show, where the store has it otherwise.
    pub(super) async fn keep_unsaved(&self) {
        if !self.entry.is_stored() {
            let writes = (self.keep_flags(self.flags()), self.keep_session());
            futures::join!(writes.0, writes.1);
        }
    }

    /// Keeps which chats there are; answers whether they are.
    pub(super) fn keep_chats(&self) -> impl Future<Output = bool> + Send + use<> {
        let write = self.store().map(|store| {
            let default = self.state.default_chat.as_deref();
            let own = self.chats.iter().filter(|chat| !chat.is_worker());
            let bytes = self.chats.iter().flat_map(|chat| chat.waiting.values()).sum();
            long_work(bytes, || {
                let own = own.map(|chat| (chat.kept(Some(&*chat.uri) == default), chat.listed_at()));
                let mut chats: Vec<_> = own.map(|(kept, at)| at_time(kept, at)).collect();
                if self.opening.iter().any(|opening| !opening.kept.is_empty()) {
                    // Until another session has them, they are stored where they were.
                    chats.extend(self.opening.iter().flat_map(|opening| &opening.kept).cloned());
                    let place = |uri: &str| self.state.chats.iter().position(|chat| chat.resource == uri);
                    chats.sort_by_key(|chat| place(&chat.uri).unwrap_or(usize::MAX));
                }
                if let [only] = &mut chats[..] {
                    // It changed when its session did.
                    only.modified_at = None;
                }
                store.set_chats.within(limit::STORE, (self.entry.id.clone(), chats))
            })
        });
        self.keeping(&self.entry.uri, write)
    }

    /// Keeps the title of a chat.
    pub(super) fn keep_title(&self, at: usize, title: String) -> impl Future<Output = bool> + Send + use<> {
        let uri = &self.chats[at].uri;
        let write = self.store().map(|store| {
            store.set_chat_title.within(limit::STORE, (self.entry.id.clone(), uri.clone(), Some(title)))
        });
        self.keeping(uri, write)
    }

    /// Keeps the turn at `place` of a chat.
    fn keep_turn(&self, chat: &Chat, place: usize, turn: Turn) -> impl Future<Output = bool> + Send + use<> {
        let set_turn = self.core.turn_store().and_then(|store| store.set_turn.as_ref());
        let write = set_turn.filter(|_| !chat.is_worker()).map(|set_turn| {
            let turn =
                KeptTurn { turn, sender: chat.sender.clone(), transcript_id: chat.transcript_id.clone() };
            long_work(text_of(&turn.turn), || {
                set_turn.within(limit::STORE, (self.entry.id.clone(), chat.uri.clone(), place as u64, turn))
            })
        });
        self.keeping(&chat.uri, write)
    }

    /// Keeps every turn a chat has; answers whether they are.
    pub(super) fn keep_turns(&self, at: usize) -> impl Future<Output = bool> + Send + use<> {
        let set_turn = self.core.turn_store().and_then(|store| store.set_turn.as_ref());
        let chat = &self.chats[at];
        let write = |(place, turn): (usize, &Turn)| {
            let sender = super::turns::sender_of(&turn.message);
            let turn = KeptTurn { turn: turn.clone(), sender, transcript_id: None };
            let stored = (self.entry.id.clone(), chat.uri.clone(), place as u64, turn);
            self.keeping(&chat.uri, set_turn.map(|set_turn| set_turn.within(limit::STORE, stored)))
        };
        let writes: Vec<_> = match set_turn {
            Some(_) => chat.state.turns.iter().enumerate().map(write).collect(),
            None => Vec::new(),
        };
        async move { futures::future::join_all(writes).await.into_iter().all(|kept| kept) }
    }

    /// Keeps a chat that is new to the session: its turns first, so that a chat that is there is whole.
    pub(super) async fn keep_added(&mut self, at: usize) -> bool {
        self.stored(self.forget_turns(&self.chats[at].uri)).await;
        self.stored(self.keep_turns(at)).await && self.stored(self.keep_chats()).await
    }

    /// Keeps the latest finished turn of a chat.
    pub(super) fn keep_last_turn(&self, chat: usize) -> impl Future<Output = bool> + Send + use<> {
        let chat = &self.chats[chat];
        let last = chat.state.turns.last().cloned();
        let kept = last.map(|turn| self.keep_turn(chat, chat.state.turns.len() - 1, turn));
        async move {
            match kept {
                Some(kept) => kept.await,
                None => true,
            }
        }
    }

    /// Keeps the running turn as far as it has come. A crash leaves it as a turn that failed.
    pub(super) fn keep_running_turn(&mut self, chat: usize) -> impl Future<Output = bool> + Send + use<> {
        let running = self.chats[chat].state.active_turn.as_ref().map(as_if_failed);
        let kept = running.map(|turn| {
            let place = self.chats[chat].state.turns.len();
            self.chats[chat].kept_at = tokio::time::Instant::now();
            self.chats[chat].unkept = false;
            self.keep_turn(&self.chats[chat], place, turn)
        });
        async move {
            match kept {
                Some(kept) => kept.await,
                None => true,
            }
        }
    }

    /// Forgets every turn of a chat.
    pub(super) fn forget_turns(&self, uri: &str) -> impl Future<Output = bool> + Send + use<> {
        self.drop_turns_of(uri, 0)
    }

    /// Forgets the turns of a chat from `place` on.
    pub(super) fn drop_turns(&self, chat: usize, place: usize) -> impl Future<Output = bool> + Send + use<> {
        // Without its turn, a message the store still has as starting one would wait again.
        let chats = self.keep_chats();
        let turns = self.drop_turns_of(&self.chats[chat].uri, place);
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

/// A stored chat with when it changed last.
pub(super) fn at_time(kept: KeptChat, at: &str) -> KeptChat {
    KeptChat { modified_at: Some(at.to_owned()), ..kept }
}

/// The length of what a turn says.
fn text_of(turn: &Turn) -> usize {
    let parts = turn.response_parts.iter().map(|part| match part {
        ResponsePart::Markdown(part) => part.content.len(),
        ResponsePart::Reasoning(part) => part.content.len(),
        _ => 0,
    });
    turn.message.text.len() + parts.sum::<usize>()
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
